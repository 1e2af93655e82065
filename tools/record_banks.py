"""Counts the passes of chosen shared-memory accesses: python tools/record_banks.py OUT.json

Needs a GPU, Nsight Compute (ncu), and leave to read the GPU's counters. One process launches a kernel for each pattern,
one warp and one access, and ncu counts them all in one run. tests/fixtures/banks.json is made so; the rule in
lowlevel/study/bank_rules.py is tested against it.

  record_banks.py --list          the patterns
  record_banks.py --launch        launches them (what ncu looks at)
  record_banks.py --fit FILE      which candidate rule fits a recorded file, access by access
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout, installed or not
from lowlevel.compare import support_function
from lowlevel.device.protocol import LaunchShape
from lowlevel.errors import LowlevelError
from lowlevel.nsight import command, output
from lowlevel.study import bank_counts, bank_rules, banks

_LANES = range(32)
#: Bytes that the kernels' shared memory has.
_MEMORY = 32768
_PASSES = "l1tex__data_pipe_lsu_wavefronts_mem_shared{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared{}.sum"
#: All that says something of passes; those that a GPU does not have are left out.
METRICS = (
    *(name.format(op) for name in (_PASSES, _CONFLICTS) for op in ("", "_op_ld", "_op_st")),
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__inst_executed_op_ldsm.sum",
)
#: access -> its kernel in cu/support/bank_accesses.cu.
KERNELS = {
    **{f"ld.{width}": f"load_{width}" for width in (4, 8, 16)},
    **{f"st.{width}": f"store_{width}" for width in (4, 8, 16)},
    **{f"ldmatrix.x{count}": f"ldmatrix_x{count}" for count in (1, 2, 4)},
}


def patterns() -> list[tuple[str, str, list[int | None]]]:
    """(name, access, byte address of each lane or None), always the same."""
    found = []
    for access in KERNELS:
        named = matrices(access) if access.startswith("ldmatrix") else lanes(int(access.split(".")[1]))
        found += [(f"{access} {name}", access, list(addresses)) for name, addresses in named]
    return found


def lanes(width: int) -> Iterator[tuple[str, list[int | None]]]:
    """Accesses of `width` bytes that tell candidate rules apart: strides, lanes that share, masks, halves that meet in
    the same banks, chance."""
    unit, row = width, 128
    groups = 128 // width  # lanes that want 128 bytes
    chance = random.Random(width)
    for stride in (1, 2, 3, 4, 5, 8, 16, 32):
        yield f"stride {stride}", [unit * stride * lane for lane in _LANES]
    yield "one address", [0 for _ in _LANES]
    for step in (1, 2, 4, 8, 16):
        yield f"shared with lane ^ {step}", [unit * (lane & ~step) for lane in _LANES]
    yield "pairs shared, rows apart", [row * (lane // 2) for lane in _LANES]
    yield "fours shared, rows apart", [row * (lane // 4) for lane in _LANES]
    yield "next but one shared, rows apart", [row * (lane & ~2) for lane in _LANES]
    yield "pairs shared in the first half only", [unit * (lane & ~1 if lane < 16 else lane) for lane in _LANES]
    yield (
        "pairs shared in quarters 0 and 2 only",
        [unit * (lane & ~1 if lane // 8 % 2 == 0 else lane) for lane in _LANES],
    )
    yield "first half pairs, second next but one", [unit * (lane & ~1 if lane < 16 else lane & ~2) for lane in _LANES]
    yield "groups in the same words", [unit * (lane % groups) for lane in _LANES]
    yield "groups of 4 lanes in the same words", [unit * (lane % 4) for lane in _LANES]
    yield "halves in the same words", [unit * (lane % 16) for lane in _LANES]
    yield "groups in the same banks", [unit * (lane % groups) + row * (lane // groups) for lane in _LANES]
    yield "halves conflict in different banks", [row * (lane % 16) + 64 * (lane // 16) for lane in _LANES]
    yield "quarters conflict in different banks", [row * (lane % 8) + 32 * (lane // 8) for lane in _LANES]
    yield "quarters conflict in the same banks", [row * lane for lane in _LANES]
    yield "only the first half conflicts", [row * lane if lane < 16 else unit * (lane % groups) for lane in _LANES]
    yield "only quarter 1 conflicts", [row * lane if lane // 8 == 1 else unit * (lane % 8) for lane in _LANES]
    yield "even lanes", [unit * lane if lane % 2 == 0 else None for lane in _LANES]
    yield "even lanes, close together", [unit * (lane // 2) if lane % 2 == 0 else None for lane in _LANES]
    yield "first half", [unit * lane if lane < 16 else None for lane in _LANES]
    yield "second and fourth quarter", [unit * lane if lane // 8 % 2 else None for lane in _LANES]
    yield "lane 0 of each quarter, rows apart", [row * lane if lane % 8 == 0 else None for lane in _LANES]
    yield "lane 0 of each quarter, side by side", [unit * (lane // 8) if lane % 8 == 0 else None for lane in _LANES]
    yield "one lane", [unit * 5 if lane == 5 else None for lane in _LANES]
    mixed = list(_LANES)
    for seed in range(2):
        for quarter in range(4):
            part = mixed[8 * quarter : 8 * quarter + 8]
            chance.shuffle(part)
            mixed[8 * quarter : 8 * quarter + 8] = part
        yield f"permuted within quarters {seed}", [unit * lane for lane in mixed]
    chance.shuffle(mixed)
    yield "permuted", [unit * lane for lane in mixed]
    for seed in range(3):
        yield f"chance among 64 {seed}", [unit * chance.randrange(64) for _ in _LANES]
    for seed in range(3):
        yield f"chance among 8 {seed}", [unit * chance.randrange(8) for _ in _LANES]
    yield "chance, half of the lanes", [unit * chance.randrange(64) if chance.random() < 0.5 else None for _ in _LANES]
    yield "8 x 4 lanes of a register tile, by rows", [unit * (lane % 8) for lane in _LANES]
    yield "8 x 4 lanes of a register tile, by columns", [unit * (lane // 8) for lane in _LANES]
    yield "8 x 4 lanes, two by two", [unit * (lane // 16 * 4 + lane % 8 // 2) for lane in _LANES]


def matrices(access: str) -> Iterator[tuple[str, list[int | None]]]:
    """Rows for ldmatrix. Lanes that name none repeat row 0."""
    count = banks.ACCESSES[access].lanes
    chance = random.Random(count)

    def rows(address) -> list[int]:
        return [address(lane) if lane < count else address(0) for lane in _LANES]

    for row_bytes in (16, 32, 48, 64, 80, 128, 144, 256):
        yield f"rows of {row_bytes} bytes", rows(lambda lane, n=row_bytes: n * lane)
    for row_bytes in (64, 128):
        yield (
            f"16 rows of {row_bytes} bytes by 2 chunks",
            rows(lambda lane, n=row_bytes: n * (lane % 16) + lane // 16 * 16),
        )
    yield "64 bytes, chunk ^ row / 2 % 4", rows(lambda lane: 64 * (lane % 16) + 16 * (lane // 16 ^ lane % 16 // 2 % 4))
    yield "64 bytes, chunk ^ row % 4", rows(lambda lane: 64 * (lane % 16) + 16 * (lane // 16 ^ lane % 4))
    yield "one row", rows(lambda _: 0)
    yield "matrices alike", rows(lambda lane: 16 * (lane % 8))
    yield "matrices alike, rows of 128 bytes", rows(lambda lane: 128 * (lane % 8))
    yield "matrices conflict in different banks", rows(lambda lane: 128 * (lane % 8) + 16 * (lane // 8))
    yield "rows shared in pairs", rows(lambda lane: 16 * (lane & ~1))
    yield "rows shared in pairs, 128 bytes apart", rows(lambda lane: 128 * (lane // 2))
    for seed in range(3):
        yield f"chance {seed}", rows(lambda _: 16 * chance.randrange(64))


def launch() -> None:
    from lowlevel.device.cuda.device import open_device

    device = open_device()
    stream = device.stream()
    result = device.allocate(128)
    functions = {access: support_function(device, "bank_accesses.cu", kernel) for access, kernel in KERNELS.items()}
    packets = []
    for _, access, addresses in patterns():
        given = device.allocate(128)
        given.upload(np.array([-1 if a is None else a for a in addresses], np.int32))
        packets.append(device.bind(functions[access], LaunchShape((1, 1, 1), (32, 1, 1)), [given, result]))
    for packet in packets:
        packet.launch(stream)
    stream.synchronize()


def count() -> dict:
    """Runs this program under ncu, and reads what it printed."""
    wanted = patterns()
    names = f"regex:^({'|'.join(KERNELS.values())})$"
    program = [sys.executable, str(Path(__file__).resolve()), "--launch"]
    text = command.measure(command.find(), names, METRICS, 0, len(wanted), program)
    launches = output.launches(text)
    if len(launches) != len(wanted):
        raise LowlevelError(f"ncu counted {len(launches)} launches of {len(wanted)}")
    found = []
    for (name, access, addresses), one in zip(wanted, launches, strict=True):
        if not one.kernel.startswith(KERNELS[access]):
            raise LowlevelError(f"'{name}' was launched as {KERNELS[access]}, and ncu names {one.kernel}")
        counted = {metric: int(value) for metric, value in one.metrics.items() if metric in METRICS}
        passes = passes_of(access, counted)
        found.append({"name": name, "access": access, "addresses": addresses, "wavefronts": passes, "ncu": counted})
    return {"patterns": found}


def passes_of(access: str, counted: dict[str, int]) -> int:
    """Of loads or of stores; of all, where this kind is not counted by itself."""
    for op in ("_op_st" if access.startswith("st.") else "_op_ld", ""):
        if passes := counted.get(_PASSES.format(op)):
            return passes
    raise LowlevelError(f"ncu counted no passes of {access}: it gave {counted or 'nothing'}")


def fit(path: str) -> None:
    """A line for each access: how many patterns each candidate gets wrong, and the first that the rule in use does."""
    counted = bank_counts.read(json.loads(Path(path).read_text()))
    rows = []
    for access in KERNELS:
        mine = [c for c in counted if c.access == access]
        wrong = {name: bank_counts.misfits(mine, {access: rule}) for name, rule in bank_rules.CANDIDATES.items()}
        used = bank_rules.RULE[access].__name__
        rows.append({"access": access, "patterns": len(mine), "in use": used, **{n: len(w) for n, w in wrong.items()}})
    print(tabulate(rows, "keys"))
    for line in bank_counts.misfits(counted):
        print(line)


def main(words: list[str]) -> int:
    try:
        if words == ["--launch"]:
            launch()
        elif words == ["--list"]:
            print(tabulate([(name, a) for name, _, a in patterns()]))
        elif len(words) == 2 and words[0] == "--fit":
            fit(words[1])
        elif len(words) == 1 and not words[0].startswith("-"):
            write(words[0], count())
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except LowlevelError as error:
        print(f"record_banks: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def write(path: str, found: dict) -> None:
    lines = ",\n".join(json.dumps(p) for p in found["patterns"])
    Path(path).write_text('{"patterns": [\n' + lines + "\n]}\n")
    print(f"{path}: {len(found['patterns'])} patterns")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
