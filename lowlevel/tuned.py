"""Tuned choices: which configuration was fastest, for a kernel, type, layout and shape on a GPU.

A file a GPU, `bench/tuned/<gpu>.json` as the project ships it and `tuned/<gpu>.json` in the cache folder as
`lowlevel bench --tune` writes it. A choice holds its winner and the figures of everything that was tried.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lowlevel import model, paths
from lowlevel.catalog import space
from lowlevel.catalog.entry import Config, Kernel, Variant
from lowlevel.dtypes import ELEMENTS, Type
from lowlevel.errors import UsageError
from lowlevel.files import write_whole
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.problems.gemm import Gemm
from lowlevel.shape_class import distance, shape_class

SCHEMA = 1
#: What a class's choice may cost, in clocks of the rule's by the kernel's own count: further off the count was at no
#: shape that was tuned.
CLEARLY = 1.05


@dataclass(frozen=True)
class Figure:
    """What was found out of one configuration in one pass; pass 1 times all, 2 and 3 the best of the pass before.

    status, reason, and the rest: as in a results file's row. vs_reference: the reference's median time over this one's
    in the same rounds; above 1 is faster.
    """

    config: Config
    passed: int
    status: str
    reason: str = ""
    median_us: float | None = None
    iqr_us: float | None = None
    samples: int | None = None
    vs_reference: float | None = None
    vs_best_library: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None


@dataclass(frozen=True)
class Choice:
    """The winner for one kernel, type, layout and shape. reference: what would be taken without a stored choice."""

    kernel: str
    type: str
    layout: str
    shape: tuple[int, int, int]
    shape_class: str
    config: Config
    reference: Config
    median_us: float | None = None
    vs_reference: float | None = None
    vs_best_library: float | None = None
    arch: str = ""
    date: str = ""
    software: str = ""
    tried: tuple[Figure, ...] = ()

    @property
    def key(self) -> tuple:
        return (self.kernel, self.type, self.layout, self.shape)


@dataclass(frozen=True)
class Tuned:
    """A file of choices, and the GPU that they were measured on."""

    gpu: str
    capability: tuple[int, int]
    sms: int
    choices: tuple[Choice, ...] = field(default=())

    def with_choice(self, choice: Choice) -> Tuned:
        """This with one choice more, in place of one for the same shape."""
        others = [c for c in self.choices if c.key != choice.key]
        return replace(self, choices=tuple(sorted([*others, choice], key=lambda c: c.key)))

    def save(self, path: Path) -> None:
        """Writes the file whole, a choice a line, or raises UsageError and leaves what was there."""
        head = {"schema": SCHEMA, "gpu": self.gpu, "capability": self.capability, "sms": self.sms}
        lines = ",\n".join(json.dumps(asdict(choice), allow_nan=False) for choice in self.choices)
        text = f'{json.dumps(head)[:-1]}, "choices": [\n{lines}\n]}}\n'
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with --json") from None
        forget()

    @classmethod
    def load(cls, path: Path) -> Tuned:
        """Raises UsageError, one line, for a file that cannot be read or is none of tuned choices."""
        try:
            data = json.loads(path.read_text())
            if data["schema"] != SCHEMA:
                raise UsageError(f"{path} has schema {data['schema']}, this version reads {SCHEMA}: tune again")
            choices = tuple(_choice(each) for each in data["choices"])
            return cls(data["gpu"], tuple(data["capability"]), int(data["sms"]), choices)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = " ".join(str(error).split())
            raise UsageError(f"{path} is not a file of tuned choices ({text}): remove it, or tune again") from None


def _choice(data: dict) -> Choice:
    tried = tuple(Figure(**figure) for figure in data.pop("tried"))
    m, n, k = map(int, data.pop("shape"))
    for name in ("config", "reference"):
        if not all(isinstance(value, int) for value in data[name].values()):
            raise ValueError(f"{name} {data[name]}")
    return Choice(**data, shape=(m, n, k), tried=tried)


def unfinished_path(gpu: str) -> Path:
    """Where an interrupted `bench --tune` keeps its figures."""
    return paths.user_tuned_root() / "unfinished" / f"{paths.gpu_slug(gpu)}.json"


def empty(limits: Limits) -> Tuned:
    return Tuned(limits.name, limits.capability, limits.sms)


def user_path(gpu: str) -> Path:
    """Where `bench --tune` stores choices for a GPU."""
    return paths.user_tuned_root() / f"{paths.gpu_slug(gpu)}.json"


def suited(variant: Variant, problem: Problem, limits: Limits) -> Variant:
    """The variant in the configuration that suits a problem on a GPU, unless one was named.

    A kernel with a tuning space takes the stored choice; without one, like any other, what its rule takes; and without
    a rule what the cost model takes of the entry's configurations.
    """
    kernel = variant.kernel
    if variant.chosen_by != "default" or not (kernel.choose or kernel.space):
        return variant
    config, chosen_by = configuration(kernel, variant.type, variant.layout, problem, limits)
    return replace(variant, config=config, chosen_by=chosen_by)


def configuration(kernel: Kernel, type_: Type, layout: str, problem: Gemm, limits: Limits) -> tuple[Config, str]:
    """(configuration, chosen_by) for a problem on a GPU: the stored choice, the kernel's rule, or the model's.

    A stored choice counts for kernels with a tuning space, in this order, the user's own before the shipped one each
    time: this GPU and exactly this shape, `tuned (exact)`; the nearest shape of the same class, `tuned (class)`; the
    same two of the nearest GPU of this architecture, `tuned (H200)`. A choice that the kernel or this GPU no longer
    admits is passed over. So is a class's where the kernel counts clocks and finds what its rule takes clearly faster:
    the last wave of one shape is full, that of another a tile. A type of which there is nothing takes what another of
    the same sizes has, fp16 bf16's: `tuned (exact, bf16)`.
    """
    for tried in (type_, *_alike(kernel, type_)) if kernel.space else ():
        if found := _stored(kernel, tried.name, layout, problem, limits):
            config, said = found
            return config, said if tried is type_ else f"{said[:-1]}, {tried.name})"
    return untuned(kernel, problem, limits)


def _alike(kernel: Kernel, type_: Type) -> list[Type]:
    """The kernel's other types whose operands, sums and results are as large."""

    def sizes(of: Type) -> tuple[int, str, int]:
        return ELEMENTS[of.operand].bytes, of.accumulate, ELEMENTS[of.output].bytes

    return [other for other in kernel.types if other != type_ and sizes(other) == sizes(type_)]


