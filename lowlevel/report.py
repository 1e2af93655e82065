"""Tables of rows: for the terminal, for Markdown, and in the README between markers."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from lowlevel import paths, terminal
from lowlevel.catalog import ladder
from lowlevel.errors import UsageError
from lowlevel.results import Results, Row, runs

_LADDER = re.compile(r"(<!-- lowlevel:ladder -->\n).*?(<!-- /lowlevel:ladder -->)", re.DOTALL)
_MARKER = re.compile(r"(<!-- lowlevel:table (\S+) (\S+) -->\n).*?(<!-- /lowlevel:table -->)", re.DOTALL)


def _number(digits: int) -> Callable[[object], str]:
    return lambda value: f"{value:.{digits}f}"


def _error(row: Row) -> str | None:
    if row.max_error is None:
        return None
    return "exact" if not row.error_bound else f"{row.max_error:.1e} / {row.error_bound:.1e}"


def _library_ratio(row: Row) -> str | None:
    """The ratio with its interval; nothing for a row that is the best library itself."""
    if row.vs_best_library is None:
        return None
    interval = "" if row.ratio_low is None else f" [{row.ratio_low:.3f}, {row.ratio_high:.3f}]"
    return f"{row.vs_best_library:.3f}{interval}"


def row_name(row: Row) -> str:
    """`gemm/02_tiled`, and the configuration where another row may differ in it alone."""
    told = row.language == "library" or row.chosen_by in ("sweep", "named")
    return f"{row.variant} ({row.config})" if told and row.config else row.variant


#: heading -> how a row fills it. A column that no row fills is left out.
COLUMNS: dict[str, Callable[[Row], str | None]] = {
    "variant": row_name,
    "language": lambda r: "" if r.language == "library" else r.language,
    "arch": lambda r: r.arch or None,
    "chosen": lambda r: f"{r.config}, {r.chosen_by}" if r.chosen_by.startswith(("tuned", "model")) else None,
    "us": lambda r: _present(r.median_us, _number(1)),
    "TFLOP/s": lambda r: _present(r.tflops, _number(1)),
    "GB/s": lambda r: _present(r.gb_per_s, _number(0)) if r.tflops is None else None,
    "% of peak": lambda r: _present(r.percent_of_peak, _number(1)),
    "x cuBLAS": lambda r: _present(r.vs_cublas, _number(3)),
    "x best library": _library_ratio,
    "error / bound": _error,
    "regs": lambda r: _present(r.registers, str),
    "shared": lambda r: _present(r.shared_bytes, str),
    "MHz": lambda r: _present(r.sm_clock_mhz, _number(0)),
    "W": lambda r: _present(r.power_w, _number(0)),
    "held back by": lambda r: r.throttle_reasons or None,
    "status": lambda r: None if r.status == "ok" else f"{r.status}: {r.reason}",
}
#: Columns of the README's tables; the rest stands in the results file.
SHORT = ("variant", "language", "us", "TFLOP/s", "GB/s", "% of peak", "x cuBLAS", "x best library", "status")


def _present(value: object, text: Callable[[object], str]) -> str | None:
    return None if value is None else text(value)


@dataclass(frozen=True)
class Beside:
    """A column from elsewhere: its heading, and what it says beside a row."""

    heading: str
    text: Callable[[Row], str | None]


def table(
    rows: Sequence[Row],
    columns: Sequence[str] = tuple(COLUMNS),
    markdown: bool = False,
    beside: Beside | None = None,
    width: int | None = None,
) -> str:
    """One table; the baseline's own ratio column reads 1.000. `beside` follows the rates. width: of a terminal."""
    filled = {}
    for name in columns:
        filled[name] = [COLUMNS[name](row) for row in rows]
        if beside and name == "GB/s":
            filled[beside.heading] = [beside.text(row) for row in rows]
    filled = {name: values for name, values in filled.items() if any(v not in (None, "") for v in values)}
    filled = {name: ["" if v is None else v for v in values] for name, values in filled.items()}
    right = [n for n in filled if n not in ("variant", "language", "arch", "chosen", "held back by", "status")]
    if not markdown:
        return terminal.fitted(filled, width, right)
    align = ["right" if name in right else "left" for name in filled]
    return tabulate(filled, "keys", tablefmt="github", colalign=align, disable_numparse=True)


