"""Plots of a results file: the roofline and the ladder. Each is a matplotlib figure, saved as PNG and SVG.

Colours are Okabe and Ito's, which colour-blind readers tell apart; languages differ by marker as well. The same rows
give the same SVG, byte for byte.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lowlevel import dtypes, hardware, report
from lowlevel.errors import MissingError, UsageError
from lowlevel.hardware import Limits
from lowlevel.results import Results, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
TYPE_COLOURS = {
    "fp32": "#000000",
    "tf32": "#009E73",
    "fp16": "#E69F00",
    "bf16": "#0072B2",
    "fp8": "#CC79A7",
    "int8": "#56B4E9",
}
LANGUAGE_COLOURS = {"cuda": "#0072B2", "ptx": "#E69F00", "mlir": "#009E73"}
LANGUAGE_NAMES = {"cuda": "CUDA C++", "ptx": "PTX", "mlir": "MLIR", "library": "library"}
LANGUAGE_MARKERS = {"cuda": "o", "ptx": "s", "mlir": "^", "library": "D"}
_OTHER = "#666666"
_LIBRARY_NAMES = {
    "library/cublas": "cuBLAS",
    "library/cublaslt": "cuBLASLt",
    "library/cublaslt_promoted": "cuBLASLt, promoted",
    "library/copy": "driver's copy",
}
_STYLE = {
    "svg.hashsalt": "lowlevel",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}


def figure_class():
    """matplotlib's Figure, which draws without a screen. MissingError where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingError("matplotlib is missing, which draws the plots: pip install matplotlib") from None
    return Figure


