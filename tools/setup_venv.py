"""Makes the project's virtual environment: python tools/setup_venv.py FOLDER [cu12|cu13]

Runs with any Python 3.10 or newer and its standard library alone. Asks the NVIDIA driver, if there is one, which CUDA
it supports, and installs the packages of that major version: cu13 for CUDA 13 and where there is no driver, else
cu12. cuBLAS is installed only where a driver is found and the system has no cuBLAS of that version.
"""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def driver_cuda():
    """The major CUDA version that the driver supports, or None without a driver."""
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if libcuda.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000


def has_cublas(major):
    """Whether the system's loader finds a cuBLAS of that major version."""
    try:
        ctypes.CDLL(f"libcublas.so.{major}")
    except OSError:
        return False
    return True


def extras(major, cublas_found, asked=None):
    """The extras to install: `['cu13', 'dev', 'cublas13']` for a CUDA 13 driver without cuBLAS."""
    flavour = asked or ("cu12" if major is not None and major < 13 else "cu13")
    wanted = [flavour, "dev"]
    if major is not None and not cublas_found:
        wanted.append("cublas" + flavour[2:])
    return wanted


def base_python():
    """The Python that this one's environment was made with, which stays when the environment is made anew: whoever has
    activated it runs its own."""
    return getattr(sys, "_base_executable", None) or sys.executable


#: In an environment's folder as soon as it is made: what has it may be made anew.
MARK = "made-by-lowlevel"


def refuse_what_is_not_ours(folder):
    """Exits with one line where the folder holds anything that this script did not make: it would be removed."""
    whole = folder.resolve()
    if whole == ROOT or whole in ROOT.parents:
        sys.exit(f"setup: {folder} holds the project itself; give VENV= a folder of its own, or nothing")
    ours = (folder / MARK).exists() or (folder / "ready").exists()
    if folder.exists() and not ours and not (folder.is_dir() and not any(folder.iterdir())):
        sys.exit(
            f"setup: {folder} is there and was not made here: it stays as it is. "
            "Give VENV= a new folder, or nothing to use the Python at hand"
        )


def make_venv(folder):
    """A fresh virtual environment; exits with one line where that cannot be."""
    refuse_what_is_not_ours(folder)
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / MARK).touch()
    except OSError as error:
        sys.exit(f"setup: {folder}: {error.strerror}; give another folder with VENV=")
    done = subprocess.run([base_python(), "-m", "venv", str(folder)], capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no word why"]
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if "ensurepip" in "".join(said):
            said = [f"install python{version}-venv (Debian, Ubuntu: apt install python3-venv)"]
        sys.exit(
            f"setup: this Python cannot make virtual environments: {said[-1]}; or use the Python at hand with VENV="
        )


def install(folder, wanted):
    """The project and what it needs; exits with one line where that fails."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    try:
        subprocess.run([*pip, "--editable", f"{ROOT}[{','.join(wanted)}]"], check=True)
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"setup: pip failed with code {error.returncode}. Without a network, a Python that has the packages of "
            "pyproject.toml will do: VENV= PYTHON=python3"
        )
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; the next make starts again")


def main():
    if sys.version_info < (3, 10):  # noqa: UP036 - the system's Python may be any
        sys.exit(f"setup: Python 3.10 or newer is needed, this is {sys.version.split()[0]}; set PYTHON=")
    folder = Path(sys.argv[1])
    asked = sys.argv[2] if len(sys.argv) > 2 else None
    major = driver_cuda()
    wanted = extras(major, has_cublas(13 if major is None or major >= 13 else 12), asked)
    found = f"a driver for CUDA {major}" if major else "no NVIDIA driver"
    print(f"Setting up {folder} with {', '.join(wanted)} ({found}) ...", flush=True)
    make_venv(folder)
    install(folder, wanted)
    (folder / "ready").write_text(",".join(wanted) + "\n")


if __name__ == "__main__":
    main()
