"""`python -m lowlevel` is the `lowlevel` command."""

import sys

from lowlevel.cli import main

if __name__ == "__main__":
    sys.exit(main())
