"""pytest per architecture: `pytest --arch sm_80`, `--full` for the whole product, and a table at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest
from tabulate import tabulate

from lowlevel import catalog, paths, tuned
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import all_variants
from lowlevel.commands.verify import problems_of, tile_of
from lowlevel.device.cuda.driver import probe
from lowlevel.errors import LowlevelError, UsageError
from lowlevel.problems.base import Problem
from lowlevel.problems.make import make_problem
from lowlevel.problems.shapes import few_edge_shapes
from lowlevel.progress import Progress
from lowlevel.toolchain import build as building
from lowlevel.toolchain.arch import ARCHS, parse_arch, runs_on
from lowlevel.worker import Pool, Worker

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
        "xdist_group(name): in one process under `pytest -n`",
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
        if item.path.parent.name == "gpu":  # one process alone uses it
            item.add_marker(pytest.mark.xdist_group("gpu"))
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


class KeptPool(Pool):
    """Compilers that wait for the next test: to start one takes as long as to compile a small kernel."""

    kept: list[Worker] = []

    def __init__(self, n: int, name: str = "pool"):
        self.kept.extend(Worker(f"{name}-{i}") for i in range(len(self.kept), n))
        self._workers, self._spoils = self.kept[:n], None

    def close(self) -> None:
        """Ends those that are in the middle of a call, as `Pool` does, and lets the others wait."""
        for worker in self._workers:
            if worker._busy:
                worker.kill()


@pytest.fixture(autouse=True)
def compilers(monkeypatch):
    """One set of compilers for all tests."""
    monkeypatch.setattr(building, "Pool", KeptPool)


def pytest_sessionfinish(session):
    for worker in KeptPool.kept:
        worker.close()
    if is_one_of_several(session.config):
        seen = [(*key, sorted(what)) for key, what in session.config.lowlevel_seen.items()]
        session.config.workeroutput["lowlevel_seen"] = seen


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Adds what a process of `pytest -n` saw to the closing table."""
    for *key, what in getattr(node, "workeroutput", {}).get("lowlevel_seen", ()):
        node.config.lowlevel_seen[tuple(key)].update(what)


@pytest.fixture(scope="session")
def built(request):
    """(variant's name, arch) -> binary or error, of every pair that the selected tests are about."""
    items = [getattr(item, "callspec", None) for item in request.session.items]
    params = [spec.params for spec in items if spec and "arch" in spec.params]
    pairs = {(p.get("variant") or p.get("other"), p["arch"]): None for p in params if {"variant", "other"} & set(p)}
    if is_one_of_several(request.config):
        return OnDemand(pairs)
    return compiled_together(request.config, pairs)


class OnDemand(Mapping):
    """Compiles what is asked for: where several processes share the tests they share the compiling too."""

    def __init__(self, pairs):
        self._requests = {(variant.name, arch): catalog.request(variant, arch) for variant, arch in pairs}
        self._found: dict = {}

    def __getitem__(self, key):
        if key not in self._found:
            (self._found[key],) = building.build_all([self._requests[key]])
        return self._found[key]

    def __iter__(self):
        return iter(self._requests)

    def __len__(self):
        return len(self._requests)


def is_one_of_several(config) -> bool:
    """Whether this is a process of pytest-xdist's, `pytest -n`."""
    return hasattr(config, "workerinput")


def compiled_together(config, pairs) -> dict:
    """(variant's name, arch) -> binary or error, on every core, with a progress line on a terminal."""
    requests = [catalog.request(variant, arch) for variant, arch in pairs]
    shown = config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled()
    with shown, Progress(len(requests), "compiling") as progress:
        binaries = building.build_all(requests, progress=progress.reached)
    return {(variant.name, arch): binary for (variant, arch), binary in zip(pairs, binaries, strict=True)}


@pytest.fixture(scope="session")
def limits(gpu):
    from lowlevel import gpu_worker

    return gpu.call(gpu_worker.limits, deadline=120.0)


