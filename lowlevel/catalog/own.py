"""A file of one's own in the place of a catalog kernel's source: `my.cu as cuda:gemm/02_tiled BM=16`.

Such a name says everything about the kernel, so the process that owns the GPU makes the same one from the name alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from lowlevel.catalog.entry import LANGUAGES, Config, Expect, Kernel
from lowlevel.errors import UsageError

#: File ending -> language.
ENDINGS = {ending: language for language, (_, ending) in LANGUAGES.items()}

#: Compile-time numbers changed, by name.
Numbers = tuple[tuple[str, int], ...]

_NAME = re.compile(r"(?P<file>.+\.(?:cu|ptx|mlir)) as (?P<entry>\w+:[\w/]+)(?P<numbers>(?: \w+=\d+)*)(?:\[.*\])?")


@dataclass(frozen=True, eq=False)
class OwnKernel(Kernel):
    """A catalog kernel with another source. `file`: the path as given. `stands_for`: the kernel's label.

    `numbers`: what it changes of the kernel's configuration. The kernel's parameters, launch, types, layouts and rules
    stay; what its file was expected to contain, and which thread owns an element, are not asked of another's file.
    """

    file: str = ""
    stands_for: str = ""
    numbers: Numbers = ()

    @property
    def operation(self) -> str:
        return self.stands_for.partition(":")[2].split("/")[0]

    @property
    def rung(self) -> str:
        return self.stands_for.partition("/")[2]

    @property
    def path(self) -> str:
        """Absolute, so that it does not depend on the root that holds the catalog's kernels."""
        return str(Path(self.file).absolute())

    @property
    def label(self) -> str:
        return " ".join([f"{self.file} as {self.stands_for}", *(f"{name}={n}" for name, n in self.numbers)])

    @property
    def shown(self) -> str:
        return self.name


def derive(entry: Kernel, file: str, numbers: Numbers = ()) -> OwnKernel:
    """`file` in place of the entry's source. UsageError when there is no such file, or no such number to change."""
    ending = Path(file).suffix
    if ending not in ENDINGS:
        raise UsageError(f"'{file}' does not end in {', '.join(ENDINGS)}: the ending says the language")
    if not Path(file).is_file():
        raise UsageError(f"no file '{file}' in {Path.cwd()}" if not Path(file).is_absolute() else f"no file '{file}'")
    if unknown := set(dict(numbers)) - set(entry.configs[0]):
        raise UsageError(entry.lacks(sorted(unknown)[0]))

    def changed(configs: tuple[Config, ...]) -> tuple[Config, ...]:
        return ({**configs[0], **dict(numbers)},) if numbers else configs

    inherited = {f.name: getattr(entry, f.name) for f in fields(Kernel)}
    inherited.update(
        language=ENDINGS[ending],
        name=f"mine:{Path(file).name}",
        idea=f"a file of your own, in place of {entry.label}",
        configs=changed(entry.configs),
        type_configs={type_: changed(configs) for type_, configs in entry.type_configs.items()},
        expect=Expect(),
        owner=None,
        choose=None if numbers else entry.choose,
        space={},
        admits=None,
    )
    return OwnKernel(**inherited, file=file, stands_for=entry.label, numbers=tuple(numbers))


def parse(name: str) -> tuple[str, str, Numbers] | None:
    """(file, entry's label, numbers) of `my.cu as cuda:gemm/02_tiled BM=16[...]`; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    numbers = (text.split("=") for text in match["numbers"].split())
    return match["file"], match["entry"], tuple((key, int(value)) for key, value in numbers)


def is_own(word: str) -> bool:
    """Whether a word of the command line is a source file, or an own kernel's whole name."""
    return is_file_name(word) or parse(word) is not None


def is_file_name(word: str) -> bool:
    return word.endswith(tuple(ENDINGS))
