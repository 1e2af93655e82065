"""Suites: which problems `lowlevel bench` measures, and which contenders meet in each.

A suite is a TOML file in bench/suites: `title`, `budget_s`, and sections of operation, kernels (globs), types,
layouts, epilogues, shapes, a sweep of compile-time numbers, and numbers with which each variant is measured also. A
selection on the command line makes a suite of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lowlevel import catalog, paths, tuned
from lowlevel.catalog import library
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import select
from lowlevel.catalog.sweep import Sweep, swept
from lowlevel.dtypes import MOVE32, TYPES
from lowlevel.errors import UsageError
from lowlevel.hardware import Limits
from lowlevel.problems.base import Problem
from lowlevel.problems.epilogue import EPILOGUES
from lowlevel.problems.gemm import LAYOUTS, Gemm
from lowlevel.problems.make import make_problem
from lowlevel.problems.move import Copy
from lowlevel.problems.shapes import parse_shape

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Shapes of an operation when neither the suite nor the user names any.
DEFAULT_SHAPES = {"gemm": "4096", "transpose": "4096", "copy": "4096", "probe": ""}


@dataclass(frozen=True)
class Group:
    """One problem and those who compute it: they share its inputs and are timed interleaved.

    yardsticks do not compute it: a copy of as many bytes, beside a transpose. also: numbers with which every variant is
    measured a second time, where they are not its own.
    """

    problem: Problem
    variants: tuple[Variant, ...] = ()
    libraries: tuple[str, ...] = ()
    yardsticks: tuple[Variant, ...] = ()
    also: tuple[tuple[str, int], ...] = ()


@dataclass
class Suite:
    name: str
    title: str
    budget_s: float
    groups: list[Group] = field(default_factory=list)

    def variants(self) -> list[Variant]:
        """Every variant once, in order of first use."""
        return list({v.name: v for group in self.groups for v in (*group.variants, *group.yardsticks)}.values())


def load(name: str) -> Suite:
    """The suite of that name, or of that file. Raises UsageError naming the suites there are."""
    path = Path(name) if name.endswith(".toml") else paths.suites_root() / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in paths.suites_root().glob("*.toml")))
        raise UsageError(f"no suite '{name}'; there are: {known}")
    with path.open("rb") as file:
        try:
            text = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"suite {path.name} does not parse: {error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"suite {path.name} is not a text in UTF-8") from None
    budget, sections = text.get("budget_s", 120), text.get("section", [])
    if type(budget) not in (int, float):
        raise UsageError(f"{path.name}: budget_s is a number of seconds")
    if not isinstance(sections, list) or not all(isinstance(section, dict) for section in sections):
        raise UsageError(f"{path.name}: sections are tables, each headed [[section]]")
    suite = Suite(path.stem, text.get("title", path.stem), float(budget))
    for section in sections:
        suite.groups += section_groups(section, path.name)
    return replace(suite, groups=joined(suite.groups))


def joined(groups: Sequence[Group]) -> list[Group]:
    """One group a problem: what several sections say of it is measured in the same rounds, each variant once."""
    found: dict[Problem, Group] = {}
    for one in groups:
        before = found.setdefault(one.problem, one)
        variants = {v.name: v for v in before.variants}
        variants.update((v.name, v) for v in one.variants if v.name not in variants)
        found[one.problem] = replace(before, variants=tuple(variants.values()), also=before.also or one.also)
    return list(found.values())


def suited(chosen: Suite, limits: Limits) -> Suite:
    """The suite with each variant in the configuration that suits its problem on a GPU."""
    groups = []
    for group in chosen.groups:
        variants = [tuned.suited(v, group.problem, limits) for v in group.variants]
        variants += [other for v in variants for other in _again(v, group.also)]
        found: dict[str, Variant] = {}
        for variant in variants:
            found.setdefault(variant.name, variant)
        groups.append(replace(group, variants=tuple(found.values())))
    return replace(chosen, groups=groups)


def _again(variant: Variant, also: Sequence[tuple[str, int]]) -> list[Variant]:
    """The variant with these of its numbers instead; nothing where it has them already, or has none of the names."""
    other = {name: value for name, value in also if name in variant.config}
    changed = replace(variant, config={**variant.config, **other}, chosen_by="named")
    return [changed] if changed.config != variant.config else []


def narrowed(chosen: Suite, shapes: str, dtypes: Sequence[str], layouts: Sequence[str]) -> Suite:
    """The suite's groups of these shapes, types and layouts; any where none is named. UsageError when none is left."""
    wanted = parse_shape(shapes) if shapes else []
    groups = [
        group
        for group in chosen.groups
        if _wanted(group.problem.layout, layouts)
        and (not dtypes or {group.problem.type.dtype, group.problem.type.name} & set(dtypes))
        and (not wanted or any(_is_shape(group.problem, shape) for shape in wanted))
    ]
    if not groups:
        words = " ".join(filter(None, (shapes, "/".join(dtypes), "/".join(layouts))))
        raise UsageError(f"the suite {chosen.name} has nothing of {words}")
    return replace(chosen, groups=groups)


