"""The cache, and compilers that crash or hang in their child process."""

import multiprocessing
import os
import pickle
import signal
import time
from dataclasses import replace

import pytest

from lowlevel import paths
from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.toolchain import build as building
from lowlevel.toolchain import cache
from lowlevel.toolchain.binary import Binary, Parameter, Request
from lowlevel.toolchain.build import build, build_all, build_here

PATIENCE_S = 60.0


def fake_compiler(request):
    """Stands in for a compiler: quick, and behaves as the source's first word says. Leaves a trace of each run."""
    with open(request.source.parent / "runs", "a") as file:
        file.write(f"{request.arch}\n")
    text = request.source.read_text()
    if text.startswith("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if text.startswith("hang"):
        time.sleep(PATIENCE_S)
    if text.startswith("wrong"):
        raise CompileError("k.cu:1: error: no", log="the log")
    if text.startswith("stumble"):
        return {}["bug"]
    if text.startswith("edited"):
        request.source.write_text("changed while compiling")
    return Binary(request.language, request.arch, b"cubin of " + text.encode(), "ptx", {}, source=str(request.source))


def runs(folder):
    file = folder / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Kernels, headers and cache of our own."""
    (tmp_path / "cu" / "include").mkdir(parents=True)
    monkeypatch.setattr(paths, "kernel_root", lambda: tmp_path)
    monkeypatch.setenv("LOWLEVEL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(autouse=True)
def compilers():
    """Here each build has its own, as outside the tests."""


@pytest.fixture
def here(monkeypatch):
    """Runs the pool's calls in this process: what is tested is not the pool."""

    class NoPool:
        def __init__(self, n, name):
            pass

        def map(self, function, arguments, deadline):
            yield from ((index, function(*args)) for index, args in enumerate(arguments))

    monkeypatch.setattr(building, "Pool", NoPool)


def request(folder, text="fine", arch="sm_80", name="k.cu", **kwargs):
    source = folder / name
    source.write_text(text)
    return Request("cuda", source, arch, kwargs.pop("entries", ("k",)), **kwargs)


def fake_build(request, **kwargs):
    return build_all([request], compiler=fake_compiler, **kwargs)[0]


def kept(folder):
    return [p for p in (folder / "cache").rglob("*") if p.is_file()]


def test_what_was_compiled_is_kept(folder, here):
    first, second = fake_build(request(folder)), fake_build(request(folder))
    assert (first.cached, second.cached) == (False, True)
    assert second == replace(first, cached=True)
    assert runs(folder) == 1


def test_a_hit_starts_no_process_and_knows_its_source(folder, here, monkeypatch):
    fake_build(request(folder))
    monkeypatch.setattr(building, "Pool", None)
    (folder / "moved").mkdir()
    moved = request(folder / "moved")
    assert fake_build(moved).source == str(moved.source)


def test_everything_that_makes_a_binary_is_in_its_key(folder, here, monkeypatch):
    (folder / "cu" / "include" / "a.cuh").write_text('#include "b.cuh"\n')
    (folder / "cu" / "include" / "b.cuh").write_text("// one\n")
    text = '#include "a.cuh"\n'
    base = request(folder, text)
    keys = [cache.key(base)]
    keys.append(cache.key(request(folder, text + " ")))
    request(folder, text)
    keys.append(cache.key(replace(base, arch="sm_90a")))
    keys.append(cache.key(replace(base, entries=("k", "other"))))
    keys.append(cache.key(replace(base, defines=(("BM", "64"),))))
    keys.append(cache.key(replace(base, defines=(("BM", "128"),))))
    keys.append(cache.key(replace(base, language="ptx")))
    (folder / "cu" / "include" / "b.cuh").write_text("// two\n")
    keys.append(cache.key(base))
    monkeypatch.setattr(cache.nvrtc, "OPTIONS", ("-G",))
    keys.append(cache.key(base))
    monkeypatch.setattr(cache, "compiler_identity", lambda language: f"another {language}")
    keys.append(cache.key(base))
    monkeypatch.setattr(cache, "_own_code", lambda: "another version of us")
    keys.append(cache.key(base))
    assert len(set(keys)) == len(keys)
    assert cache.key(base) == keys[-1]


def test_a_changed_header_compiles_again(folder, here):
    header = folder / "cu" / "include" / "a.cuh"
    header.write_text("// one\n")
    text = '#include "a.cuh"\n'
    fake_build(request(folder, text))
    header.write_text("// two\n")
    assert not fake_build(request(folder, text)).cached
    header.write_text("// one\n")
    assert fake_build(request(folder, text)).cached


def test_a_source_edited_while_it_compiled_is_not_kept(folder, here):
    assert not fake_build(request(folder, "edited")).cached
    assert kept(folder) == []


def test_the_compilers_build_is_its_librarys(tmp_path, monkeypatch):
    from cuda import pathfinder

    library = tmp_path / "libnvrtc.so"
    library.write_bytes(b"one")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lambda _: type("Loaded", (), {"abs_path": str(library)}))
    identity = cache.compiler_identity.__wrapped__
    before = identity("cuda")
    assert identity("cuda") == before
    library.write_bytes(b"another")
    assert identity("cuda") != before
    library.unlink()
    assert identity("cuda") == "none"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
    ids=["empty", "half", "last bit", "checksum"],
)
def test_a_damaged_file_is_made_again(folder, here, damage):
    first = fake_build(request(folder))
    (file,) = kept(folder)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert fake_build(request(folder)) == first
    assert runs(folder) == 2
    assert file.read_bytes() == whole