@pytest.fixture(scope="session")
def built_for_gpu(request, limits):
    """`built_for_gpu(variants)`: variant's name -> its binary for this GPU, or error, all compiled together."""

    def build_them(variants) -> dict:
        arch, found, possible = parse_arch(limits.capability), {}, []
        for variant in variants:
            try:
                catalog.request(variant, arch)
                possible.append((variant, arch))
            except UsageError as error:
                found[variant.name] = error
        return found | {name: built for (name, _), built in compiled_together(request.config, possible).items()}

    return build_them


def runnable(binary, limits):
    """The binary; skips the test where the kernel cannot exist or run here, raises why it does not compile."""
    if isinstance(binary, UsageError):
        pytest.skip(str(binary))
    if isinstance(binary, LowlevelError):
        raise binary
    if not runs_on(binary.arch, limits.capability):
        pytest.skip(f"{binary.arch} does not run on {limits.name}")
    return binary


def other_variants(full: bool) -> list[Variant]:
    """What the default variants leave out: each other configuration once, in the first type and layout that has it, or
    with `full` the product of types, layouts, configurations and epilogues."""
    defaults = catalog.variants()
    if full:
        names = {variant.name for variant in defaults}
        return [variant for variant in all_variants() if variant.name not in names]
    seen = {(variant.kernel, variant.config_text) for variant in defaults}
    first = {(variant.kernel, variant.config_text): variant for variant in reversed(all_variants())}
    return [first[key] for key in reversed(first) if key not in seen]


def variants_and_archs(config, variants: list[Variant], archs: Sequence[str]) -> list:
    """(variant, arch) parameters with readable ids, of every variant on every one of the architectures that it can be
    compiled for; the impossible pairs are left out and counted."""
    found = []
    for variant in variants:
        for arch in archs:
            try:
                target = catalog.request(variant, arch).arch
            except UsageError as error:
                note(config, variant, arch, f"skipped: {str(error).split(': ', 1)[1]}")
                continue
            if target != arch and target in archs:
                continue
            found.append(pytest.param(variant, arch, id=variant_id(variant, arch)))
    return found


def problems_around(variant: Variant, full: bool) -> list[Problem]:
    """What `lowlevel verify` takes, for a kernel's first variant and for all that only move elements. A matmul's other
    types and layouts, whose tiles are cut at the same places, take one shape of each kind."""
    if full or variant == variant.kernel.variants()[0] or variant.kernel.operation != "gemm":
        return problems_of(variant, "", full)
    return [make_problem(variant, shape) for shape in few_edge_shapes(*tile_of(variant))]


def variant_id(variant, arch: str, shape: str = "") -> str:
    """`gemm/02_tiled-ptx-sm_80-fp32-NN-257x129x65`."""
    kernel = variant.kernel
    words = [kernel.name, kernel.language, arch, variant.type.name, variant.layout, shape]
    if variant.config != kernel.configs_of(variant.type)[0]:
        words.append(variant.config_text)
    if variant.epilogue != "none":
        words.append(variant.epilogue)
    return "-".join(filter(None, words))


def note(config, variant, arch: str, what: str) -> None:
    """Remembers for the closing table what was done with a kernel on an architecture."""
    config.lowlevel_seen[(arch, variant.kernel.language, variant.kernel.name)].add(what)


def pytest_generate_tests(metafunc):
    """Tests of (variant, arch) and of (variant, arch, problem); of (other, arch) for what the defaults leave out."""
    config, names = metafunc.config, set(metafunc.fixturenames)
    full, archs = config.getoption("--full"), config.lowlevel_archs
    if {"variant", "arch", "problem"} <= names:
        pairs = variants_and_archs(config, catalog.variants(), archs)
        found = [
            pytest.param(variant, arch, problem, id=variant_id(variant, arch, problem.label))
            for variant, arch in (pair.values for pair in pairs)
            for problem in problems_around(variant, full)
        ]
        metafunc.parametrize(("variant", "arch", "problem"), found)
    elif {"variant", "arch"} <= names:
        metafunc.parametrize(("variant", "arch"), variants_and_archs(config, catalog.variants(), archs))
    elif {"other", "arch"} <= names:
        pairs = variants_and_archs(config, other_variants(full), archs)
        first = {pair.values[0].name: pair for pair in reversed(pairs)}  # of the architectures that it can be on
        metafunc.parametrize(("other", "arch"), list(reversed(first.values())))


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