def title(row: Row) -> str:
    """`gemm 4096 x 4096 x 4096, bf16, NT`."""
    sizes = " x ".join(str(n) for n in (row.m, row.n, row.k) if n is not None)
    words = [f"{row.op} {sizes}".strip(), row.dtype, row.layout]
    if row.epilogue not in ("", "none"):
        words.append(row.epilogue)
    return ", ".join(w for w in words if w)


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of one operation, shape, type and layout together, in the order in which they came; probes in one group."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault("probes" if row.op == "probe" else title(row), []).append(row)
    return groups


def tables(
    rows: Sequence[Row],
    markdown: bool = False,
    columns: Sequence[str] = tuple(COLUMNS),
    beside: Beside | None = None,
    width: int | None = None,
) -> str:
    """A titled table for each group. width: of the terminal that they are for."""
    heading = "#### {}\n\n{}" if markdown else "{}\n{}"
    parts = []
    for name, members in grouped(rows).items():
        if name == "probes":
            parts.append(heading.format("Probes of the launch layer", probes(members, markdown, width)))
        else:
            parts.append(heading.format(name, table(members, columns, markdown, beside, width)))
    return "\n\n".join(parts)


def probes(rows: Sequence[Row], markdown: bool = False, width: int | None = None) -> str:
    lines = [[row.variant, row.arch, row.status, row.reason] for row in rows]
    headings = ["probe", "arch", "verdict", ""]
    if markdown:
        return tabulate(lines, headings, tablefmt="github")
    return terminal.fitted(dict(zip(headings, zip(*lines, strict=True), strict=True)), width)


def matrix(rows: Sequence[Row], value: Callable[[Row], str | None], markdown: bool = True) -> str:
    """Variants down, shapes across: `value` of each row."""
    shapes = list(dict.fromkeys(shape_text(r) for r in rows))
    names = list(dict.fromkeys((_rung(r), r.language, r.dtype, r.layout) for r in rows))
    cells = {((_rung(r), r.language, r.dtype, r.layout), shape_text(r)): value(r) for r in rows}
    lines = [
        [variant, "" if language == "library" else language, dtype, *(cells.get((key, s)) or "" for s in shapes)]
        for key in names
        for variant, language, dtype, _ in [key]
    ]
    style = "github" if markdown else "simple"
    align = ("left", "left", "left", *["right"] * len(shapes))
    return tabulate(lines, ["variant", "language", "type", *shapes], style, colalign=align, disable_numparse=True)


def _rung(row: Row) -> str:
    """What stands for a row where all shapes share a line: with its epilogue, and without a library's algorithm."""
    name = row.variant if row.language == "library" else row_name(row)
    return name if row.epilogue in ("", "none") else f"{name} + {row.epilogue}"


def shape_text(row: Row) -> str:
    """`4096` for a cube or a square, else `2048x2304x768`."""
    numbers = [n for n in (row.m, row.n, row.k) if n is not None]
    return str(numbers[0]) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


def _rate_and_ratio(row: Row) -> str | None:
    rate = _present(row.tflops, _number(1)) or _present(row.gb_per_s, _number(0))
    if rate is None:
        return row.status
    return rate if row.vs_cublas is None else f"{rate} ({row.vs_cublas:.2f})"


def products(rows: Sequence[Row]) -> str:
    """A line for each kernel's product of each shape, type and layout, the libraries' rates beside its own, in TFLOP/s,
    and the share of what mma.sync reaches with its operands in registers, where the probe of that type ran, too."""
    ceilings = {r.dtype: r.tflops for r in rows if r.variant == "probe/mma_ceiling" and r.tflops}
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        if row.op == "gemm":
            groups.setdefault((title(row), row.accumulate), []).append(row)
    lines = []
    for members in groups.values():
        libraries = {r.variant: r.tflops for r in members if r.language == "library" and r.tflops}
        for row in members:
            if row.language != "library":
                best = max(libraries.values(), default=None)
                lines.append([*_product(row), libraries.get("library/cublas"), best, _of_ceiling(row, ceilings)])
    headings = ["shape", "type", "layout", "variant", "language", "configuration", "us", "TFLOP/s"]
    headings += ["x cuBLAS", "x best library", "cuBLAS", "best library", "of mma.sync's ceiling"]
    filled = [[f"{v:.1f}" if isinstance(v, float) else ("" if v is None else v) for v in line] for line in lines]
    columns = len(headings) if any(line[-1] for line in filled) else len(headings) - 1  # without a probe, no ceiling
    align = ("left",) * 6 + ("right",) * (columns - 6)
    filled = [line[:columns] for line in filled]
    return tabulate(filled, headings[:columns], "github", colalign=align, disable_numparse=True)


