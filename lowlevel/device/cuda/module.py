"""Loading a binary, and what the driver says of its kernels."""

from __future__ import annotations

import re

from lowlevel.device.cuda.driver import driver_version, newest_ptx
from lowlevel.device.cuda.errors import check, describe
from lowlevel.errors import DeviceError, UsageError
from lowlevel.toolchain import signature
from lowlevel.toolchain.arch import loads_as_cubin, runs_on
from lowlevel.toolchain.binary import Binary, Entry

_LOG_BYTES = 16384


class Function:
    """A kernel of a loaded module. `local` and `static_shared` in bytes."""

    def __init__(self, driver, native, name: str, entry: Entry | None):
        self.driver, self.native, self.name, self.entry = driver, native, name, entry
        attribute = driver.CUfunction_attribute
        self.registers = self._get(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.static_shared = self._get(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        self.local = self._get(attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        self.max_threads = self._get(attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        self._allowed_shared = self._get(attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        self.large_clusters = False

    def _get(self, attribute) -> int:
        return check(self.driver.cuFuncGetAttribute(attribute, self.native), f"reading attributes of {self.name}")

    def allow_shared(self, dynamic: int) -> None:
        """Raises the opt-in to dynamic shared memory when a launch needs more; never lowers it.

        Lowering would break a larger launch that another thread is about to make.
        """
        if dynamic <= self._allowed_shared:
            return
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        doing = f"allowing {self.name} {dynamic} bytes of dynamic shared memory"
        check(self.driver.cuFuncSetAttribute(self.native, attribute, dynamic), doing)
        self._allowed_shared = dynamic

    def allow_large_clusters(self) -> None:
        """Lets clusters have 16 blocks, which not every GPU can place."""
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        check(self.driver.cuFuncSetAttribute(self.native, attribute, 1), f"allowing {self.name} clusters of 16")
        self.large_clusters = True


class Module:
    """A binary on the device: its cubin where the architecture is this device's, else its PTX, compiled now."""

    def __init__(self, driver, binary: Binary, capability: tuple[int, int], device_name: str):
        self._driver, self._binary, self.arch = driver, binary, binary.arch
        if not runs_on(binary.arch, capability):
            own = f"sm_{capability[0]}{capability[1]}"
            raise UsageError(f"code for {binary.arch} cannot run on {device_name} ({own}): build it for {own}")
        self.from_ptx = not (binary.cubin and loads_as_cubin(binary.arch, capability))
        self._native = self._load_ptx() if self.from_ptx else self._load(binary.cubin, "cubin")
        self._functions: dict[str, Function] = {}

    def function(self, entry: str) -> Function:
        if entry not in self._functions:
            result = self._driver.cuModuleGetFunction(self._native, entry.encode())
            if int(result[0]):
                have = ", ".join(self._binary.entries) or "none"
                raise UsageError(f"no kernel '{entry}' in {self._name()}; the module has: {have}")
            self._functions[entry] = Function(self._driver, result[1], entry, self._binary.entries.get(entry))
        return self._functions[entry]

    def close(self) -> None:
        if self._native is not None:
            self._driver.cuModuleUnload(self._native)
            self._native = None

    def _name(self) -> str:
        return self._binary.source.rsplit("/", 1)[-1] or "the module"

    def _load_ptx(self):
        needed, release = signature.version(self._binary.ptx), driver_version()
        takes = newest_ptx(release)
        if needed > takes:
            raise UsageError(
                f"{self._name()}: PTX ISA {needed[0]}.{needed[1]} is newer than this driver's {takes[0]}.{takes[1]} "
                f"(CUDA {release[0]}.{release[1]}): build a cubin for this GPU, or update the driver"
            )
        return self._load(self._binary.ptx.encode() + b"\0", "PTX")

    def _load(self, image: bytes, kind: str):
        option = self._driver.CUjit_option
        log = bytearray(_LOG_BYTES)
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        result = self._driver.cuModuleLoadDataEx(image, len(options), options, [log, len(log)])
        if int(result[0]):
            text = log.split(b"\0")[0].decode(errors="replace").strip()
            raise DeviceError(self._explain(result[0].name, kind, text), result[0].name, int(result[0]))
        return result[1]

    def _explain(self, name: str, kind: str, log: str) -> str:
        """The driver's log names lines of the PTX: show the first it complains of."""
        said = describe(name, f"loading the {kind} of {self._name()}")
        match = re.search(r"line (\d+);?\s*([^\n]*)", log)
        if match and kind == "PTX":
            lines = self._binary.ptx.splitlines()
            number = int(match[1])
            shown = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            return f"{said}: {self._name()}:{number}: {match[2].strip()}: {shown}"
        return f"{said}: {log.splitlines()[0]}" if log else said