def _is_shape(problem: Problem, shape: tuple[int, ...]) -> bool:
    """4096 is each of a problem's dimensions."""
    sizes = problem.label.split("x")
    return sizes == [str(n) for n in (shape * len(sizes) if len(shape) == 1 else shape)]


def section_groups(section: Mapping, where: str) -> list[Group]:
    """The groups of one TOML section: its types, layouts, epilogues and shapes, and each point of its sweep."""
    _check(section, where)
    variants = select(section["kernels"]) if section.get("kernels") else []
    variants = [v for v in variants if v.kernel.operation == section["operation"]]
    types, layouts = section.get("types"), section.get("layouts")
    variants = [v for v in variants if _wanted(v.type.name, types) and _wanted(v.layout, layouts)]
    shapes = section.get("shapes", "")
    if "epilogues" in section:
        variants = with_epilogues(variants, section["epilogues"], where)
    if "sweep" in section:
        variants = swept(variants, _checked_sweep(section["sweep"], where))
    if not variants and section["operation"] == "gemm":
        return [
            _library_group(Gemm(*(shape * 3 if len(shape) == 1 else shape), TYPES[t], layout))
            for t in types
            for layout in layouts
            for shape in parse_shape(shapes)
        ]
    also = _checked_also(section.get("also", {}), where)
    return [replace(one, also=also) for one in group(variants, shapes)]


def _checked_also(also: object, where: str) -> tuple[tuple[str, int], ...]:
    if not (isinstance(also, dict) and all(type(value) is int and value >= 0 for value in also.values())):
        raise UsageError(f"{where}: also is a table of whole numbers, {{ PDL = 0 }}")
    return tuple(also.items())


def _check(section: Mapping, where: str) -> None:
    """UsageError for keys that there are not, that are missing, or whose names are none."""
    known = {"operation", "kernels", "types", "layouts", "epilogues", "sweep", "also", "shapes"}
    if unknown := set(section) - known:
        raise UsageError(f"{where}: unknown key '{sorted(unknown)[0]}' in a section; known: {', '.join(sorted(known))}")
    needed = ["operation"] if section.get("kernels") else ["operation", "types", "layouts", "shapes"]
    if missing := [key for key in needed if key not in section]:
        without = "" if section.get("kernels") else " without kernels"
        raise UsageError(f"{where}: a section{without} lacks '{missing[0]}'")
    for key, names in (("kernels", None), ("types", TYPES), ("layouts", LAYOUTS)):
        values = section.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise UsageError(f"{where}: {key} is a list of names")
        if unknown := [value for value in values if names and value not in names]:
            raise UsageError(f"{where}: {key} has no '{unknown[0]}'; there are: {', '.join(names)}")


