"""What a catalog entry says of a kernel. Adding a kernel is one source file and one `Kernel(...)`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lowlevel.dtypes import Type

if TYPE_CHECKING:
    from lowlevel.hardware import Limits
    from lowlevel.problems.base import Problem

Config = Mapping[str, int]
Dim3 = tuple[int, int, int]
#: A small pure function of (config, problem, limits), kept in `catalog/rules.py`.
Sized = Callable[[Config, "Problem", "Limits"], Any]

#: (config, row, column) -> the thread of the block that computes that element of C, counted from 0.
Owner = Callable[[Config, int, int], int]

#: (configs, problem, limits) -> index of the configuration to take.
Choose = Callable[[Sequence[Config], "Problem", "Limits"], int]

#: (config, problem, limits) -> the rule that the configuration breaks, in a line, or None when the kernel can have it.
Admits = Callable[[Config, "Problem", "Limits"], "str | None"]

#: The languages, in the order of every table, and the file ending of each.
LANGUAGES = {"cuda": ("cu", ".cu"), "ptx": ("ptx", ".ptx"), "mlir": ("mlir", ".mlir")}


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched. Each field is a value, or a `Sized` that computes it, but `cooperative`.

    block: threads (an int or three). grid: blocks. shared: dynamic bytes. workspace: bytes of scratch memory, which
    all launches of a call share, zeroed once before the first, and which a kernel leaves as it found it.
    """

    block: int | Dim3 | Sized
    grid: Dim3 | Sized
    shared: int | Sized = 0
    cluster: Dim3 | Sized | None = None
    cooperative: bool = False
    programmatic: bool | Sized = False
    workspace: int | Sized = 0


def always(problem: Problem) -> bool:  # noqa: ARG001
    return True


@dataclass(frozen=True)
class Step:
    """One launch of several that make a call: entry, parameters and launch, like a `Kernel`'s own. `when` says for
    which problems it is made."""

    entry: str
    params: tuple[str, ...]
    launch: Launch
    when: Callable[[Problem], bool] = always


@dataclass(frozen=True)
class Rule:
    """A shape that a kernel does not take: `text` says the rule, refused on the host when `holds` is false."""

    holds: Callable[[Problem], bool]
    text: str


@dataclass(frozen=True)
class Expect:
    """What a test asserts of the compiled kernel.

    sass: for an architecture, the instructions that the file is about. spills: bytes, at most. allow: advisory
    text -> why it is harmless. version: the lowest PTX ISA that assembles the file (PTX only).
    """

    sass: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spills: int = 0
    allow: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None


@dataclass(frozen=True)
class Twin:
    """`idea=twin("cuda")`: this kernel's idea is that of the same number in another language."""

    language: str


def twin(language: str) -> Twin:
    return Twin(language)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One source file: `name` is its path below the language's folder, without the ending.

    archs: what it is compiled for by default. 'sm_80' means sm_80 and anything newer; a name ending in 'a' means
    that architecture alone. types, layouts, configs, epilogues: the axes of its variants; the first of each is
    the default. fewer_layouts: for a type, by name, that has only some of the layouts, those. type_configs: for a type,
    by name, whose elements are of another size, its configurations in place of configs. params: names that the binder
    knows, in the order of the kernel's parameters. before: launches that precede the kernel's own in every call,
    or in those of some problems. boxes: for an operand, by name, what gives its tensor map, kept in `catalog/boxes.py`,
    or None where it has none; a kernel that has them may have operands copied first, `catalog/repack.py`.
    owner: who computes an element, for the report of a wrong one. choose: which of configs suits a problem on a GPU,
    where it is not always the first. clocks: of the busiest SM in a configuration, where the cost model knows too
    little of the kernel to rank them; with it goes waves: (tiles of a cluster, clusters that are there at once and take
    them in turn). space: the values of each number that tuning tries. admits: which of their products the kernel can
    have, kept in `catalog/space.py`. order: numbers that say in which order tiles are taken. optional: numbers that
    names and stored choices leave out at these values, since there were names and choices before there were the
    numbers.
    """

    language: str
    name: str
    entry: str
    idea: str | Twin
    archs: tuple[str, ...]
    types: tuple[Type, ...]
    params: tuple[str, ...]
    launch: Launch
    layouts: tuple[str, ...] = ("",)
    fewer_layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    configs: tuple[Config, ...] = ({},)
    type_configs: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    epilogues: tuple[str, ...] = ("none",)
    needs: tuple[Rule, ...] = ()
    before: tuple[Step, ...] = ()
    boxes: Mapping[str, Sized] = field(default_factory=dict)
    expect: Expect = Expect()
    owner: Owner | None = None
    choose: Choose | None = None
    clocks: Sized | None = None
    waves: Sized | None = None
    space: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    admits: Admits | None = None
    order: tuple[str, ...] = ()
    optional: Config = field(default_factory=dict)

    @property
    def operation(self) -> str:
        """`gemm`, `transpose`, `probe` ...: the folder."""
        return self.name.split("/")[0]

    @property
    def rung(self) -> str:
        """The file's own name, `02_tiled`."""
        return self.name.split("/", 1)[1]

    @property
    def path(self) -> str:
        """The source file, relative to the root that holds the kernels: `cu/gemm/02_tiled.cu`."""
        folder, ending = LANGUAGES[self.language]
        return f"{folder}/{self.name}{ending}"

    @property
    def label(self) -> str:
        return f"{self.language}:{self.name}"

    @property
    def shown(self) -> str:
        """The label as tables show it."""
        return self.label

    @property
    def takes_numbers(self) -> bool:
        """Whether the compiler is given the configuration's numbers. In other languages they stand in the file."""
        return self.language == "cuda"

    def lacks(self, number: str) -> str:
        """What is said of a number that the kernel does not have."""
        have = ", ".join(self.configs[0]) or "none"
        return f"{self.label} has no compile-time number '{number}'; it has: {have}"

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every launch that a call may make."""
        return (*self.before, Step(self.entry, self.params, self.launch))

    def steps_for(self, problem: Problem) -> tuple[Step, ...]:
        """The launches that a call makes for a problem, in order."""
        return tuple(step for step in self.steps if step.when(problem))

    def products(self) -> list[tuple[Type, str]]:
        """Every type in each of its layouts."""
        return [(t, layout) for t in self.types for layout in self.fewer_layouts.get(t.name, self.layouts)]

    def configs_of(self, type_: Type) -> tuple[Config, ...]:
        """The entry's configurations for a type, the default first."""
        return self.type_configs.get(type_.name, self.configs)

    def completed(self, config: Config) -> Config:
        """With the optional numbers that it leaves out, in the entry's order."""
        whole = {**self.optional, **config}
        return {name: whole.pop(name) for name in self.configs[0] if name in whole} | whole

    def all_variants(self) -> Iterator[Variant]:
        """Every point of the axes: configurations and epilogues too."""
        for type_, layout in self.products():
            for config, epilogue in itertools.product(self.configs_of(type_), self.epilogues):
                yield Variant(self, type_, layout, config, epilogue)

    def variants(self) -> list[Variant]:
        """The default configuration for every type and layout, without epilogue: what tests and tables take."""
        return [Variant(self, t, layout, self.configs_of(t)[0], self.epilogues[0]) for t, layout in self.products()]


