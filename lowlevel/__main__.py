"""`python -m lowlevel` is the `lowlevel` command."""

import sys

try:
    from lowlevel.cli import main
except ModuleNotFoundError as missing:
    if not missing.name or missing.name.split(".")[0] == "lowlevel":
        raise
    sys.exit(
        f"lowlevel: this Python has no {missing.name}: `make bench` sets up one that has everything; or install what "
        "pyproject.toml names: python -m pip install --editable '.[cu13]'"
    )

if __name__ == "__main__":
    sys.exit(main())
