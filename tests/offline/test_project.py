"""The project's own files: set-up, words, links, and a wheel that works elsewhere."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

from lowlevel import paths

ROOT = paths.kernel_root()
PLACES = (
    "*.md",
    "docs/*.md",
    "lowlevel/**/*.py",
    "cu/**/*.cu*",
    "ptx/**/*.ptx",
    "mlir/**/*",
    "exercises/*",
    "bench/**/*.json",
    "tools/*",
    "Makefile",
)


def setup_module_():
    spec = importlib.util.spec_from_file_location("setup_venv", ROOT / "tools" / "setup_venv.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_packages_follow_the_driver():
    extras = setup_module_().extras
    assert extras(None, False) == ["cu13", "dev"]
    assert extras(13, True) == ["cu13", "dev"]
    assert extras(13, False) == ["cu13", "dev", "cublas13"]
    assert extras(12, False) == ["cu12", "dev", "cublas12"]
    assert extras(None, False, "cu12") == ["cu12", "dev"]


def test_a_python_without_venv_is_one_line(monkeypatch, tmp_path):
    module = setup_module_()
    failed = subprocess.CompletedProcess([], 1, "", "ensurepip is not available")
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SystemExit, match=r"install python3\.\d+-venv"):
        module.make_venv(tmp_path / "venv")


def test_an_environment_is_made_anew_by_who_works_in_it(monkeypatch, tmp_path):
    """Its own Python is gone by then: that which it was made with makes the next."""
    module, folder = setup_module_(), tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    started = []
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(module.subprocess, "run", lambda command, **_: started.append(command) or done)
    module.make_venv(folder)
    assert not folder.exists()
    assert pathlib.Path(started[0][0]).exists()


def test_make_help_names_every_target():
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True)
    for target in ("bench", "test", "test-all", "check", "mlir", "mlir-opt", "clean"):
        assert f"make {target} " in done.stdout


def test_no_file_names_a_machines_folders():
    forbidden = re.compile(r"/(?:home|root|Users|tmp)/\w|https?://[^ )]*/simple")
    for path in (p for place in PLACES for p in ROOT.glob(place) if p.is_file()):
        assert not forbidden.search(path.read_text()), path


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_page_is_reached_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert f"docs/{page.name}" in readme


@pytest.mark.slow
def test_a_wheel_works_in_another_folder(tmp_path):
    """Kernels and suites travel in the wheel; its dependencies are borrowed from this environment."""
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "site"
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(target), str(wheel)], check=True)
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from lowlevel.cli import main\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(main(sys.argv[2:]))\n"
    )
    runs = {
        ("list",): "gemm/01_naive",
        ("build", "gemm/01_naive", "probe/tensor_map", "--arch", "sm_90"): "gemm/01_naive",
        ("bench", "--quick"): "gemm/01_naive",
        ("exercise", "1", "--start"): "01_tile.cu is here",
    }
    for words, said in runs.items():
        command = [sys.executable, str(script), str(target), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


@pytest.mark.parametrize("files", ["cu/**/*.*", "ptx/**/*.*", "mlir/**/*.mlir", "exercises/**/*.*"])
def test_kernel_files_fit_a_page(files):
    for path in sorted(ROOT.glob(files)):
        long = [n for n, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
        assert not long, f"{path.name}: lines {long} have more than 120 columns"