@dataclass(frozen=True)
class Variant:
    """One point of a kernel's axes: what is compiled, launched and measured."""

    kernel: Kernel
    type: Type
    layout: str = ""
    config: Config = field(default_factory=dict, hash=False)
    epilogue: str = "none"
    #: Where the configuration comes from: `default`, `named` on the command line, a `sweep` or `tune`, a stored choice
    #: (`tuned (exact)`, `tuned (class)`, `tuned (H200)`), the kernel's `rule`, or the cost `model`.
    chosen_by: str = field(default="default", compare=False)

    @property
    def config_text(self) -> str:
        """`128x256x32,s4`: the tile, the stages, then whatever else the configuration sets, as NAME=value, but
        optional numbers."""
        rest = {name: n for name, n in self.config.items() if self.kernel.optional.get(name) != n}
        tile = [rest.pop(name) for name in ("BM", "BN", "BK") if name in rest]
        parts = ["x".join(map(str, tile))] if tile else []
        if "STAGES" in rest:
            parts.append(f"s{rest.pop('STAGES')}")
        return ",".join(parts + [f"{k}={v}" for k, v in rest.items()])

    @property
    def listed(self) -> bool:
        """Whether the configuration is one of the entry's. What the entry promises, it promises of those alone."""
        return self.config in self.kernel.configs_of(self.type)

    @property
    def name(self) -> str:
        """`cuda:gemm/14_wide[bf16,NT,128x256x32,s4]`."""
        return self.kernel.label + self._point

    @property
    def shown(self) -> str:
        """The name as tables show it."""
        return self.kernel.shown + self._point

    @property
    def _point(self) -> str:
        epilogue = "" if self.epilogue == "none" else self.epilogue
        parts = [self.type.name, self.layout, self.config_text, epilogue]
        return f"[{','.join(p for p in parts if p)}]"

    def refusal(self, problem: Problem) -> str | None:
        """The rule that `problem` breaks, as one line, or None when the kernel takes it."""
        for rule in self.kernel.needs:
            if not rule.holds(problem):
                return rule.text
        return None

    def with_config(self, **numbers: int) -> Variant:
        return replace(self, config={**self.config, **numbers})


def read_config(words: Sequence[str], numbers: Sequence[str], optional: Config | None = None) -> Config | None:
    """`Variant.config_text`, split at its commas, back into a configuration of `numbers`, in their order.

    Other words are passed over. None unless each number has a value, of the text or else an optional one's, and there
    are no more.
    """
    found = {name: str(value) for name, value in (optional or {}).items()}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif "STAGES" in numbers and word[:1] == "s" and word[1:].isdecimal():
            found["STAGES"] = word[1:]
        elif all(part.isdecimal() for part in word.split("x")):
            found.update(zip((n for n in ("BM", "BN", "BK") if n in numbers), word.split("x"), strict=False))
    if set(found) != set(numbers) or not all(value.isdecimal() for value in found.values()):
        return None
    return {name: int(found[name]) for name in numbers}
