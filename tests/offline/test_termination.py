"""SIGTERM ends a command as Ctrl-C does: what was measured is kept, and children are left alone."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_bench import gpu  # noqa: F401

import lowlevel
from lowlevel import bench, cli
from lowlevel.commands import bench as bench_command
from lowlevel.results import Results
from lowlevel.worker import Worker


@pytest.fixture(autouse=True)
def untouched():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    yield
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_rows_measured_are_kept(gpu, tmp_path, monkeypatch, capsys):  # noqa: F811
    """Two signals, as `timeout` sends them: the second must not end the printing and saving."""
    monkeypatch.setattr(bench_command, "probe", lambda: None)
    real, calls = bench.Bench._group, []
    finish = bench.finish

    def second_is_terminated(self, *args):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *args)

    def finish_is_signalled(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        finish(*args)

    monkeypatch.setattr(bench.Bench, "_group", second_is_terminated)
    monkeypatch.setattr(bench, "finish", finish_is_signalled)
    path = tmp_path / "rows.json"
    code = cli.main(["bench", "cuda:gemm/02*", "64x48x32,32x32x32", "--json", str(path)])
    out, err = capsys.readouterr()
    assert (code, err) == (143, "lowlevel: terminated\n")
    assert "4 rows saved in" in out
    assert not path.exists()
    assert len(Results.load(tmp_path / "rows.partial.json").rows) == 4


def test_it_is_not_caught_elsewhere(monkeypatch):
    seen = []
    monkeypatch.setattr("lowlevel.commands.list_.common.chosen", lambda *_: seen.append(_handler()) or [])
    cli.main(["list"])
    thread = threading.Thread(target=cli.main, args=(["list"],))
    thread.start()
    thread.join()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    cli.main(["list"])
    assert _handler() == signal.SIG_IGN
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert [callable(s) and s not in (signal.SIG_IGN, signal.SIG_DFL) for s in seen] == [True, False, False]


def test_a_child_keeps_what_sigterm_does(monkeypatch):
    def ask_a_child(*_):
        with Worker("test") as worker:
            seen.append(worker.call(_handler, deadline=60))
        return []

    seen = []
    monkeypatch.setattr("lowlevel.commands.list_.common.chosen", ask_a_child)
    cli.main(["list"])
    assert seen == [signal.SIG_DFL]


def test_the_command_whole(tmp_path):
    """In another process: a command that SIGTERM meets while it runs says one line and exits with 143."""
    script = (
        "import os, signal, sys\n"
        "from lowlevel import cli\n"
        "from lowlevel.commands import list_\n"
        "list_.common.chosen = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(cli.main(['list']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(lowlevel.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "lowlevel: terminated\n")


def _handler() -> object:
    return signal.getsignal(signal.SIGTERM)
