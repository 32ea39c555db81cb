"""Record, while a kernel is traced, what each expression of its source stands for: kind, shape, dtype and memory."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acceld.nki.frontend.core.index import Expr, Predicate
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.session import TraceOptions
from acceld.nki.frontend.tracing import Argument, _Statements, trace
from acceld.parsing import parse

NAME = "__acceld_fact__"
MOST_VISITS = 64
OBSERVED = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Name, ast.Attribute)


@dataclass(frozen=True, slots=True)
class Fact:
    """The facts that a trace found out about one value of an expression.

    - ``kind``: ``tile``, ``grid``, ``scalar`` (of loop variables), ``predicate``, ``number``, ``none`` or
      ``other``.
    - ``value``: the value of a number. For a predicate it is True if the predicate holds everywhere.
    """

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    space: str = ""
    partition_axis: int = 0
    """Number of the partition axis, for a whole tensor; -1 in HBM."""
    whole: bool = False
    value: float | int | bool | None = None


class Facts:
    """The facts that a trace found out about each expression of a source.

    An expression that had different values in the trace has one fact for each distinct value, in the order of the
    trace.
    """

    def __init__(self, visits: Mapping[str, Sequence[Fact]]) -> None:
        self._visits = visits

    @classmethod
    def decode(cls, raw: Mapping[str, Sequence[Sequence[Any]]]) -> Facts:
        """Return the facts from the data that :meth:`encode` returned."""
        return cls({key: [Fact(v[0], tuple(v[1]), *v[2:]) for v in visits] for key, visits in raw.items()})

    def encode(self) -> dict[str, list[list[Any]]]:
        """Return the facts as data that JSON can hold."""
        return {
            key: [[f.kind, list(f.shape), f.dtype, f.space, f.partition_axis, f.whole, f.value] for f in visits]
            for key, visits in self._visits.items()
        }

    def visits(self, node: ast.AST) -> Sequence[Fact]:
        """Return one fact for each distinct value of an expression, in the order of the trace; () if the trace never
        reached the expression.
        """
        return self._visits.get(key_of(node), ()) if hasattr(node, "lineno") else ()

    def of(self, node: ast.AST) -> Fact | None:
        """Return one fact with what all values of an expression have in common; None if the trace never reached the
        expression.

        A field in which the values differ is left empty.
        """
        visits = self.visits(node)
        if not visits:
            return None
        first = visits[0]
        if all(one == first for one in visits):
            return first

        def same(name: str) -> bool:
            return len({getattr(one, name) for one in visits}) == 1

        return Fact(
            first.kind if same("kind") else "scalar" if {v.kind for v in visits} == {"scalar", "number"} else "other",
            first.shape if same("shape") else (),
            first.dtype if same("dtype") else "",
            first.space if same("space") else "",
            first.partition_axis,
            first.whole and same("whole"),
            first.value if same("value") else None,
        )


def key_of(node: ast.AST) -> str:
    """Return the key of an expression in the facts: its position in the source and its class, because several nodes may
    have the same position.
    """
    at: Any = node
    return f"{at.lineno}:{at.col_offset}:{at.end_lineno}:{at.end_col_offset}:{type(node).__name__}"


def observe(
    source: str,
    arguments: Sequence[Argument],
    *,
    filename: str = "kernel.py",
    entry: str | None = None,
    grid: tuple[int, ...] = (),
    lnc: int = 1,
    chip: str = "trn1",
    options: TraceOptions = TraceOptions(),  # noqa: B008  # frozen
) -> Facts:
    """Trace a legacy kernel, and return the facts about every expression in its functions.

    Raises what :func:`acceld.nki.frontend.tracing.trace` raises, but without line numbers.
    """
    seen: dict[str, list[Fact]] = {}

    def record(key: str, value: object) -> object:
        visits = seen.setdefault(key, [])
        if len(visits) < MOST_VISITS:
            fact = _fact(value)
            if fact not in visits:
                visits.append(fact)
        return value

    watched = ast.unparse(ast.fix_missing_locations(_Watch().visit(_Statements(()).visit(parse(source)))))
    setattr(builtins, NAME, record)
    try:
        trace(watched, arguments, filename=filename, entry=entry, grid=grid, lnc=lnc, chip=chip, options=options)
    finally:
        delattr(builtins, NAME)
    return Facts(seen)


def _fact(value: object) -> Fact:
    if isinstance(value, Tensor):
        axis = value.declared.partition_axis
        return Fact("tile", value.shape, value.dtype_name, str(value.space), axis, value.whole)
    if isinstance(value, Expr):
        return Fact("grid", value.shape) if value.shape else Fact("scalar")
    if isinstance(value, Predicate):
        shape = max((expr.shape for expr, _ in value.terms), key=len)
        return Fact("predicate", shape, value=all(map(_always, value.terms)))
    if value is None:
        return Fact("none")
    if isinstance(value, bool | int | float | np.number | np.bool_):
        plain = value.item() if isinstance(value, np.generic) else value
        return Fact("number", value=plain if isinstance(plain, bool | int | float) else None)
    return Fact("other")


def _always(term: tuple[Expr, str]) -> bool:
    """Tell whether a comparison with zero holds at every position in every iteration.

    ``term`` is a pair: the compared expression, and the comparison (``ge``, ``gt``, ``le`` or ``lt``).
    """
    expr, word = term
    low, high = expr.bounds()
    return {"ge": low >= 0, "gt": low > 0, "le": high <= 0, "lt": high < 0}.get(word, False)


class _Watch(ast.NodeTransformer):
    """Rewrite a source so that each expression inside a function passes its value to a recorder, which returns
    the value.
    """

    def __init__(self) -> None:
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._depth += 1
        node.body = [self.visit(one) for one in node.body]
        self._depth -= 1
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        # the range call is not wrapped: the front end finds the loop's variable by the code that follows the call
        if isinstance(node.iter, ast.Call):
            node.iter.args = [self.visit(one) for one in node.iter.args]
            node.iter.keywords = [self.visit(one) for one in node.iter.keywords]
        else:
            node.iter = self.visit(node.iter)
        node.body = [self.visit(one) for one in node.body]
        node.orelse = [self.visit(one) for one in node.orelse]
        return node

    def visit_Global(self, node: ast.AST) -> ast.AST:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        if not self._depth or not isinstance(found, OBSERVED) or not hasattr(found, "lineno"):
            return found
        if isinstance(getattr(found, "ctx", None), ast.Store | ast.Del):
            return found
        key = key_of(copy.copy(node))
        return ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(key), found], [])
