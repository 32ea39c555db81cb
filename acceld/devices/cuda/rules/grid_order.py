"""Change the order in which programs run, so that programs that run at the same time load the same data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.devices.cuda.rules.reading import FunctionNode, TritonModule, program_number, walk
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Pair:
    first: str
    second: str
    last: ast.stmt


class GridOrder(Rule):
    """Number the programs of a two-dimensional grid in another order: in groups of rows, or row by row."""

    name = "grid_order"
    reason = "Programs start in order of their number, the first axis fastest. Numbered in groups of a few rows, the programs that run at one time touch a near-square part of the result and find their operands in the L2 cache."
    source = "Triton tutorial 03, L2 cache optimizations"
    apis = frozenset({"triton"})
    change_class = "loop_order"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each kernel with a grid of two axes that reads each of its two program numbers once."""
        for name, function in kernel.kernels.items():
            pair = _pair(kernel, name, function)
            if pair is not None:
                yield self.found(
                    pair.last.lineno,
                    partial(_renumbered, kernel, pair),
                    Variant("groups of 8", {"group": 8}),
                    Variant("groups of 4", {"group": 4}),
                    Variant("second axis fastest", {"group": 1}),
                    Variant("groups of 16", {"group": 16}),
                    precondition="each number of a program is read once, and the new numbers are a permutation of the old numbers",
                    plan=f"Programs of {name} run with {pair.first} fastest. Number them in groups of {pair.first}, or "
                    f"with {pair.second} fastest.",
                    benefit=0.3 if "tl.dot" in kernel.text(function) else 0.1,
                    gain_percent=(-5.0, 20.0),
                    key=name,
                )


def _renumbered(kernel: TritonModule, pair: _Pair, variant: Variant) -> str:
    """Return the source with new lines after the statements that read the program numbers. From these numbers, the
    new lines compute the numbers that the rest of the kernel uses.
    """
    group = int(variant.parameters["group"])
    order, start, size, span = (kernel.fresh(n) for n in ("order", "group_start", "group_size", "group_span"))
    lines = [
        f"{order} = {pair.first} + {pair.second} * tl.num_programs(0)",
        f"{span} = {group} * tl.num_programs(1)",
        f"{start} = {order} // {span} * {group}",
        f"{size} = tl.minimum(tl.num_programs(0) - {start}, {group})",
        f"{pair.first} = {start} + {order} % {span} % {size}",
        f"{pair.second} = {order} % {span} // {size}",
    ]
    edits = Edits(kernel.source)
    indent = kernel.indent(pair.last)
    edits.insert(kernel.lines_span([pair.last])[1], "".join(f"{indent}{line}\n" for line in lines))
    return edits.apply()


def _pair(kernel: TritonModule, name: str, function: FunctionNode) -> _Pair | None:
    """Return the names that a kernel gives to its program numbers of axes 0 and 1.

    The kernel has to read each of the two numbers once, in consecutive assignments. Return None for any other kernel,
    and for one that also reads another program number or a count of programs.
    """
    if any(len(launch.grid) != 2 for launch in kernel.launches if launch.kernel == name):
        return None
    asked = kernel.text(function)
    if asked.count("program_id(") != 2 or "num_programs(" in asked:
        return None
    numbers: dict[int, tuple[str, ast.stmt]] = {}
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            axis = program_number(statement.value)
            if axis is not None:
                numbers[axis] = (statement.targets[0].id, statement)
    if set(numbers) != {0, 1}:
        return None
    last = max((numbers[0][1], numbers[1][1]), key=lambda statement: statement.lineno)
    early = min((numbers[0][1], numbers[1][1]), key=lambda statement: statement.lineno)
    between = [one for one in walk(function.body) if early.lineno < one.lineno < last.lineno]
    return None if between else _Pair(numbers[0][0], numbers[1][0], last)


RULE = GridOrder()