def untuned(kernel: Kernel, problem: Gemm, limits: Limits) -> tuple[Config, str]:
    """(configuration, chosen_by) without a stored choice: the kernel's rule, else the model."""
    configs = kernel.configs_of(problem.type)
    if kernel.choose:
        return configs[kernel.choose(configs, problem, limits)], "rule"
    return model.best(kernel, configs, problem, limits), "model"


@functools.lru_cache(4096)
def _stored(kernel: Kernel, type_: str, layout: str, problem: Gemm, limits: Limits) -> tuple[Config, str] | None:
    """The stored choice. Kept, since a launch asks for it each time; `forget` after a file changed."""
    shape, wanted = (problem.m, problem.n, problem.k), shape_class(problem, limits)

    for files, said in _in_order(limits):
        choices = [_usable(file, kernel, type_, layout, problem, limits) for file in files]
        same = [c for found in choices for c in found if c.shape == shape]
        if same and all(file.sms == limits.sms for file in files):  # elsewhere its waves would be others
            return same[0].config, said or "tuned (exact)"
        for found in choices:
            close = [c for c in found if c.shape_class == wanted]
            if close := [c for c in close if not _clearly_slower(kernel, c.config, problem, limits)]:
                return min(close, key=lambda c: distance(c.shape, shape)).config, said or "tuned (class)"
    return None


def exact(kernel: Kernel, type_: Type, layout: str, problem: Gemm, limits: Limits) -> Choice | None:
    """What was measured and chosen on this GPU for exactly this shape and type, the user's own before the shipped."""
    files, _ = next(_in_order(limits))
    found = [c for file in files for c in _usable(file, kernel, type_.name, layout, problem, limits)]
    found = [c for c in found if c.shape == (problem.m, problem.n, problem.k)]
    return found[0] if found and all(file.sms == limits.sms for file in files) else None


def _usable(file: Tuned, kernel: Kernel, type_: str, layout: str, problem: Gemm, limits: Limits) -> list[Choice]:
    """A file's choices for a kernel, type and layout that the kernel and this GPU still admit."""
    found = [c for c in file.choices if (c.kernel, c.type, c.layout) == (kernel.label, type_, layout)]
    found = [replace(choice, config=kernel.completed(choice.config)) for choice in found]
    found = [choice for choice in found if set(choice.config) == set(kernel.configs[0])]
    return [choice for choice in found if not space.refusal(kernel, choice.config, problem, limits)]


def _clearly_slower(kernel: Kernel, config: Config, problem: Gemm, limits: Limits) -> bool:
    """Whether the kernel's own count finds what would be taken without a stored choice faster by more than it errs."""
    if not kernel.clocks:
        return False
    other, _ = untuned(kernel, problem, limits)
    return kernel.clocks(config, problem, limits) > CLEARLY * kernel.clocks(other, problem, limits)


def _in_order(limits: Limits) -> Iterator[tuple[list[Tuned], str]]:
    """(files, what to say of the GPU): this GPU's, own first; then those of others of its architecture, nearest
    first."""
    found = [file for root in (paths.user_tuned_root(), paths.tuned_root()) for file in _files(root)]
    name = paths.gpu_slug(limits.name)
    mine = [file for file in found if paths.gpu_slug(file.gpu) == name]
    yield mine, ""
    others: dict[str, list[Tuned]] = {}
    for file in found:
        if file.capability == limits.capability and paths.gpu_slug(file.gpu) != name:
            others.setdefault(paths.gpu_slug(file.gpu), []).append(file)
    for files in sorted(others.values(), key=lambda files: (abs(math.log(files[0].sms / limits.sms)), files[0].gpu)):
        yield files, f"tuned ({files[0].gpu.replace('NVIDIA', '').strip()})"


def _files(root: Path) -> list[Tuned]:
    """A folder's files. One that cannot be read is named on standard error and passed over: a choice is a help, and
    its loss must not stop a measurement."""
    found = []
    for path in sorted(root.glob("*.json")):
        try:
            found.append(_load(path))
        except UsageError as error:
            _say_once(str(error))
    return found


@functools.cache
def _load(path: Path) -> Tuned:
    return Tuned.load(path)


@functools.cache
def _say_once(text: str) -> None:
    print(f"lowlevel: {text}", file=sys.stderr)


def forget() -> None:
    """Reads files anew at the next lookup."""
    for kept in (_stored, _load, _say_once):
        kept.cache_clear()
