"""Run a fixed number of programs, each of which computes several tiles in a loop."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.devices.cuda.rules.reading import FunctionNode, Launch, TritonModule, program_number, returns_early, walk
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Tiles:
    launch: Launch
    numbers: tuple[ast.Assign, ...]
    """Statements that read the program numbers, one statement for each axis."""
    rest: tuple[ast.stmt, ...]


class Persistent(Rule):
    """Put a kernel's body into a loop over tiles. The new grid has as many programs as the GPU can run at the same
    time.
    """

    name = "persistent"
    reason = (
        "A grid much larger than the chip pays for starting each program, and its last wave leaves most "
        "multiprocessors idle. Programs that stay load the next tile while the last one is stored."
    )
    source = "Triton tutorial 09, persistent matmul"
    apis = frozenset({"triton"})
    change_class = "loop_order"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each kernel that reads its program numbers first and does not return early."""
        for name, function in kernel.kernels.items():
            tiles = _tiles(kernel, name, function)
            if tiles is not None:
                yield self.found(
                    tiles.numbers[0].lineno,
                    partial(_looped, kernel, function, tiles),
                    *(Variant(f"{count} programs", {"programs": count}) for count in (528, 1056, 264, 132, 2112)),
                    precondition="programs do not read the number of programs, so one program may do the work of several in turn",
                    plan=f"Launch as many programs of {name} as the chip runs at one time; each of n programs takes every n-th tile.",
                    benefit=0.2,
                    gain_percent=(-10.0, 30.0),
                    key=name,
                )


def _looped(kernel: TritonModule, function: FunctionNode, tiles: _Tiles, variant: Variant) -> str:
    """Return the source with a loop over tiles and the new grid. Program numbers are computed from the number
    of the tile.
    """
    total, across = kernel.fresh("tile_count"), kernel.fresh("tiles_across")
    names = [one.targets[0].id for one in tiles.numbers if isinstance(one.targets[0], ast.Name)]
    indent = kernel.indent(tiles.numbers[0])
    counter = names[0] if len(names) == 1 else kernel.fresh("tile")
    lines = [f"{indent}for {counter} in range(tl.program_id(0), {total}, tl.num_programs(0)):\n"]
    if len(names) == 2:
        lines.append(f"{indent}    {names[0]} = {counter} % {across}\n")
        lines.append(f"{indent}    {names[1]} = {counter} // {across}\n")
    lines.append(textwrap.indent(kernel.block(list(tiles.rest)), "    "))
    start = kernel.lines_span([min(tiles.numbers, key=lambda one: one.lineno)])[0]
    edits = Edits(kernel.source)
    edits.replace(start, kernel.lines_span(list(tiles.rest))[1], "".join(lines))
    extra = [total] if len(names) == 1 else [total, across]
    edits.insert(kernel.span(function.args.args[-1])[1], "".join(f", {one}" for one in extra))
    grid = [kernel.text(one) for one in tiles.launch.grid]
    count = grid[0] if len(grid) == 1 else " * ".join(f"({one})" for one in grid)
    passed = f", {total}={count}" + (f", {across}={grid[0]}" if len(grid) == 2 else "")
    edits.insert(kernel.arguments_end(tiles.launch.call), passed)
    target = tiles.launch.call.func
    assert isinstance(target, ast.Subscript)
    edits.replace(*kernel.span(target.slice), f"(min({count}, {variant.parameters['programs']}),)")
    return edits.apply()


def _tiles(kernel: TritonModule, name: str, function: FunctionNode) -> _Tiles | None:
    launch = kernel.single_launch(name)
    if launch is None or not 1 <= len(launch.grid) <= 2 or not launch.call.keywords or returns_early(function):
        return None
    text = kernel.text(function)
    if text.count("program_id(") != len(launch.grid) or "num_programs(" in text:
        return None
    numbers: dict[int, ast.Assign] = {}
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    for statement in body[: len(launch.grid)]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            axis = program_number(statement.value)
            if axis is not None:
                numbers[axis] = statement
    rest = body[len(launch.grid) :]
    if sorted(numbers) != list(range(len(launch.grid))) or not rest:
        return None
    if any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) and "\n" in one.value
        for s in rest
        for one in ast.walk(s)
    ):
        return None
    assigned = {number.targets[0].id for number in numbers.values() if isinstance(number.targets[0], ast.Name)}
    for statement in walk(rest):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(one, ast.Name) and one.id in assigned for one in targets):
            return None
    return _Tiles(launch, tuple(numbers[axis] for axis in sorted(numbers)), tuple(rest))


RULE = Persistent()
