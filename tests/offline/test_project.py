"""The project's own files: set-up, words, links, and a wheel that works elsewhere."""

import importlib.util
import os
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


def test_what_the_set_up_did_not_make_stays(monkeypatch, tmp_path):
    """A folder of somebody's, an environment of his own, a file, the checkout itself, and what lies around it."""
    module = setup_module_()
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: pytest.fail("something was made"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("a file")
    for folder in (tmp_path / "mine", tmp_path / "file"):
        with pytest.raises(SystemExit, match="was not made here: it stays as it is"):
            module.make_venv(folder)
    for folder in (ROOT, ROOT.parent, pathlib.Path(os.path.relpath(ROOT))):
        with pytest.raises(SystemExit, match="holds the project itself"):
            module.make_venv(folder)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    assert (ROOT / "pyproject.toml").exists()


def test_an_environment_is_made_where_there_is_none_and_made_anew_where_one_was(monkeypatch, tmp_path):
    module = setup_module_()
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", ""))
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "new" / "venv", tmp_path / "empty"):
        module.make_venv(folder)
        (folder / "old").touch()
        module.make_venv(folder)
        assert not (folder / "old").exists()


def test_a_folder_that_cannot_be_written_is_one_line(monkeypatch, tmp_path):
    module = setup_module_()
    read_only = OSError(30, "Read-only file system")
    monkeypatch.setattr(module.Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(read_only))
    with pytest.raises(SystemExit, match="venv: Read-only file system; give another folder with VENV="):
        module.make_venv(tmp_path / "venv")


def test_an_environment_is_made_anew_by_who_works_in_it(monkeypatch, tmp_path):
    """Its own Python is gone by then: that which it was made with makes the next."""
    module, folder = setup_module_(), tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / module.MARK).touch()
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    started = []
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(module.subprocess, "run", lambda command, **_: started.append(command) or done)
    module.make_venv(folder)
    assert not (folder / "bin").exists()
    assert pathlib.Path(started[0][0]).exists()


def test_a_python_without_the_packages_is_one_line(tmp_path):
    (tmp_path / "ml_dtypes.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'ml_dtypes'\", name='ml_dtypes')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-m", "lowlevel", "list"], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("lowlevel: this Python has no ml_dtypes: ")
    assert len(done.stderr.splitlines()) == 1


def test_make_help_names_every_target():
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True)
    for target in ("setup", "bench", "test", "test-all", "check", "mlir", "mlir-opt", "clean"):
        assert f"make {target} " in done.stdout


def test_no_file_names_a_machines_folders():
    forbidden = re.compile(r"/(?:home|root|Users|tmp)/\w|https?://[^ )]*/simple")
    for path in (p for place in PLACES for p in ROOT.glob(place) if p.is_file()):
        assert not forbidden.search(path.read_text()), path


def test_no_committed_figure_names_a_folder_of_a_machine():
    """Reasons and commands name files as the project does."""
    absolute = re.compile(r"(?<![\w.:/>\]])/\w[\w.-]*/\w")
    assert absolute.search('"reason": "/any/where/fast_block.cuh:43: error"')
    for path in (*ROOT.glob("bench/**/*.json"), *ROOT.glob("tests/fixtures/**/*.json")):
        assert not (found := absolute.search(text := path.read_text())), f"{path}: {text[found.start() :][:80]}"


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