def _product(row: Row) -> list[str | float | None]:
    """What a product is, by which kernel, and how fast: columns of `products`."""
    dtype = row.dtype if row.accumulate != "fp16" else f"{row.dtype}, fp16 sums"
    name = row.variant if row.epilogue in ("", "none") else f"{row.variant} + {row.epilogue}"
    rates = [COLUMNS["us"](row) or row.status, row.tflops, COLUMNS["x cuBLAS"](row)]
    ratio = _present(row.vs_best_library, _number(3))
    return [shape_text(row), dtype, row.layout, name, row.language, row.config, *rates, ratio]


def _of_ceiling(row: Row, ceilings: Mapping[str, float]) -> str | None:
    """`0.68`: only where products are of the probe's type and their sums fp32, as the probe's."""
    if row.accumulate != "fp32" or row.dtype not in ceilings or not row.tflops:
        return None
    return f"{row.tflops / ceilings[row.dtype]:.2f}"


def accuracy(rows: Sequence[Row]) -> str:
    """A line for each product of each shape, libraries too: rates beside errors, the nearest to its bound and the root
    of the mean square, as a part of C's. For types whose sums a kernel may keep in more ways than one."""
    lines = [
        [
            shape_text(row),
            _rung(row),
            row.config,
            COLUMNS["us"](row) or row.status,
            COLUMNS["TFLOP/s"](row),
            _library_ratio(row),
            COLUMNS["error / bound"](row),
            _present(row.rms_error, "{:.2e}".format),
        ]
        for row in rows
    ]
    headings = ["shape", "variant", "configuration", "us", "TFLOP/s", "x best library", "error / bound", "rms error"]
    filled = [[("" if value is None else value) for value in line] for line in lines]
    align = ("left",) * 3 + ("right",) * 5
    return tabulate(filled, headings, "github", colalign=align, disable_numparse=True)


def launches(rows: Sequence[Row]) -> str:
    """A line for each product that a kernel was chosen for, beside the fastest library: the ratio with its interval as
    it is launched, and without programmatic launch where that was measured too."""
    lines = []
    for members in grouped([row for row in rows if row.op == "gemm"]).values():
        best = max((r.tflops for r in members if r.language == "library" and r.tflops), default=None)
        plain = {r.variant: r for r in members if r.chosen_by == "named" and "PDL=0" in r.config}
        for row in members:
            if row.language == "library" or row.chosen_by == "named" or row.status != "ok":
                continue
            how = "programmatically" if re.search(r"PDL=[1-9]", row.config) else "plainly"
            beside = plain.get(row.variant)
            without = _library_ratio(beside) if beside and how != "plainly" else None
            known = [shape_text(row), row.dtype, row.layout, row.variant, COLUMNS["us"](row), COLUMNS["TFLOP/s"](row)]
            lines.append([*known, _present(best, _number(1)), _library_ratio(row), how, without or ""])
    headings = ["shape", "type", "layout", "variant", "us", "TFLOP/s", "best library", "x best library", "launched"]
    align = ("left",) * 4 + ("right",) * 4 + ("left", "right")
    return tabulate(lines, [*headings, "launched plainly"], "github", colalign=align, disable_numparse=True)


#: `ahead`: how much one shape may count in a mean, and the sides from which on a shape is a large one.
MOST_COUNTED, LARGE = 1.15, 2048


