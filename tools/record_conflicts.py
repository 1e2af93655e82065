"""Records SASS lines with shared-memory bank conflicts: python tools/record_conflicts.py FILE.json SHAPE VARIANT...

Each variant runs once at the shape under Nsight Compute, as `lowlevel profile VARIANT SHAPE --source` runs it, and the
passes of each conflicting line are saved with the environment. A line's passes are whole numbers from the SASS-level
counters; ncu's totals of a kernel also count passes lost to other traffic.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout, installed or not
from lowlevel.catalog.select import one_kernel, select
from lowlevel.device.cuda.device import open_device
from lowlevel.environment import environment
from lowlevel.nsight import command, output


def conflicts(name: str, shape: str) -> dict:
    variant = one_kernel(name)[0] if "[" not in name else select([name])[0]
    ncu, entry = command.find(), command.entry_of(variant, None)
    program = command.target(variant, shape, 2, None, 0)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.ncu-rep"
        command.run(command.record(ncu, entry, report, 1, program))
        lines = output.conflicts(command.run(command.source_page(ncu, report)))
    return {"variant": variant.name, "shape": shape, "lines": [asdict(line) for line in lines]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("shape")
    parser.add_argument("variants", nargs="+")
    arguments = parser.parse_args()
    device = open_device()
    found = {"schema": 1, "environment": environment(device), "kernels": []}
    device.close()
    for name in arguments.variants:
        found["kernels"].append(conflicts(name, arguments.shape))
        lines = found["kernels"][-1]["lines"]
        print(f"{found['kernels'][-1]['variant']}: {len(lines)} lines with conflicts", flush=True)
    arguments.file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
