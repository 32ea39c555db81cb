"""Split the inner loop of two nested loops into tiles, and put a loop over the tiles around both loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.devices.cpu.rules.building import STEP, body_lines, bound, braced, header, replaced
from acceld.devices.cpu.rules.reading import CModule, only_loop
from acceld.devices.cpu.rules.syntax import For
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_TILES = (64, 256, 16)


class Tile(Rule):
    """Tile the inner loop, so that each iteration of the outer loop finds the tile's data in the cache."""

    name = "tile"
    reason = (
        "The data that a tile of the inner loop touches fits into the L1 or L2 cache, and the outer loop uses it again."
    )
    source = "Drepper, What every programmer should know about memory, 6.2.1"
    apis = frozenset({"c"})
    change_class = "tile_width"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each pair of nested loops that may be exchanged.

        The variants are tile sizes that divide the number of iterations of the inner loop.
        """
        for outer in kernel.loops:
            inner = only_loop(outer)
            tiles = [] if inner is None else _tiles(kernel, outer, inner)
            if inner is not None and tiles:
                yield self.found(
                    inner.line,
                    partial(_tiled, kernel, outer, inner),
                    *(Variant(f"by_{tile}", {"tile": tile}) for tile in tiles),
                    precondition=f"the loops over {outer.var} and {inner.var} may change places, and the tile divides the "
                    f"iterations of {inner.var}",
                    plan=f"Line {inner.line}: go through {inner.var} in tiles, the loop over tiles outside of the loop "
                    f"over {outer.var}.",
                    benefit=0.3,
                    gain_percent=(0.0, 40.0),
                    key=f"{outer.start}",
                )


def _tiled(kernel: CModule, outer: For, inner: For, variant: Variant) -> str:
    """Return the source with a loop over tiles around the loops ``outer`` and ``inner``."""
    tile, var, indent = variant.parameters["tile"], inner.var, kernel.indentation(outer.start)
    first = kernel.fresh(f"{var}_tile")
    over_tiles = f"for (int {first} = 0; {first} < {bound(kernel, inner)}; {first} += {tile})"
    over_tile = f"for (int {var} = {first}; {var} < {first} + {tile}; {var}++)"
    lines = body_lines(kernel, inner.body.items, indent + 3 * STEP)
    lines = braced(indent + 2 * STEP, over_tile, lines)
    lines = braced(indent + STEP, header(kernel, outer), lines)
    return replaced(kernel, outer, braced(indent, over_tiles, lines))


def _tiles(kernel: CModule, outer: For, inner: For) -> list[int]:
    if inner.step != 1 or kernel.constant(inner.first) != 0:
        return []
    trips = kernel.trips(inner)
    if trips is None or not kernel.interchangeable(outer, inner):
        return []
    return [tile for tile in _TILES if trips % tile == 0 and trips > tile]


RULE = Tile()