def test_a_file_with_a_good_checksum_and_no_binary_is_made_again(folder, here):
    fake_build(request(folder))
    (file,) = kept(folder)
    for body in (b"not a pickle", pickle.dumps("not a binary")):
        file.write_bytes(cache.hashlib.sha256(body).digest() + body)
        assert not fake_build(request(folder)).cached


def test_a_cache_that_cannot_be_written_is_said_once(folder, here, monkeypatch, capsys):
    (folder / "file").write_text("")
    monkeypatch.setenv("LOWLEVEL_CACHE", str(folder / "file" / "below"))
    cache._say_once.cache_clear()
    for arch in ("sm_80", "sm_90"):
        assert not fake_build(request(folder, arch=arch)).cached
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "compiled kernels are not kept" in said[0]
    assert "LOWLEVEL_CACHE" in said[0]


def store_often(source, key, size):
    made = Request("cuda", source, "sm_80", ("k",))
    for i in range(40):
        cache.store(made, key, Binary("cuda", "sm_80", bytes([i]) * size, "", {}))


def test_parallel_writers_never_show_half_a_file(folder):
    made = request(folder)
    key = cache.key(made)
    fork = multiprocessing.get_context("fork")  # nothing here has touched CUDA
    writers = [fork.Process(target=store_often, args=(made.source, key, size)) for size in (100_000, 300_000)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        if cache._file(key).exists():
            binary = cache.load(made, key)
            assert binary is not None
            assert len(set(binary.cubin)) == 1
            seen += 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen
    assert len(kept(folder)) == 1


def test_a_crashing_a_hanging_and_a_wrong_source_cost_themselves(folder):
    names = ("fine", "crash", "hang", "wrong", "stumble", "good")
    requests = [request(folder, f"{name} kernel", name=f"{name}.cu") for name in names]
    fine, crash, hang, wrong, stumble, good = build_all(requests, jobs=2, compiler=fake_compiler, deadline=3.0)
    assert fine.cubin == b"cubin of fine kernel"
    assert good.cubin == b"cubin of good kernel"
    assert str(crash).startswith("crash.cu: compiler crashed (SIGSEGV), NVRTC ")
    assert str(crash).endswith(", sm_80")
    assert str(hang).startswith("hang.cu: compiler hung: no answer in 3 s; killed, NVRTC ")
    assert (str(wrong), wrong.log) == ("k.cu:1: error: no", "the log")
    assert str(stumble).startswith("stumble.cu: compiling failed: KeyError: 'bug', NVRTC ")
    assert "fake_compiler" in stumble.log
    assert all(isinstance(error, CompileError) for error in (crash, hang, wrong, stumble))
    assert len(kept(folder)) == 2


def test_results_are_in_the_order_asked_and_equal_requests_compile_once(folder, here):
    a, b = request(folder, "a", name="a.cu"), request(folder, "b", name="b.cu")
    steps = []
    found = build_all([b, a, b], compiler=fake_compiler, progress=lambda *step: steps.append(step))
    assert [binary.cubin for binary in found] == [b"cubin of b", b"cubin of a", b"cubin of b"]
    assert runs(folder) == 2
    assert steps == [(0, 2), (1, 2), (2, 2)]
    build_all([b, a], compiler=fake_compiler, progress=lambda *step: steps.append(step))
    assert steps[3:] == [(2, 2)]


def test_a_source_or_header_that_cannot_be_read(folder):
    missing = Request("cuda", folder / "missing.cu", "sm_80", ("k",))
    (error,) = build_all([missing])
    assert isinstance(error, UsageError)
    assert str(error) == f"cannot read {folder / 'missing.cu'}: No such file or directory"
    for builder in (build, build_here):
        with pytest.raises(UsageError, match="cannot read"):
            builder(missing)


def test_without_the_library_the_refusal_is_that(folder, here, monkeypatch):
    def missing(request):
        raise MissingError("NVRTC is missing")

    with pytest.raises(MissingError):
        build_all([request(folder)], compiler=missing)
    monkeypatch.setattr(building.nvrtc, "compiler_name", lambda: missing(None))
    told = building._told(request(folder), building.WorkerDied("crashed (SIGSEGV)"))
    assert isinstance(told, MissingError)


def test_the_real_compiler_in_its_child_and_here(folder):
    text = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1; }'
    made = build(request(folder, text))
    assert made.cubin.startswith(b"\x7fELF")
    assert made.entries["k"].parameters == (Parameter("u64", 8, 8),)
    assert build_here(request(folder, text)) == replace(made, cached=True)
    other = build_here(request(folder, text, arch="sm_90a"))
    assert (other.arch, other.cached) == ("sm_90a", False)
    assert build(request(folder, text, arch="sm_90a")).cached
    with pytest.raises(CompileError, match=r"k\.cu:1: error"):
        build(request(folder, "nonsense"))


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWLEVEL_CACHE", str(tmp_path))
    assert paths.cache_dir() == tmp_path
    monkeypatch.delenv("LOWLEVEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert paths.cache_dir() == tmp_path / "xdg" / "lowlevel"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache_dir() == tmp_path / ".cache" / "lowlevel"
