"""Software pipelining: run the first stage of the next iteration before the second stage of the current iteration.

Without the rule, the products of an iteration wait until the other engines have finished the previous iteration, or
until their operands are loaded. With the rule, the products or the loads are one iteration ahead::

    for i in nl.affine_range(8):                 first(0)
        first(i)                                 for i in nl.sequential_range(7):
        rest(i)                                      first(i + 1)
                                                     rest(i)
                                                 rest(7)

With three stages the first stage is two iterations ahead of the last. In the current API, the tiles of the iterations
outside of the loop get names of their own, so that further rewrites may treat these iterations in another way than
those in the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.building import STEP, emitted, read, written
from acceld.nki.source.matching import one_name
from acceld.nki.source.moves import expanded
from acceld.nki.source.nests import inside, substance
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import PRODUCTS, TRANSFERS, Item, Loop, Statement, flatten, names_in
from acceld.proposers.rules.profiles import hidden_share, idle_share
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Cut:
    """A position at which a loop's body can be divided into a first stage and a second stage."""

    at: int
    """Number of items before the position."""
    names: tuple[str, ...]
    """Tiles that the second stage reads from the first."""
    kind: str
    """Work of the first stage: ``products``, ``transposes`` or ``loads``."""
    products: bool
    """True if the second stage begins with a loop over products."""
    tied: str
    """The reason why stages of two iterations can not change their order; empty if they can."""


