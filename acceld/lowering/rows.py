"""Lower ``np.apply_along_axis``, by applying the function of one row to all rows of an array together.

The function is traced once, with a single row. Then each node that depends on the row gets the axes of all rows before
its own axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from acceld.lowering.arrays import Traced, lowers, refused, wrapped
from acceld.lowering.graph import Graph, Node, View, dense, entry, root, whole


@lowers("apply_along_axis")
def _along(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    every: Any = wrapped(arr)
    at = axis % every.ndim
    given = wrapped(np.moveaxis(every, at, -1))
    row = entry("row", given.shape[-1:], given.view.dtype)
    found = wrapped(func1d(Traced(whole(row), given.kind), *args, **kwargs))
    made: Any = Traced(_Rows(row, given.view, found.view).view(found.view), found.kind)
    lead = given.ndim - 1
    return np.moveaxis(made, range(lead, made.ndim), range(at, at + found.ndim))


class _Rows:
    """The nodes of a function of one row, repeated for all rows.

    ``row`` is the input node for one row, ``rows`` is the view of all rows, and ``result`` is the function's result.
    """

    def __init__(self, row: Node, rows: View, result: View) -> None:
        self.row, self.rows, self.lead = row, rows, rows.shape[:-1]
        nodes = Graph((row,), (result,), ()).nodes()
        own = {id(row)}
        for node in nodes:
            if any(id(view.node) in own for view in node.views):
                own.add(id(node))
        arrays = {id(root(node)) for node in nodes if node.kind == "buffer" and id(node) in own}
        self.own = own | {id(node) for node in nodes if node.kind == "buffer" and id(root(node)) in arrays}
        self.made: dict[int, Node] = {}
        for node in nodes:
            if id(node) in self.own and node is not row:
                self.made[id(node)] = self._repeated(node)

    def _repeated(self, node: Node) -> Node:
        """Return a node that computes for all rows what ``node`` computes for one row."""
        if node.kind == "gather" and id(node.views[1].node) in self.own:
            refused(
                "indexing a row by an array of positions in np.apply_along_axis",
                "use np.take_along_axis on the whole array",
            )
        args = tuple(self.view(arg) if isinstance(arg, View) else arg for arg in node.args)
        return replace(node, args=args, shape=(*self.lead, *node.shape), target=self._target(node.target))

    def _target(self, target: View | None) -> View | None:
        """Return the target of a store for all rows, from its target for one row. Return None for None."""
        if target is None:
            return None
        held = target.node
        if id(held) not in self.made:
            self.made[id(held)] = replace(held, shape=(*self.lead, *held.shape))
        self.own.add(id(held))
        return self.view(target)

    def view(self, view: View) -> View:
        """Return a view of the values of all rows, from the view of the value of one row."""
        shape = (*self.lead, *view.shape)
        if id(view.node) not in self.own:
            return View(view.node, shape, (*(0 for _ in self.lead), *view.strides), view.offset)
        if view.node is self.row:
            *apart, step = self.rows.strides
            strides = (*apart, *(step * by for by in view.strides))
            return View(self.rows.node, shape, strides, self.rows.offset + step * view.offset)
        apart = [step * view.node.size for step in dense(self.lead)]
        return View(self.made[id(view.node)], shape, (*apart, *view.strides), view.offset)
