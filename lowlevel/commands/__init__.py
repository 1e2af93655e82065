"""The subcommands of `lowlevel`, one a file: `add(subparsers)` declares it, `run(arguments)` returns the exit code."""