class PipelineStages(Rule):
    """Divide the body of a parallel loop into two stages, and run the first one iteration ahead of the second."""

    name = "pipeline_stages"
    reason = (
        "Each engine takes its instructions in order, and the compiler reorders only neighbors. If an iteration is a "
        "chain from engine to engine, every engine waits for the others. If one stage runs an iteration ahead, each "
        "engine has other work meanwhile."
    )
    source = (
        "AWS NKI performance guide: overlapping compute of different engines; NKI fused attention: software pipelining"
    )
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every position at which a loop's body can be divided, after products or after loads, so that the later
        part only reads what the earlier part made.
        """
        for loop in kernel.loops:
            items, tried = _stages_of(kernel, loop), list(_cuts(kernel, loop))
            cuts = [cut for cut in tried if not cut.tied]
            if tried and not cuts:
                names = ", ".join(tried[0].names)
                wish = f"Make {names} of the next iteration of {loop.variable} before finishing this one"
                yield self.refused(loop.line, tried[0].tied, wish)
            for number, cut in enumerate(cuts):
                names, line = ", ".join(cut.names), items[cut.at].line
                later = [one for one in cuts[number:] if one.products] if (loop.trips or 0) > 2 else []
                yield self.found(
                    loop.line,
                    partial(_ahead, kernel, loop, cut.at),
                    *(
                        []
                        if later[:1] == [cut] and _waits_for_hbm(kernel, items[: cut.at])
                        else [Variant("one iteration ahead")]
                    ),
                    *(Variant(f"two ahead of line {items[one.at].line}", {"second": one.at}) for one in later),
                    precondition=f"iterations of {loop.variable} are parallel, and each has its own tile of {names}",
                    plan=f"In an iteration of {loop.variable}, the work from line {line} on waits for the {cut.kind} before "
                    f"it. Make {names} of the next iteration before finishing this one.",
                    benefit=_benefit(profile, items[: cut.at], items[cut.at :]),
                    gain_percent=(-5.0, 30.0),
                    key=f"{number}",
                )


def _waits_for_hbm(kernel: KernelModule, items: Sequence[Item]) -> bool:
    """Return True if ``items`` load what they store to HBM, which takes longer than the products of an iteration."""
    return any(kernel.space_of(name) == "hbm" for name in written(items) & read(items))


def _benefit(profile: Profile | None, first: Sequence[Item], rest: Sequence[Item]) -> float:
    """Return the share of the latency (0 to 1) that may be saved if the first stage runs one iteration ahead."""
    if profile is None or not profile.engines_us:
        return 0.2
    hidden = hidden_share(profile, {one.line for one in flatten(first)}, {one.line for one in flatten(rest)})
    return min(0.3, idle_share(profile)) if hidden is None else min(0.3, max(0.02, hidden))


def _cuts(kernel: KernelModule, loop: Loop) -> Iterator[_Cut]:
    """Yield the positions at which a loop's body can be divided: after products, or before products if transposes or
    loads come first.
    """
    if loop.kind != "affine_range" or loop.trips is None or loop.trips < 2:
        return
    items = _stages_of(kernel, loop)
    if any(one.kind not in ("op", "marker", "declaration") for one in flatten(items)):
        return
    if any("loop_indices" in one.args and _named(one, loop.variable) for one in flatten(items)):
        return
    for at in range(1, len(items)):
        first, rest = tuple(items[:at]), tuple(items[at:])
        shared = written(first) & read(rest)
        loads = _has(first, TRANSFERS) and _has(rest, PRODUCTS)
        turns = _has(first, ("nc_transpose",)) and _has(rest, PRODUCTS)
        kind = "products" if _has(first, PRODUCTS) else "loads" if loads else "transposes" if turns else ""
        beside_loop = isinstance(items[at - 1], Loop) or isinstance(items[at], Loop)
        if kind and beside_loop and shared:
            products = isinstance(items[at], Loop) and _has([items[at]], PRODUCTS)
            yield _Cut(at, tuple(sorted(shared)), kind, products, _tied(kernel, loop, first, rest))


def _stages_of(kernel: KernelModule, loop: Loop) -> list[Item]:
    """Return the items of a loop's body. In the current API each declaration is moved right before the tile's first
    use.
    """
    items = [item for item in loop.items if substance([item])]
    if kernel.api != "nki":
        return items
    found: list[Item] = []
    waiting = {
        item.target.name: item for item in items if isinstance(item, Statement) and _declares(item) and item.target
    }
    for item in items:
        used = written([item]) | read([item])
        found += [waiting.pop(name) for name in sorted(used & waiting.keys())]
        if not _declares(item):
            found.append(item)
    return [*found, *waiting.values()]


def _declares(item: Item) -> bool:
    return isinstance(item, Statement) and item.kind == "declaration"


def _declared(items: Sequence[Item]) -> set[str]:
    """Return the names of the tiles that ``items`` declare."""
    return {access.name for one in flatten(items) if one.kind == "declaration" for access in one.results}


def _handed_on(kernel: KernelModule, first: Sequence[Item], rest: Sequence[Item]) -> list[str]:
    """Return the names of the tiles that the body declares for the first stage and that the rest reads; [] in the
    legacy API.
    """
    own = _declared([item for item in first if _declares(item)])
    return sorted(own & read(rest)) if kernel.api == "nki" else []


def _has(items: Sequence[Item], operations: Sequence[str]) -> bool:
    return any(one.op in operations for one in flatten(items))


def _named(one: Statement, variable: str) -> bool:
    return any(name.id == variable for name in names_in(one.args["loop_indices"]))


def _tied(kernel: KernelModule, loop: Loop, first: Sequence[Item], rest: Sequence[Item]) -> str:
    """Return the reason why the two stages of different iterations can not change their order, because both use the
    same data; empty if they can.
    """
    back = sorted(written(rest) & (written(first) | read(first)))
    if back:
        line = next(one.line for one in flatten(rest) if back[0] in {access.name for access in one.results})
        return f"line {line} writes {back[0]}, which the first stage of the next iteration uses: write to another tile"
    problem = one_name(kernel, written(first) | written(rest))
    if problem:
        return problem
    handed = _handed_on(kernel, first, rest)
    own = sorted(_declared(first) & (written(rest) | read(rest)) - set(handed))
    if own:
        line = kernel.buffers[own[0]].declaration.line
        return f"line {line} declares {own[0]} anew in each iteration: declare it before the loop, with one tile for each iteration"
    try:
        expanded(kernel, loop, handed, 2)
    except RuleRefused as refusal:
        return refusal.message
    for name in sorted((written(first) & read(rest)) - set(handed)):
        users = [*kernel.writers(name), *kernel.readers(name)]
        buffer = kernel.buffers.get(name)
        if buffer is None or inside(buffer.declaration, loop) or buffer.space.endswith("hbm"):
            return f"line {users[0].line} makes {name} anew in each iteration: declare it before the loop, with one tile for each iteration"
        for one in users:
            accesses = [access for access in (*one.mentions, *one.results) if access.name == name]
            if not inside(one, loop) or any(loop.variable not in (access.variables or ()) for access in accesses):
                return f"line {one.line} uses {name} without the index {loop.variable}: index it by {loop.variable}"
    local = {result.name for one in flatten(rest) for result in one.results if result.dims is None}
    shared = sorted(local & read(first))
    return (
        f"line {loop.line}: {shared[0]} is handed from one iteration to the next: give each iteration its own tile"
        if shared
        else ""
    )


def _ahead(kernel: KernelModule, loop: Loop, first: int, variant: Variant) -> str:
    """Return the source in which each stage runs one iteration ahead of the next stage."""
    cuts = [first, *(int(place) for place in variant.parameters.values())]
    items = _stages_of(kernel, loop)
    handed = sorted({name for cut in cuts for name in _handed_on(kernel, items[:cut], items[cut:])})
    if handed:
        number = kernel.loops.index(loop)
        kernel = kernel.reread(expanded(kernel, loop, handed, len(cuts) + 1))
        gone = [items.index(item) for item in items if _declares(item) and _declared([item]) <= set(handed)]
        cuts = [cut - sum(at < cut for at in gone) for cut in cuts]
        loop = kernel.loops[number]
        items = _stages_of(kernel, loop)
    places = [0, *cuts, len(items)]
    stages = [items[start:end] for start, end in pairwise(places)]
    ahead, count = len(stages) - 1, kernel.count(loop)
    indent, variable, language = loop.indent, loop.variable, prefix(kernel, "language")

    def at(stage: int, iteration: str, indent: str, own: str = "") -> str:
        renames = {} if iteration == variable else {variable: iteration}
        if own and kernel.api == "nki":
            renames |= {name: kernel.fresh(f"{name}_{own}") for name in _declared(stages[stage])}
        return emitted(kernel, stages[stage], indent, renames)

    text = ""
    for step in range(ahead):
        for stage in range(step + 1):
            text += at(stage, str(step - stage), indent, f"at{step - stage}")
    text += f"{indent}for {variable} in {language}.sequential_range({_less(count, ahead)}):\n"
    for stage in range(ahead + 1):
        text += at(stage, f"({variable} + {ahead - stage})" if stage < ahead else variable, indent + STEP)
    for step in range(ahead):
        for stage in range(step + 1, ahead + 1):
            text += at(stage, _less(count, stage - step, inside=True), indent, f"last{stage - step}")
    start, end = kernel.line_start(loop.start), kernel.after_line(loop.end)
    return kernel.source[:start] + text + kernel.source[end:]


def _less(count: str, number: int, *, inside: bool = False) -> str:
    """Return the text of ``count - number``, with parentheses if it stands inside another expression (``inside``)."""
    if count.isdecimal():
        return str(int(count) - number)
    return f"({count} - {number})" if inside else f"{count} - {number}"


RULE = PipelineStages()
