"""What goes wrong, in one line each: what is wrong, the value, the limit, what to do.

Every error that a user can cause or mend derives from `LowlevelError`; the command line prints its
text without a traceback and exits with `exit_code`.
"""


class LowlevelError(Exception):
    """A failure whose text is written for the user: one line, no traceback needed."""

    exit_code = 1


class UsageError(LowlevelError):
    """The request is wrong: an unknown variant, a bad shape, an architecture that cannot run here."""

    exit_code = 2


class MissingError(LowlevelError):
    """Something the environment lacks or has broken: a driver, a library, a header, a tool."""

    exit_code = 2


class CompileError(LowlevelError):
    """The compiler or assembler refused a source, crashed or hung. `log` is its own text."""

    def __init__(self, message: str, log: str = ""):
        super().__init__(message)
        self.log = log


class DeviceError(LowlevelError):
    """The driver refused a call or a kernel failed. `name` is the driver's own name for it."""

    def __init__(self, message: str, name: str = "", code: int = 0):
        super().__init__(message)
        self.name = name
        self.code = code