def with_epilogues(variants: Sequence[Variant], epilogues: Sequence[str], where: str) -> list[Variant]:
    """Each variant with each of these epilogues that its kernel has. UsageError for one that no kernel here has."""
    if not isinstance(epilogues, list) or not epilogues:
        raise UsageError(f'{where}: epilogues is a list, ["none", "bias_relu"]')
    for name in epilogues:
        if name not in EPILOGUES:
            raise UsageError(f"{where}: no epilogue '{name}'; there are: {', '.join(EPILOGUES)}")
        if not any(name in v.kernel.epilogues for v in variants):
            raise UsageError(f"{where}: none of the section's kernels has the epilogue '{name}'")
    found = [replace(v, epilogue=name) for name in epilogues for v in variants if name in v.kernel.epilogues]
    return list({v.name: v for v in found}.values())


def _checked_sweep(sweep: object, where: str) -> Sweep:
    if not (isinstance(sweep, dict) and sweep and all(map(_whole_numbers, sweep.values()))):
        raise UsageError(f"{where}: sweep is a table of lists of whole numbers, {{ BK = [8, 16] }}")
    return sweep


def _whole_numbers(values: object) -> bool:
    return isinstance(values, list) and values and all(type(value) is int and value >= 0 for value in values)


def selection(
    patterns: Sequence[str],
    shapes: str = "",
    dtypes: Sequence[str] = (),
    layouts: Sequence[str] = (),
    sweep: Sweep | None = None,
) -> list[Group]:
    """The groups that a command line names: variants by glob, on the shapes given or each operation's default.

    `library/...` patterns stand for the library rows alone, of the dtypes and layouts given.
    """
    if patterns and all(p.startswith("library/") for p in patterns):
        return library_selection(patterns, shapes, dtypes or ("fp32",), layouts or ("NN",))
    variants = select(patterns)
    variants = [v for v in variants if not dtypes or v.type.dtype in dtypes or v.type.name in dtypes]
    variants = [v for v in variants if not layouts or not v.layout or v.layout in layouts]
    if not variants:
        raise UsageError(
            f"no variant of {' '.join(patterns) or 'the catalog'} has dtype {'/'.join(dtypes) or 'any'} and layout "
            f"{'/'.join(layouts) or 'any'}; `lowlevel list` shows what there is"
        )
    return group(swept(variants, sweep or {}), shapes)


def library_selection(
    patterns: Sequence[str], shapes: str, dtypes: Sequence[str], layouts: Sequence[str]
) -> list[Group]:
    """Library rows without any kernel. `library/copy` needs a shape of two numbers."""
    groups = []
    for shape in parse_shape(shapes or DEFAULT_SHAPES["gemm"]):
        for name in dtypes:
            if name not in TYPES:
                raise UsageError(f"no dtype '{name}'; there are: {', '.join(TYPES)}")
            if "library/copy" in patterns:
                groups.append(_library_group(Copy(*(shape * 2)[:2], MOVE32)))
                continue
            cube = shape * 3 if len(shape) == 1 else shape
            if len(cube) != 3:
                raise UsageError("a library's gemm takes shapes MxNxK or a single number")
            groups += [_library_group(Gemm(*cube, TYPES[name], layout)) for layout in layouts]
    return groups


def group(variants: Sequence[Variant], shapes: str) -> list[Group]:
    """Variants that compute the same problem, gathered; each with the library calls that compute it too."""
    found: dict[Problem, list[Variant]] = {}
    for variant in variants:
        operation = variant.kernel.operation
        text = shapes or DEFAULT_SHAPES.get(operation, "")
        for shape in parse_shape(text) if text else [()]:
            found.setdefault(make_problem(variant, shape), []).append(variant)
    return [
        Group(problem, tuple(members), _library_group(problem).libraries, _yardsticks(problem))
        for problem, members in found.items()
    ]


def _library_group(problem: Problem) -> Group:
    return Group(problem, (), tuple(c.name for c in library.contenders_of(problem)))


def _yardsticks(problem: Problem) -> tuple[Variant, ...]:
    """Our own copy kernels, for what a transpose is measured against: they move whole 32-bit words of any type."""
    if problem.operation != "transpose" or problem.operands()[0].nbytes % 4:
        return ()
    return tuple(kernel.variants()[0] for kernel in catalog.kernels() if kernel.operation == "copy")


def _wanted(value: str, allowed: Sequence[str] | None) -> bool:
    return not allowed or not value or value in allowed
