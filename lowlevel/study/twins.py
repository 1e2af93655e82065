"""Which of a kernel's variants stands beside one of another kernel."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.catalog.entry import Variant


def like(wanted: Variant, variants: Sequence[Variant]) -> Variant:
    """Of a twin's variants the one of the same type and layout, in the same configuration if it has it."""
    near = [v for v in variants if (v.type.name, v.layout) == (wanted.type.name, wanted.layout)] or variants
    same = [c for c in near[0].kernel.configs_of(near[0].type) if dict(c) == dict(wanted.config)]
    return near[0].with_config(**same[0]) if same else near[0]
