"""Taking a kernel home: a folder from which it can be loaded and launched without this project.

`paper` writes down the launches of a call, `description` makes launch.json of them, `example` chooses inputs and what
must come out, `caller_python` and `caller_c` write the programs that try it, `folder` writes the files.
"""
