"""pytest per architecture: `pytest --arch sm_80`, `--full` for the whole product, and a table at the end."""

from __future__ import annotations

from collections import defaultdict

import pytest
from tabulate import tabulate

from lowlevel import catalog, paths, tuned
from lowlevel.commands.verify import problems_of
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import LowlevelError, UsageError
from lowlevel.toolchain.arch import ARCHS, parse_arch

#: What a run without --arch covers: an A100's and an H100's or H200's code.
DEFAULT_ARCHS = ("sm_80", "sm_90a")
#: What --full adds: every architecture that some kernel can be compiled for.
ALL_ARCHS = tuple(ARCHS)


def pytest_addoption(parser):
    group = parser.getgroup("lowlevel")
    group.addoption("--arch", action="append", default=[], help="architectures to test, e.g. sm_80 or sm_80,sm_90a")
    group.addoption("--full", action="store_true", help="the full product of shapes, configurations and architectures")


def pytest_configure(config):
    for marker in (
        "capability(name): needs a device with that capability",
        "smoke12: repeated with the CUDA 12 packages",
        "slow: only with --full",
    ):
        config.addinivalue_line("markers", marker)
    try:
        config.lowlevel_archs = archs(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.lowlevel_seen = defaultdict(set)


def archs(config) -> tuple[str, ...]:
    given = [parse_arch(a) for text in config.getoption("--arch") for a in text.split(",")]
    if given:
        return tuple(dict.fromkeys(given))
    return ALL_ARCHS if config.getoption("--full") else DEFAULT_ARCHS


def pytest_collection_modifyitems(config, items):
    full = config.getoption("--full")
    for item in items:
        if item.get_closest_marker("slow") and not full:
            item.add_marker(pytest.mark.skip(reason="slow: run with --full"))


@pytest.fixture(scope="session")
def device():
    """The first GPU. Without one the test is skipped; with a broken driver it fails."""
    if reason := probe():
        pytest.skip(reason)
    from lowlevel.device.cuda.device import open_device

    opened = open_device()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _capabilities(request):
    """Skips a test that its device cannot run."""
    for marker in request.node.iter_markers("capability"):
        found = request.getfixturevalue("device").capabilities
        if marker.args[0] not in found:
            pytest.skip(f"the device has no {marker.args[0]}")


@pytest.fixture(scope="session")
def gpu():
    """A child process that owns the GPU, replaced when a kernel kills it."""
    if reason := probe():
        pytest.skip(reason)
    from lowlevel import gpu_worker
    from lowlevel.worker import Worker

    worker = Worker("gpu", gpu_worker.start, (0,))
    yield worker
    worker.close()


@pytest.fixture(autouse=True)
def tuned_folders(tmp_path, monkeypatch):
    """Empty folders of tuned choices, the user's own and the shipped: no test depends on what was tuned here."""
    folders = tmp_path / "own_tuned", tmp_path / "shipped_tuned"
    monkeypatch.setattr(paths, "user_tuned_root", lambda: folders[0])
    monkeypatch.setattr(paths, "tuned_root", lambda: folders[1])
    tuned.forget()
    yield folders
    tuned.forget()


def variants_and_archs(config) -> list:
    """(variant, arch) parameters with readable ids, of every kernel on every architecture asked for that it can be
    compiled for; the impossible pairs are left out and counted."""
    found = []
    for variant in catalog.variants():
        for arch in config.lowlevel_archs:
            try:
                target = catalog.request(variant, arch).arch
            except UsageError as error:
                note(config, variant, arch, f"skipped: {str(error).split(': ', 1)[1]}")
                continue
            if target != arch and target in config.lowlevel_archs:
                continue
            found.append(pytest.param(variant, arch, id=variant_id(variant, arch)))
    return found


def variant_id(variant, arch: str, shape: str = "") -> str:
    """`gemm/02_tiled-ptx-sm_80-fp32-NN-257x129x65`."""
    kernel = variant.kernel
    return "-".join(w for w in (kernel.name, kernel.language, arch, variant.type.name, variant.layout, shape) if w)


def note(config, variant, arch: str, what: str) -> None:
    """Remembers for the closing table what was done with a kernel on an architecture."""
    config.lowlevel_seen[(arch, variant.kernel.language, variant.kernel.name)].add(what)


def pytest_generate_tests(metafunc):
    names = set(metafunc.fixturenames)
    if {"variant", "arch", "problem"} <= names:
        pairs = variants_and_archs(metafunc.config)
        full = metafunc.config.getoption("--full")
        found = [
            pytest.param(variant, arch, problem, id=variant_id(variant, arch, problem.label))
            for variant, arch in (pair.values for pair in pairs)
            for problem in problems_of(variant, "", full)
        ]
        metafunc.parametrize(("variant", "arch", "problem"), found)
    elif {"variant", "arch"} <= names:
        metafunc.parametrize(("variant", "arch"), variants_and_archs(metafunc.config))


@pytest.fixture
def seen(request):
    """`seen(variant, arch, 'compiled')` for the closing table."""
    return lambda variant, arch, what: note(request.config, variant, arch, what)


def pytest_terminal_summary(terminalreporter, config):
    """A line for each architecture, language and rung: ran, compiled, or skipped and why."""
    rows = [[*key, outcome(what)] for key, what in sorted(config.lowlevel_seen.items())]
    if rows:
        terminalreporter.section("kernels")
        terminalreporter.write_line(tabulate(rows, ["arch", "language", "kernel", ""]))
        try:
            reason = probe()
        except LowlevelError as error:
            reason = str(error)
        if reason:
            terminalreporter.write_line(f"\nNothing ran on a GPU: {reason}")


def outcome(what: set[str]) -> str:
    """The most that was done: it ran before it compiled before it was skipped."""
    for word in ("failed", "ran", "compiled"):
        if word in what:
            return word
    return next(iter(what))
