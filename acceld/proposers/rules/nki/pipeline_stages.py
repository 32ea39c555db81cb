"""Run the first stage of the next iteration before the rest of this one.

Before, the products of a block wait until the other engines have finished the block before it, or until their operands
are loaded. After, the products or the loads are one block ahead::

    for i in nl.affine_range(8):                 first(0)
        first(i)                                 for i in nl.sequential_range(7):
        rest(i)                                      first(i + 1)
                                                     rest(i)
                                                 rest(7)

With three stages the first is two blocks ahead of the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from acceld.model import Profile
from acceld.nki.source.building import STEP, emitted, prefix, read, written
from acceld.nki.source.nests import inside, substance
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import TRANSFERS, Item, Loop, Statement, flatten, names_in
from acceld.proposers.rules.profiles import idle_share
from acceld.proposers.rules.records import Finding, Rule, Variant

_PRODUCTS = ("matmul", "nc_matmul")


@dataclass(frozen=True)
class _Cut:
    """A place where the body of a loop can be cut in two."""

    at: int
    """Number of items before it."""
    names: tuple[str, ...]
    """Tiles that the second part reads from the first."""
    kind: str
    """The first part: products or loads."""
    products: bool
    """True if the second part begins with a loop over products."""


class PipelineStages(Rule):
    """Split a parallel loop's body in two stages, and run the first one iteration ahead of the second."""

    name = "pipeline_stages"
    reason = (
        "Each engine takes its instructions in order, and the compiler reorders only neighbors. If an iteration is a chain "
        "from engine to engine, every engine waits for the others. One stage ahead, it has other work meanwhile."
    )
    source = (
        "AWS NKI performance guide: overlapping compute of different engines; NKI fused attention: software pipelining"
    )
    apis = frozenset({"nki_legacy"})
    change_class = "loop_order"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every place where a loop's body can be cut after products, or after loads for products, that the rest
        only reads.
        """
        for loop in kernel.loops:
            items, cuts = [item for item in loop.items if substance([item])], list(_cuts(kernel, loop))
            for number, cut in enumerate(cuts):
                names, line = ", ".join(cut.names), items[cut.at].line
                later = [one for one in cuts[number + 1 :] if one.products] if (loop.trips or 0) > 2 else []
                yield self.found(
                    loop.line,
                    partial(_ahead, kernel, loop, cut.at),
                    Variant("one iteration ahead"),
                    *(Variant(f"two ahead of line {items[one.at].line}", {"second": one.at}) for one in later),
                    precondition=f"iterations of {loop.variable} are parallel, and {names} have a place for each of them",
                    plan=f"In an iteration of {loop.variable}, the work from line {line} on waits for the {cut.kind} before "
                    f"it. Make {names} of the next iteration before finishing this one.",
                    benefit=min(0.3, idle_share(profile)) if profile and profile.engines_us else 0.2,
                    gain_percent=(-5.0, 30.0),
                    key=f"{number}",
                )


def _cuts(kernel: KernelModule, loop: Loop) -> Iterator[_Cut]:
    """Yield the places to cut the body: products before work for other engines, or loads before products."""
    if loop.kind != "affine_range" or loop.trips is None or loop.trips < 2:
        return
    items = [item for item in loop.items if substance([item])]
    if any(one.kind not in ("op", "marker", "declaration") for one in flatten(items)):
        return
    if any("loop_indices" in one.args and _named(one, loop.variable) for one in flatten(items)):
        return
    for at in range(1, len(items)):
        first, rest = tuple(items[:at]), tuple(items[at:])
        shared = written(first) & read(rest)
        loads = _has(first, TRANSFERS) and _has(rest, _PRODUCTS)
        kind = "products" if _has(first, _PRODUCTS) else "loads" if loads else ""
        beside_loop = isinstance(items[at - 1], Loop) or isinstance(items[at], Loop)
        if kind and beside_loop and shared and _apart(kernel, loop, first, rest):
            yield _Cut(at, tuple(sorted(shared)), kind, isinstance(items[at], Loop) and _has([items[at]], _PRODUCTS))


def _declared(items: Sequence[Item]) -> set[str]:
    """Return the names of the tiles that ``items`` declare."""
    return {access.name for one in flatten(items) if one.kind == "declaration" for access in one.results}


def _has(items: Sequence[Item], operations: Sequence[str]) -> bool:
    return any(one.op in operations for one in flatten(items))


def _named(one: Statement, variable: str) -> bool:
    return any(name.id == variable for name in names_in(one.args["loop_indices"]))


def _apart(kernel: KernelModule, loop: Loop, first: Sequence[Item], rest: Sequence[Item]) -> bool:
    """Return True if the first stage of one iteration and the second stage of another touch different data."""
    if written(rest) & (written(first) | read(first)) or kernel.ambiguous & (written(first) | written(rest)):
        return False
    if _declared(first) & (written(rest) | read(rest)):
        return False
    for name in written(first) & read(rest):
        buffer = kernel.buffers.get(name)
        if buffer is None or inside(buffer.declaration, loop) or buffer.space.endswith("hbm"):
            return False
        accesses = [access for one in kernel.writers(name) if (access := one.result(name)) is not None]
        accesses += [access for one in kernel.readers(name) for access in one.mentions if access.name == name]
        if any(loop.variable not in (access.variables or ()) for access in accesses):
            return False
        if any(not inside(one, loop) for one in (*kernel.writers(name), *kernel.readers(name))):
            return False
    local = {result.name for one in flatten(rest) for result in one.results if result.dims is None}
    return not local & read(first)


def _ahead(kernel: KernelModule, loop: Loop, first: int, variant: Variant) -> str:
    """Return the loop with each stage one iteration ahead of the next."""
    items = [item for item in loop.items if substance([item])]
    places = [0, first, *(int(place) for place in variant.parameters.values()), len(items)]
    stages = [items[start:end] for start, end in pairwise(places)]
    ahead, trips = len(stages) - 1, loop.trips or 0
    indent, variable, language = loop.indent, loop.variable, prefix(kernel, "language")

    def at(stage: int, iteration: str, indent: str) -> str:
        renames = {} if iteration == variable else {variable: iteration}
        return emitted(kernel, stages[stage], indent, renames)

    text = "".join(at(stage, str(step - stage), indent) for step in range(ahead) for stage in range(step + 1))
    text += f"{indent}for {variable} in {language}.sequential_range({trips - ahead}):\n"
    for stage in range(ahead + 1):
        text += at(stage, f"({variable} + {ahead - stage})" if stage < ahead else variable, indent + STEP)
    for step in range(trips, trips + ahead):
        text += "".join(at(stage, str(step - stage), indent) for stage in range(step - trips + 1, ahead + 1))
    start, end = kernel.line_start(loop.start), kernel.after_line(loop.end)
    return kernel.source[:start] + text + kernel.source[end:]


RULE = PipelineStages()