def style():
    """The settings that every figure here is made and saved under."""
    figure_class()
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes `stem`.png and `stem`.svg; without a date, so that the same figure is the same file."""
    written = []
    with style():
        for ending in formats:
            path = stem.with_name(f"{stem.name}.{ending}")
            metadata = {"Date": None} if ending == "svg" else {}
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, dpi=150, metadata=metadata)
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with --out") from None
            written.append(path)
    return written


def limits_of(environment: Mapping) -> Limits:
    """The GPU that a results file was measured on: rates of its capability, its own SMs and clocks.

    Raises UsageError where neither the file nor the table of GPUs knows the memory bus.
    """
    number = str(environment["arch"]).removeprefix("sm_")
    bus = environment.get("memory_bus_bits") or hardware.find(str(environment["gpu"])).memory_bus_bits
    return dataclasses.replace(
        hardware.typical(environment["arch"]),
        name=environment["gpu"],
        capability=(int(number[:-1]), int(number[-1])),
        sms=environment["sms"],
        sm_clock_mhz=environment["sm_clock_max_mhz"],
        memory_clock_mhz=environment["memory_clock_max_mhz"],
        memory_bus_bits=bus,
    )


def intensity(row: Row) -> float | None:
    """FLOP per byte, of the bytes that memory must move at least; None for a row without FLOP, or not measured."""
    return row.tflops * 1e3 / row.gb_per_s if row.tflops and row.gb_per_s else None


def peaks(rows: Sequence[Row], limits: Limits) -> dict[float, list[str]]:
    """TFLOP/s -> the types among `rows` whose unit has that peak, lowest first."""
    found: dict[float, list[str]] = {}
    units = {t.dtype: t.unit for t in dtypes.TYPES.values()}
    for dtype in dict.fromkeys(r.dtype for r in rows):
        peak = hardware.peak(limits, units.get(dtype, dtype))
        if peak is not None:
            found.setdefault(peak / 1e12, []).append(dtype)
    return dict(sorted(found.items()))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places nearest to the wanted ones, in their order, at least `gap` apart, within low..high while they fit."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    places = [wanted[i] for i in order]
    for i, place in enumerate(places):
        places[i] = max(place, low if i == 0 else places[i - 1] + gap)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], high if i == len(places) - 1 else places[i + 1] - gap)
    found = [0.0] * len(places)
    for i, place in zip(order, places, strict=True):
        found[i] = place
    return found


def rung(variant: str) -> str:
    """`gemm/02_tiled` -> `02 tiled`; a library by its own spelling."""
    return _LIBRARY_NAMES.get(variant) or variant.rsplit("/", 1)[-1].replace("_", " ")


# --- the roofline


def roofline(results: Results) -> Figure:
    """Every right row with a rate in FLOP: its intensity against its TFLOP/s, under the GPU's roofs.

    Raises UsageError when no row has one. The intensity counts each operand once; a kernel that reads them again
    from memory has less, so a point below the slope is bound by memory for certain, one right of it perhaps.
    """
    limits = limits_of(results.environment)
    rows = [r for r in results.rows if r.status == "ok" and intensity(r)]
    if not rows:
        raise UsageError("no row has both FLOP and a time: there is no roofline to draw")
    with style():
        figure = figure_class()(figsize=(9.5, 6.2))
        axes = figure.add_axes((0.08, 0.2, 0.75, 0.72))
        axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of device memory, at least", ylabel="TFLOP/s")
        axes.set_title(f"Roofline of {results.environment['gpu']}: {_suite(results)}")
        roofs = peaks(rows, limits)
        left, right, label_x = _roofline_frame(axes, rows, roofs, limits)
        _draw_roofs(axes, roofs, hardware.bandwidth(limits), left, right)
        for row in rows:
            colour = TYPE_COLOURS.get(row.dtype, _OTHER)
            hollow = row.language == "library"
            axes.plot(
                intensity(row),
                row.tflops,
                LANGUAGE_MARKERS.get(row.language, "x"),
                color=colour,
                markerfacecolor="none" if hollow else colour,
                markersize=5,
            )
        _label_rungs(axes, rows, label_x)
        _legend(figure, rows)
        _footer(figure, results)
    return figure


def _roofline_frame(axes: Axes, rows: Sequence[Row], roofs: Mapping, limits: Limits) -> tuple[float, float, float]:
    """Sets the limits: room on the left for the memory's slope, on the right for names. (left, right, names' x)."""
    xs, ys = [intensity(r) for r in rows], [r.tflops for r in rows]
    ridges = [1e12 * peak / hardware.bandwidth(limits) for peak in roofs]
    left = min([*xs, *ridges]) / 2.5
    label_x = max([*xs, *ridges]) * 1.35
    axes.set_xlim(left, label_x * 5)
    top = max([*roofs, *ys])
    axes.set_ylim(min([*ys, left * hardware.bandwidth(limits) / 1e12]) / 1.6, top * 1.6)
    return left, label_x * 5, label_x


def _draw_roofs(axes: Axes, roofs: Mapping[float, list[str]], bandwidth: float, left: float, right: float) -> None:
    """The memory's slope up to the highest peak, and each peak from where the slope meets it."""
    slope = bandwidth / 1e12
    end = max(roofs, default=slope * right) / slope
    axes.plot([left, end], [slope * left, slope * end], color=_OTHER, linewidth=1)
    middle = math.sqrt(left * end)
    axes.annotate(
        f"memory, {bandwidth / 1e9:.0f} GB/s",
        (middle, slope * middle),
        (-4, 4),
        textcoords="offset points",
        rotation=_slope_angle(axes),
        rotation_mode="anchor",
        ha="center",
        va="bottom",
        color=_OTHER,
    )
    for peak, names in roofs.items():
        colour = TYPE_COLOURS.get(names[0], _OTHER)
        axes.plot([peak / slope, right], [peak, peak], color=colour, linewidth=1)
    low, high = axes.get_ylim()
    places = spread([_fraction(p, low, high) for p in roofs], 0.035, 0.0, 1.0)
    for (peak, names), place in zip(roofs.items(), places, strict=True):
        text = f"{', '.join(names)} peak {peak:.0f}"
        axes.text(1.01, place, text, transform=axes.transAxes, va="center", color=TYPE_COLOURS.get(names[0], _OTHER))


def _slope_angle(axes: Axes) -> float:
    """Degrees on the page of a line that rises by as many decades as it runs."""
    (x0, x1), (y0, y1) = (map(math.log10, limits) for limits in (axes.get_xlim(), axes.get_ylim()))
    box, (width, height) = axes.get_position(), axes.figure.get_size_inches()
    return math.degrees(math.atan2(box.height * height / (y1 - y0), box.width * width / (x1 - x0)))


def _fraction(value: float, low: float, high: float) -> float:
    """Where a value lies on a logarithmic axis, 0 to 1."""
    return math.log(value / low) / math.log(high / low)


def _label_rungs(axes: Axes, rows: Sequence[Row], label_x: float) -> None:
    """The names of each type's slowest and fastest rung, in a column on the right; the ladder names the others."""
    named = ends_of_ladders(rows)
    low, high = axes.get_ylim()
    places = spread([_fraction(r.tflops, low, high) for r in named], 0.04, 0.02, 0.98)
    for row, place in zip(named, places, strict=True):
        y = low * (high / low) ** place
        colour = TYPE_COLOURS.get(row.dtype, _OTHER)
        axes.plot([intensity(row) * 1.06, label_x * 0.97], [row.tflops, y], color=colour, linewidth=0.5)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(label_x, y, f"{rung(row.variant)}, {row.dtype}", va="center", color=colour, bbox=box)