def ahead(rows: Sequence[Row]) -> str:
    """A line for each kernel, type and layout: geometric means of the ratios to the best library over the shapes whose
    rows are multiples of 16 bytes, each counted at most MOST_COUNTED; over those with no side below LARGE; and the
    shapes whose interval lies below 1. Once with the configurations that were chosen, and once without programmatic
    launch: with the rows of PDL=0 in place of those, where there are any."""
    found: dict[tuple, dict[str, list[Row]]] = {}
    for row in rows:
        if row.op == "gemm" and row.language != "library" and row.vs_best_library and _whole_rows(row):
            shapes = found.setdefault((row.variant, row.language, row.dtype, row.layout), {})
            shapes.setdefault(shape_text(row), []).append(row)
    lines = []
    for key, shapes in found.items():
        chosen = [next((r for r in members if r.chosen_by != "named"), members[0]) for members in shapes.values()]
        plain = [next((r for r in members if "PDL=0" in r.config), members[0]) for members in shapes.values()]
        lines.append([*key, "as chosen", *_ahead(chosen)])
        if plain != chosen:
            lines.append([*key, "no programmatic launch", *_ahead(plain)])
    headings = ["variant", "language", "type", "layout", "launched", "shapes", f"mean, each at most {MOST_COUNTED}"]
    headings += [f"mean, sides of {LARGE} and more", "interval below 1"]
    align = ("left",) * 5 + ("right",) * 3 + ("left",)
    return tabulate(lines, headings, "github", colalign=align, disable_numparse=True)


def _whole_rows(row: Row) -> bool:
    return all(n % 8 == 0 for n in (row.m, row.n, row.k))


def _ahead(rows: Sequence[Row]) -> list[str]:
    ratios = [min(row.vs_best_library, MOST_COUNTED) for row in rows]
    large = [row.vs_best_library for row in rows if min(row.m, row.n, row.k) >= LARGE]
    below = [shape_text(row) for row in rows if row.ratio_high is not None and row.ratio_high < 1]
    return [str(len(rows)), _mean(ratios), _mean(large), ", ".join(below) or "none"]


#: What a marker in the README may ask for: which rows, and how they are shown.
VIEWS: dict[str, Callable[[Sequence[Row]], str]] = {
    "ladder": lambda rows: matrix([r for r in rows if r.op == "gemm" and r.dtype == "fp32"], _rate_and_ratio),
    "tensor": lambda rows: matrix([r for r in rows if r.op == "gemm" and r.dtype != "fp32"], _rate_and_ratio),
    "products": products,
    "launches": launches,
    "ahead": ahead,
    "fp8": lambda rows: accuracy([r for r in rows if r.op == "gemm" and r.dtype == "fp8"]),
    "libraries": lambda rows: matrix(
        [r for r in rows if r.op == "gemm" and r.language == "library" and r.dtype != "fp32"], _rate_and_ratio
    ),
    "epilogues": lambda rows: matrix([r for r in rows if r.op == "gemm" and r.epilogue != "none"], _rate_and_ratio),
    "moves": lambda rows: matrix([r for r in rows if r.op in ("transpose", "copy")], _rate_and_ratio),
    "probes": lambda rows: probes([r for r in rows if r.op == "probe"], markdown=True),
}


def means(suites: Mapping[str, Sequence[Row]], markdown: bool = False) -> str:
    """Geometric means of the ratios over each suite's shapes, suites side by side, a line for each kernel, type and
    layout: `0.631 (13)` is the mean over 13 rows. Empty where no suite has a kernel with ratios at two shapes."""
    found = {name: _ratios(rows) for name, rows in suites.items()}
    keys = list(dict.fromkeys(key for ratios in found.values() for key in ratios))
    lines = []
    for key in keys:
        cells = [_mean(values) for ratios in found.values() for values in ratios.get(key, ([], []))]
        lines.append([*key, *cells])
    if not any(len(values[0]) > 1 for ratios in found.values() for values in ratios.values()):
        return ""
    headings = [f"{name}: {what}" for name in found for what in ("x cuBLAS", "x best library")]
    align = ("left",) * 4 + ("right",) * len(headings)
    style = "github" if markdown else "simple"
    return tabulate(
        lines, ["variant", "language", "type", "layout", *headings], style, colalign=align, disable_numparse=True
    )


def _ratios(rows: Sequence[Row]) -> dict[tuple, tuple[list[float], list[float]]]:
    """(variant, language, type, layout) -> its ratios to cuBLAS and to the best library; kernels' gemm rows alone."""
    found: dict[tuple, tuple[list[float], list[float]]] = {}
    for row in rows:
        own = row.op == "gemm" and row.language != "library" and row.status == "ok"
        if own and row.vs_cublas is not None and row.vs_best_library is not None:
            usual, best = found.setdefault((_rung(row), row.language, row.dtype, row.layout), ([], []))
            usual.append(row.vs_cublas)
            best.append(row.vs_best_library)
    return found


