"""Integer formulas written as text, such as `8 * (lane / 16) ^ row % 8`: what is printed is what is computed."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence

from lowlevel.errors import UsageError

#: `/` divides as C divides integers that are not negative.
_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type, Callable[[int], int]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_OPERATORS = "+ - * / % ^ & | << >> ~"
_LONGEST = 200
_LARGEST = 1 << 40


class Formula:
    """An integer formula over named integers. Raises UsageError for what is none, when it is made.

    Operators are Python's and C's, with Python's precedence: `^` binds weaker than `+`, `*` and `%`, as in C.
    """

    def __init__(self, text: str, names: Sequence[str]):
        self.text, self.names = text, tuple(names)
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body if len(text) <= _LONGEST else None
        except (SyntaxError, ValueError):
            self._tree = None
        if self._tree is None:
            raise UsageError(f"'{text[:_LONGEST]}' is not a formula: write one as in '128 * lane + 16 * (lane / 8)'")
        self._check(self._tree)

    def __call__(self, **values: int) -> int:
        """Its value. Raises UsageError where it divides by zero or leaves the range of 40 bits."""
        return self._value(self._tree, values)

    @functools.cached_property
    def used(self) -> frozenset[str]:
        """The names that stand in it."""
        return frozenset(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))

    def _check(self, node: ast.AST) -> None:
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            self._check(node.left)
            self._check(node.right)
        elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            self._check(node.operand)
        elif isinstance(node, ast.Name):
            if node.id not in self.names:
                raise UsageError(f"no '{node.id}' in '{self.text}': a formula here knows {', '.join(self.names)}")
        elif not (isinstance(node, ast.Constant) and type(node.value) is int):
            shown = ast.unparse(node)
            raise UsageError(f"'{shown}' in '{self.text}': a formula has whole numbers, names and {_OPERATORS}")

    def _value(self, node: ast.AST, values: dict[str, int]) -> int:
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._value(node.operand, values))
        left, right = self._value(node.left, values), self._value(node.right, values)
        if isinstance(node.op, ast.LShift | ast.RShift) and not 0 <= right < 40:
            raise UsageError(f"'{self.text}' shifts by {right}")
        try:
            value = _BINARY[type(node.op)](left, right)
        except ZeroDivisionError:
            raise UsageError(f"'{self.text}' divides by zero where {_told(values)}") from None
        if abs(value) >= _LARGEST:
            raise UsageError(f"'{self.text}' leaves the range where {_told(values)}")
        return value


def _told(values: dict[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
