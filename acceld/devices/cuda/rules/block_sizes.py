"""Change the size of the tile that each program computes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from acceld.devices.cuda.rules.reading import (
    FunctionNode,
    Launch,
    Setting,
    TritonModule,
    accesses,
    calls,
    depending,
    mask,
    names,
    walk,
)
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_TILES = (
    {"m": 128, "n": 128, "k": 64, "num_warps": 8},
    {"m": 128, "n": 256, "k": 64, "num_warps": 8},
    {"m": 128, "n": 128, "k": 32, "num_warps": 4},
    {"m": 64, "n": 256, "k": 32, "num_warps": 4},
    {"m": 128, "n": 64, "k": 64, "num_warps": 4},
)
_FACTORS = (2, 4, 0.5, 8, 0.25)


class BlockSizes(Rule):
    """Change the tile size of a kernel: one of its sizes alone, or the three sizes of a matrix product together. A size
    is a constant that the launch passes and that is the extent of a masked range.
    """

    name = "block_sizes"
    reason = "A larger tile loads each operand fewer times and gives tensor cores whole fragments; a smaller tile needs fewer registers and makes more programs. A thread loads 16 bytes at best: ranges of at least 1024 bytes a warp."
    source = "Triton tutorials 02 and 03; CUDA C programming guide, maximize memory throughput"
    apis = frozenset({"triton"})
    change_class = "tile_width"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each size whose accesses are all masked, so that the kernel is right whatever the size is."""
        for number, launch in enumerate(kernel.launches):
            function = kernel.kernels[launch.kernel]
            sizes = _free(kernel, launch)
            rewrite = partial(_resized, kernel, launch, sizes)
            product = _product(function, sizes)
            if product:
                tiles = _tiles(product)
                now = "x".join(str(product[axis].value) for axis in "mnk")
                yield self.found(
                    product["m"].line,
                    rewrite,
                    *tiles,
                    precondition="every access of the three ranges is masked by these ranges, and the grid follows their sizes",
                    plan=f"The product works on tiles of {now}. Try tiles that tensor cores fill: "
                    f"{', '.join(tile.name for tile in tiles)}.",
                    benefit=0.7,
                    gain_percent=(0.0, 70.0),
                    key=f"tiles/{number}",
                )
            least = 16 if calls(function, "tl.dot") else 1
            for setting in sizes:
                values = [int(setting.value * factor) for factor in _FACTORS]
                values = [value for value in values if least <= value <= 16384]
                yield self.found(
                    setting.line,
                    rewrite,
                    *(Variant(f"{setting.name}={value}", {setting.name: value}) for value in values),
                    precondition=f"every access of the range of {setting.name} is masked by that range, and the grid follows its size",
                    plan=f"{setting.name} is {setting.value}. Try {', '.join(map(str, values))}.",
                    benefit=0.4,
                    gain_percent=(-20.0, 60.0),
                    key=f"{setting.name}/{number}",
                )


def _resized(kernel: TritonModule, launch: Launch, sizes: Sequence[Setting], variant: Variant) -> str:
    """Return the source in which the launch passes the new sizes, and the grid fits them."""
    places = {setting.name: setting.places for setting in sizes}
    warps = launch.keyword("num_warps")
    places["num_warps"] = () if warps is None else (warps.value,)
    edits = Edits(kernel.source)
    for name, value in variant.parameters.items():
        for place in places[name]:
            edits.replace(*kernel.span(place), str(value))
    return edits.apply()


def _free(kernel: TritonModule, launch: Launch) -> list[Setting]:
    function = kernel.kernels[launch.kernel]
    return [one for one in kernel.settings(launch) if masked_by(function, one.name)]


def masked_by(function: FunctionNode, constant: str) -> bool:
    """Tell whether ``constant`` is the extent of a range whose accesses are all masked.

    The accesses of a range are the loads and stores whose addresses depend on the range. Each access needs a mask that
    depends on the range too.
    """
    ranges: set[str] = set()
    direct = False
    for statement in walk(function.body):
        if not isinstance(statement, ast.Assign):
            continue
        if any(constant in names(one) for one in calls(statement.value, "tl.arange")):
            direct = True
            for target in statement.targets:
                ranges |= names(target)
    if not direct:
        return False
    positions = depending(function, ranges)
    for access in accesses(function):
        pointer = access.args[0]
        if any(constant in names(one) for one in calls(pointer, "tl.arange")):
            return False
        limit = mask(access)
        if positions & names(pointer) and (limit is None or not names(limit) & positions):
            return False
    return True


def _product(function: FunctionNode, sizes: list[Setting]) -> dict[str, Setting]:
    """Return which constants are the tile sizes ``m``, ``n`` and ``k`` of a matrix product; empty if the kernel is
    not a tiled matrix product.

    ``k`` is the step of the kernel's loop; ``m`` and ``n`` are the extents of the accumulator.
    """
    by_name = {setting.name: setting for setting in sizes}
    steps = [
        loop.iter.args[2].id
        for loop in walk(function.body)
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 3
        if isinstance(loop.iter.args[2], ast.Name) and calls(loop, "tl.dot")
    ]
    tiles = [
        [one.id for one in node.args[0].elts if isinstance(one, ast.Name)]
        for node in calls(function, "tl.zeros")
        if node.args and isinstance(node.args[0], ast.Tuple)
    ]
    for tile in tiles:
        if len(tile) == 2 and len(steps) == 1 and {*tile, *steps} <= set(by_name):
            return {"m": by_name[tile[0]], "n": by_name[tile[1]], "k": by_name[steps[0]]}
    return {}


def _tiles(product: Mapping[str, Setting]) -> list[Variant]:
    """Return variants with other tile sizes of a matrix product."""
    return [
        Variant(
            "x".join(str(tile[axis]) for axis in "mnk"),
            {product[axis].name: tile[axis] for axis in "mnk"} | {"num_warps": tile["num_warps"]},
        )
        for tile in _TILES
        if any(product[axis].value != tile[axis] for axis in "mnk")
    ]


RULE = BlockSizes()