def _mean(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"{math.exp(math.fsum(map(math.log, ratios)) / len(ratios)):.3f} ({len(ratios)})"


def partner(suite: str) -> str:
    """The suite of seeded shapes that belongs to a suite, and the other way round: `x` and `x-seeded`."""
    return suite.removesuffix("-seeded") if suite.endswith("-seeded") else f"{suite}-seeded"


def means_beside(suite: str, rows: Sequence[Row], folder: Path) -> str:
    """`means` of a run, beside those of its partner's results where they lie in the same folder."""
    path = folder / f"{partner(suite)}.json"
    suites = {suite: rows}
    with contextlib.suppress(UsageError):  # a comparison must not stop a measurement from being saved
        suites[path.stem] = Results.load(path).rows
    return means(dict(sorted(suites.items())))


def environment_line(results: Results) -> str:
    """`NVIDIA H200, driver 580.1, CUDA 13.0, cuBLAS 13.1.0, NVRTC 13.0, 2026-01-01`."""
    e = results.environment
    parts = [e.get("gpu"), f"driver {e.get('driver')}", f"CUDA {e.get('cuda_driver')}", f"cuBLAS {e.get('cublas')}"]
    return ", ".join([*filter(None, parts), str(e.get("nvrtc")), str(e.get("date", ""))[:10]])


def update_markers(text: str, results: Mapping[str, Results]) -> str:
    """The text with each `<!-- lowlevel:table FILE VIEW -->` block filled from that file's rows, and the
    `<!-- lowlevel:ladder -->` block from the catalog.

    FILE is `<gpu>/<suite>` below bench/results. Raises UsageError for a file or view that does not exist.
    """

    def fill(match: re.Match) -> str:
        name, view = match[2], match[3]
        if name not in results:
            raise UsageError(f"README asks for bench/results/{name}.json, which does not exist")
        found = results[name]
        if view == "means":
            suites = {key.partition("/")[2]: results[key].rows for key in (name, partner(name)) if key in results}
            return f"{match[1]}{means(suites, markdown=True)}\n\n{environment_line(found)}\n{match[4]}"
        if view not in VIEWS:
            raise UsageError(f"README asks for a view '{view}'; there are: {', '.join(VIEWS)}, means")
        return f"{match[1]}{VIEWS[view](found.rows)}\n\n{environment_line(found)}\n{match[4]}"

    text = _LADDER.sub(lambda match: f"{match[1]}{ladder.markdown()}\n{match[2]}", text)
    return _MARKER.sub(fill, text)


def committed(root: Path) -> dict[str, Results]:
    """`<gpu>/<suite>` -> the committed results below `root`, without the runs before the last."""
    files = [p for p in sorted(root.glob("*/*.json")) if not re.search(r"\.\d\.json$", p.name)]
    return {f"{p.parent.name}/{p.stem}": Results.load(p) for p in files}


def agreement(path: Path) -> list[tuple[str, float, list[float]]]:
    """(row, largest relative distance, ratios) of vs_cublas over the runs kept beside a results file, worst first."""
    found: dict[str, list[float]] = {}
    for file in runs(path):
        for row in Results.load(file).rows:
            if row.vs_cublas is not None:
                key = f"{title(row)}: {row.language} {row.variant}"
                found.setdefault(key, []).append(row.vs_cublas)
    spread = [(key, max(values) / min(values) - 1, values) for key, values in found.items()]
    return sorted(spread, key=lambda item: -item[1])


def readme_tables(check: bool = False) -> bool:
    """Fills the README's tables from the committed results; True when they said something else before.

    check: leaves the file as it is. Raises UsageError outside a checkout, where there is no README.
    """
    readme = paths.kernel_root() / "README.md"
    try:
        text = readme.read_text()
    except OSError:
        raise UsageError("no README here: its tables are made in a checkout of the repository") from None
    filled = update_markers(text, committed(paths.results_root()))
    if filled != text and not check:
        readme.write_text(filled)
    return filled != text


def main() -> None:
    """`python -m lowlevel.report`: what `lowlevel report` does without arguments."""
    readme_tables()


if __name__ == "__main__":
    main()