def ends_of_ladders(rows: Sequence[Row]) -> list[Row]:
    """For each type the slowest and the fastest of our rows, at the shape of highest intensity."""
    found: dict[str, Row] = {}
    for dtype in dict.fromkeys(r.dtype for r in rows):
        ours = [r for r in rows if r.dtype == dtype and r.language != "library"]
        most = max(map(intensity, ours), default=0.0)
        there = sorted((r for r in ours if intensity(r) > 0.99 * most), key=lambda r: r.tflops)
        for row in there[:1] + there[-1:]:
            found[f"{row.variant} {dtype}"] = row
    return list(found.values())


def _legend(figure: Figure, rows: Sequence[Row]) -> None:
    """Types by colour, languages by marker, below the axes."""
    from matplotlib.lines import Line2D

    types = [d for d in TYPE_COLOURS if any(r.dtype == d for r in rows)]
    languages = [name for name in LANGUAGE_MARKERS if any(r.language == name for r in rows)]
    keys = [Line2D([], [], color=TYPE_COLOURS[d], linewidth=4, label=d) for d in types]
    keys += [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=LANGUAGE_MARKERS[name],
            color=_OTHER,
            markerfacecolor="none" if name == "library" else _OTHER,
            label="cuBLAS and cuBLASLt" if name == "library" else LANGUAGE_NAMES[name],
        )
        for name in languages
    ]
    figure.legend(handles=keys, loc="lower left", bbox_to_anchor=(0.07, 0.05), ncols=len(keys), frameon=False)


# --- the ladder


@dataclasses.dataclass(frozen=True)
class Panel:
    """The bars of one problem: for each rung, the row of each language; and the library's row, drawn as a line."""

    title: str
    unit: str
    rungs: tuple[str, ...]
    languages: tuple[str, ...]
    bars: Mapping[tuple[str, str], Row]
    baseline: Row | None


def panels(rows: Sequence[Row], shape: str | None = None) -> list[Panel]:
    """A panel for each operation, type and layout that has a rung of ours, at one shape.

    shape: `4096` or `2048x2304x768`; `all` for every shape; None for the shape that most rows have, of those the
    largest. Raises UsageError for a shape that no row has, and when no rung was measured.
    """
    ours = [r for r in rows if r.op != "probe" and r.language in LANGUAGE_COLOURS and r.variant.split("/")[0] == r.op]
    if not ours:
        raise UsageError("no row of a kernel of ours: there is no ladder to draw")
    shapes = list(dict.fromkeys(report.shape_text(r) for r in ours))
    if shape is not None and shape != "all" and shape not in shapes:
        raise UsageError(f"no row has shape '{shape}'; there are: {', '.join(shapes)}, or all")
    found: dict[tuple, list[Row]] = {}
    for row in ours:
        found.setdefault((row.op, row.dtype, row.layout, row.epilogue), []).append(row)
    made = []
    for key, members in found.items():
        here = list(dict.fromkeys(report.shape_text(r) for r in members))
        chosen = here if shape == "all" else [shape or usual_shape(members)]
        made += [_panel(key, s, members, rows) for s in chosen if s in here]
    return made


