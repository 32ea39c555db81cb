"""A few programs that stay, each taking one tile after the other."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from acceld.model import Profile
from acceld.proposers.rules.editing import Edits
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.triton.reading import (
    FunctionNode,
    Launch,
    TritonModule,
    program_number,
    returns_early,
    walk,
)


@dataclass(frozen=True)
class _Tiles:
    launch: Launch
    numbers: tuple[ast.Assign, ...]
    """One statement for each axis, in the order of axes."""
    rest: tuple[ast.stmt, ...]


class Persistent:
    """The body of a kernel in a loop over tiles, on a grid of as many programs as run at one time."""

    name = "persistent"
    reason = (
        "A grid much larger than the chip pays for starting each program, and its last wave leaves most "
        "multiprocessors idle. Programs that stay load the next tile while the last one is stored."
    )
    source = "Triton tutorial 09, persistent matmul"
    apis = frozenset({"triton"})
    change_class = "loop_order"

    def sites(self, kernel: TritonModule, profile: Profile | None) -> Sequence[Site]:
        """Kernels that begin with their program numbers and do not return early."""
        found = []
        for name, function in kernel.kernels.items():
            tiles = _tiles(kernel, name, function)
            if tiles is not None:
                found.append(
                    Site(
                        self.name,
                        tiles.numbers[0].lineno,
                        "programs do not know how many they are, so one may do the work of several in turn",
                        f"Launch as many programs of {name} as the chip runs at one time; each takes every so-many-th tile.",
                        tuple(
                            Variant(f"{count} programs", {"programs": count}) for count in (528, 1056, 264, 132, 2112)
                        ),
                        0.2,
                        (-10.0, 30.0),
                        name,
                    )
                )
        return found

    def apply(self, kernel: TritonModule, site: Site, variant: Variant) -> str:
        """The loop, the numbers from the tile's, and the grid."""
        function = kernel.kernels.get(site.key)
        tiles = _tiles(kernel, site.key, function) if function is not None else None
        if tiles is None or function is None:
            raise RuleRefused(f"{site.key} does not begin with its program numbers")
        total, across = kernel.free_name("tile_count"), kernel.free_name("tiles_across")
        names = [one.targets[0].id for one in tiles.numbers if isinstance(one.targets[0], ast.Name)]
        indent = kernel.indent(tiles.numbers[0])
        counter = names[0] if len(names) == 1 else kernel.free_name("tile")
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
        ends = [kernel.span(one)[1] for one in [*tiles.launch.call.args, *tiles.launch.call.keywords]]
        passed = f", {total}={count}" + (f", {across}={grid[0]}" if len(grid) == 2 else "")
        edits.insert(max(ends), passed)
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
