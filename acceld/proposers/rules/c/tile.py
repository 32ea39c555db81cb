"""The inner one of two perfectly nested loops in tiles, with the loop over tiles outside of both."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.c.building import STEP, body_lines, bound, header, replaced
from acceld.proposers.rules.c.reading import CModule, only_loop
from acceld.proposers.rules.c.syntax import For
from acceld.proposers.rules.records import RuleRefused, Site, Variant

_TILES = (64, 256, 16)


class Tile:
    """A block of the inner loop stays in cache while the outer loop goes by."""

    name = "tile"
    reason = "What a tile of the inner loop touches fits into the L1 or L2 cache and is used again by the outer loop."
    source = "Drepper, What every programmer should know about memory, 6.2.1"
    apis = frozenset({"c"})
    change_class = "tile_width"

    def sites(self, kernel: CModule, profile: Profile | None) -> Sequence[Site]:
        """Pairs that may change places, with tiles that divide the inner loop's trips."""
        found = []
        for outer in kernel.loops:
            inner = only_loop(outer)
            tiles = _tiles(kernel, outer, inner)
            if inner is None or not tiles:
                continue
            found.append(
                Site(
                    self.name,
                    inner.line,
                    f"the loops over {outer.var} and {inner.var} may change places, and the tile divides its trips",
                    f"Line {inner.line}: go through {inner.var} in tiles, the loop over tiles outside of the loop over "
                    f"{outer.var}.",
                    tuple(Variant(f"by_{tile}", {"tile": tile}) for tile in tiles),
                    0.3,
                    (0.0, 40.0),
                    key=f"{outer.start}",
                )
            )
        return found

    def apply(self, kernel: CModule, site: Site, variant: Variant) -> str:
        """Three loops instead of two."""
        tile = int(variant.parameters["tile"])
        for outer in kernel.loops:
            inner = only_loop(outer)
            if str(outer.start) != site.key or inner is None or tile not in _tiles(kernel, outer, inner):
                continue
            indent, tiles = kernel.indent(outer), kernel.fresh(f"{inner.var}_tile")
            lines = [
                f"{indent}for (int {tiles} = 0; {tiles} < {bound(kernel, inner)}; {tiles} += {tile}) {{",
                f"{indent}{STEP}{header(kernel, outer)} {{",
                f"{indent}{2 * STEP}for (int {inner.var} = {tiles}; {inner.var} < {tiles} + {tile}; {inner.var}++) {{",
                *body_lines(kernel, inner.body.items, indent + 3 * STEP),
                f"{indent}{2 * STEP}}}",
                f"{indent}{STEP}}}",
                f"{indent}}}",
            ]
            return replaced(kernel, outer, lines)
        raise RuleRefused(f"line {site.line}: no such pair of loops")


def _tiles(kernel: CModule, outer: For, inner: For | None) -> list[int]:
    if inner is None or inner.step != 1 or kernel.constant(inner.first) != 0:
        return []
    trips = kernel.trips(inner)
    if trips is None or not kernel.interchangeable(outer, inner):
        return []
    return [tile for tile in _TILES if trips % tile == 0 and trips > tile]


RULE = Tile()