def usual_shape(rows: Sequence[Row]) -> str:
    """4096 where there are rows of it, which every size of GPU fills; else the shape of most rows, then the largest."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for row in rows:
        text = report.shape_text(row)
        counts[text] = counts.get(text, 0) + 1
        sizes[text] = (row.m or 1) * (row.n or 1) * (row.k or 1)
    return "4096" if "4096" in counts else max(counts, key=lambda s: (counts[s], sizes[s]))


def _panel(key: tuple, shape: str, members: Sequence[Row], rows: Sequence[Row]) -> Panel:
    op, dtype, layout, epilogue = key
    bars: dict[tuple[str, str], Row] = {}
    for row in members:
        if report.shape_text(row) == shape:
            at = (row.variant, row.language)
            bars[at] = max(row, bars.get(at, row), key=lambda r: (r.status == "ok", rate(r) or 0))
    same = [r for r in rows if (r.op, r.dtype, r.layout, r.epilogue) == key and report.shape_text(r) == shape]
    libraries = {r.variant: r for r in same if r.language == "library" and r.status == "ok" and rate(r)}
    library = next((libraries[name] for name in _LIBRARY_NAMES if name in libraries), None)
    rungs = tuple(sorted({variant for variant, _ in bars}))
    languages = tuple(name for name in LANGUAGE_COLOURS if any(language == name for _, language in bars))
    words = [f"{op} {shape}", dtype, layout, "" if epilogue == "none" else epilogue]
    unit = "TFLOP/s" if op == "gemm" else "GB/s"
    return Panel(", ".join(w for w in words if w), unit, rungs, languages, bars, library)


def rate(row: Row) -> float | None:
    """TFLOP/s of a product, GB/s of a move."""
    return row.tflops if row.tflops is not None else row.gb_per_s


def ladder(results: Results, shape: str | None = None) -> Figure:
    """The rungs as bars, languages side by side, the library as a line; `shape` as in `panels`."""
    drawn = panels(results.rows, shape)
    columns = min(len(drawn), 3 if shape == "all" else 2)
    lines = math.ceil(len(drawn) / columns)
    widest = max(len(p.rungs) * len(p.languages) for p in drawn)
    width = max(4.2, 1.2 + 0.5 * widest) * columns
    height = 2.9 * lines + 1.1
    with style():
        figure = figure_class()(figsize=(max(7.5, width), height))
        grid = figure.subplots(lines, columns, squeeze=False)
        figure.subplots_adjust(
            left=0.75 / figure.get_figwidth(),
            right=1 - 0.2 / figure.get_figwidth(),
            bottom=1.15 / height,
            top=1 - 0.75 / height,
            hspace=0.55,
            wspace=0.25,
        )
        for axes, panel in zip(grid.flat, drawn, strict=False):
            _draw_panel(axes, panel)
        for axes in grid.flat[len(drawn) :]:
            axes.set_axis_off()
        title = f"The ladder on {results.environment['gpu']}: {_suite(results)}"
        figure.suptitle(title, x=0.02, y=1 - 0.12 / height, ha="left")
        _ladder_legend(figure, drawn)
        _footer(figure, results)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    width = 0.8 / len(panel.languages)
    highest = max([rate(r) or 0 for r in (*panel.bars.values(), panel.baseline) if r], default=0)
    for offset, language in enumerate(panel.languages):
        for at, name in enumerate(panel.rungs):
            row = panel.bars.get((name, language))
            x = at - 0.4 + width * (offset + 0.5)
            if row is None:
                continue
            if row.status != "ok" or not rate(row):
                axes.text(x, 0, f" {row.status}", rotation=90, ha="center", va="bottom", color="#D55E00")
                continue
            axes.bar(x, rate(row), width * 0.94, color=LANGUAGE_COLOURS[language])
            _bar_label(axes, x, rate(row), rate(row) > 0.15 * highest, language)
    if panel.baseline is not None:
        axes.axhline(rate(panel.baseline), color="black", linewidth=1)
        text = f"{rung(panel.baseline.variant)} {_digits(rate(panel.baseline))}"
        at = (0, rate(panel.baseline))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.annotate(text, at, (2, 5), xycoords=("axes fraction", "data"), textcoords="offset points", bbox=box)
    many = len(panel.rungs) > 4
    labels = [rung(name) for name in panel.rungs]
    axes.set_xticks(
        range(len(labels)), labels, rotation=30 if many else 0, ha="right" if many else "center", rotation_mode="anchor"
    )
    axes.tick_params(axis="x", length=0)
    margin = max(0.6, 1.2 - 0.5 * len(labels))
    axes.set_xlim(-margin, len(labels) - 1 + margin)
    axes.margins(y=0.16)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(panel.unit)
    axes.set_title(panel.title)


def _bar_label(axes: Axes, x: float, value: float, inside: bool, language: str) -> None:
    """The rate at the bar's top: inside it where there is room, so that the library's line does not cross it."""
    axes.annotate(
        _digits(value),
        (x, value),
        (0, -2 if inside else 1),
        textcoords="offset points",
        ha="center",
        va="top" if inside else "bottom",
        color="white" if inside and language == "cuda" else "black",
        fontsize=8,
    )


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _ladder_legend(figure: Figure, drawn: Sequence[Panel]) -> None:
    from matplotlib.patches import Patch

    there = [name for name in LANGUAGE_COLOURS if any(name in p.languages for p in drawn)]
    keys = [Patch(color=LANGUAGE_COLOURS[name], label=LANGUAGE_NAMES[name]) for name in there]
    place = (0.3 / figure.get_figwidth(), 0.3 / figure.get_figheight())
    figure.legend(handles=keys, loc="lower left", bbox_to_anchor=place, ncols=len(keys), frameon=False)


# --- both


def _suite(results: Results) -> str:
    return str(results.protocol.get("suite") or "selected variants")


def _footer(figure: Figure, results: Results) -> None:
    figure.text(0.02, 0.1 / figure.get_figheight(), report.environment_line(results), color=_OTHER, fontsize=8)
