"""Unroll and jam: run several iterations of a parallel loop side by side, where an inner loop makes each of them wait.

Without the rule, each step of the inner loop waits for the previous step; with it, the engines work on one head while
the other waits::

    for h in nl.affine_range(2):                 start(0)
        start(h)                                 start(1)
        for t in nl.sequential_range(512):       for t in nl.sequential_range(512):
            step(h, t)                               step(0, t)
        finish(h)                                    step(1, t)
                                                 finish(0)
                                                 finish(1)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

from acceld.model import Profile
from acceld.nki.source.building import STEP, emitted, header, read, written
from acceld.nki.source.effects import same_range, understood
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import ELEMENT_BYTES, SBUF_BYTES
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.splitting import split_loop
from acceld.nki.source.syntax import Item, Loop, flatten, names_in
from acceld.proposers.rules.profiles import idle_share
from acceld.proposers.rules.records import Place, Rule, Variant

_COUNTS = (2, 4)
"""Numbers of iterations that may run side by side."""
_BANKS = 8
"""Banks of PSUM; each tile in PSUM takes at least one of them."""


class UnrollAndJam(Rule):
    """Run iterations of a parallel loop side by side, inside the sequential loop that each of them contains."""

    name = "unroll_and_jam"
    reason = (
        "A recurrence is a chain: each step waits until another engine has finished the step before, and every engine "
        "is idle in between. Steps of several independent chains fill these gaps."
    )
    source = "AWS NKI performance guide: overlapping compute of different engines; unroll-and-jam of loop nests"
    apis = frozenset({"nki"})
    only = "the copies need names of their own for all tiles, and a kernel of neuronxcc.nki declares few of its tiles"
    change_class = "loop_order"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield each parallel loop that contains a sequential loop, with the reason if its iterations can not run side by
        side.
        """
        for loop in kernel.loops:
            counts = [count for count in _COUNTS if loop.trips and loop.trips % count == 0]
            chains = [one for one in loop.loops() if one is not loop and one.kind != "affine_range" and one.trips != 1]
            if loop.kind != "affine_range" or not chains or not counts:
                continue
            fitting = [count for count in counts if _fits(kernel, loop, count)]
            chain = chains[0]
            yield self.answer(
                loop.line,
                _obstacle(kernel, loop) or ("" if fitting else _too_large(loop)),
                f"Run iterations of {loop.variable} side by side in loop {chain.variable}",
                partial(_jammed, kernel, loop),
                *(Variant(f"{count} side by side", {"count": count}) for count in fitting),
                precondition=f"iterations of {loop.variable} are parallel, and each declares the tiles that it writes",
                plan=f"Each step of loop {chain.variable} waits for the step before. Run iterations of {loop.variable} side by "
                f"side, step by step, so that the engines work on one while another waits.",
                benefit=0.2 if profile is None or not profile.engines_us else min(0.5, idle_share(profile)),
                gain_percent=(0.0, 50.0),
            )


def _obstacle(kernel: KernelModule, loop: Loop) -> str:
    """Return the reason why iterations of ``loop`` can not run side by side; empty if they can."""
    statements = list(flatten([loop]))
    placed = next((one for one in statements if one.kind == "declaration" and "address" in one.args), None)
    if placed is not None:
        return f"line {placed.line} gives a tile an address, which every copy would have: leave the address out"
    own = _own(kernel, loop)
    problem = understood([loop], names=True) or one_name(kernel, written([loop]) | read([loop]) | own | {loop.variable})
    problem = problem or _bound_elsewhere(kernel, loop, own)
    inner = [one for one in loop.loops() if one is not loop]
    problem = problem or next(filter(None, (same_range(one, [loop.variable, *own]) for one in inner)), "")
    if problem:
        return problem
    for one in statements:
        for access in one.results if one.kind == "op" else ():
            name = access.name
            if name in own:
                continue
            if kernel.space_of(name) != "hbm":
                return f"line {one.line} writes {name}, which all iterations of {loop.variable} share: declare it in the loop's body"
            if name in read([loop]):
                return f"line {one.line} writes {name}, which the loop also reads: write to another tensor"
    return ""


def _bound_elsewhere(kernel: KernelModule, loop: Loop, own: set[str]) -> str:
    """Return the reason why the names of the loop can not be replaced by new names for each iteration; empty if they
    can. ``own`` has the names that each iteration binds anew.

    There are two such reasons: the loop's body, or a loop inside, binds the loop's variable or a name in ``own`` once
    more as a loop variable; or one of these names is used after the loop.
    """
    names = own | {loop.variable}
    stored = [one.id for one in names_in(loop.node) if isinstance(one.ctx, ast.Store) and one.id in names]
    inner = {one.variable for one in loop.loops() if one is not loop}
    if stored.count(loop.variable) > 1 or inner & names:
        return f"line {loop.line}: {loop.variable} or another name of the loop is bound again inside of it: use another name there"
    first, last = kernel.span(loop.node)
    outside = [one for one in names_in(kernel.function) if not first <= kernel.span(one)[0] < last]
    after = {one.id for one in outside if kernel.span(one)[0] >= last and one.id in names}
    again = {one.id for one in outside if isinstance(one.ctx, ast.Store)}
    if after - again:
        return f"line {loop.line}: {min(after - again)} is also used after the loop: copy the last iteration's value to a tile of another name"
    return ""


def _tiles(kernel: KernelModule, loop: Loop) -> set[str]:
    """Return the names of the tiles that the loop's body declares, or gets from a function of the file."""
    return {
        access.name
        for one in flatten([loop])
        for access in one.results
        if one.kind == "declaration" or (access.name in kernel.returned and isinstance(one.node, ast.Assign))
    }


def _own(kernel: KernelModule, loop: Loop) -> set[str]:
    """Return the names that mean another thing in each iteration of ``loop``: the tiles that the loop's body makes,
    and the numbers and indices that are computed from the loop's variable or from such tiles. The loop's
    variable itself is left out.
    """
    own = {loop.variable, *_tiles(kernel, loop)}
    for one in flatten([loop]):  # in the order of the source: a name is assigned before it is used
        if one.kind == "alias":
            names = names_in(one.node)
            if any(name.id in own for name in names):
                own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return own - {loop.variable}


def _fits(kernel: KernelModule, loop: Loop, count: int) -> bool:
    """Tell whether the tiles of ``count`` iterations fit into SBUF and PSUM together."""
    sbuf_bytes = banks = 0
    for name in _tiles(kernel, loop) - kernel.returned.keys():  # the tiles of functions are checked as the kernel is
        buffer = kernel.buffers.get(name)
        if buffer is not None and buffer.space == "psum":
            banks += 1
        elif buffer is None or None in buffer.shape[1:]:
            return False
        else:
            sbuf_bytes += prod(extent or 1 for extent in buffer.shape[1:]) * ELEMENT_BYTES
    return count * sbuf_bytes <= SBUF_BYTES and count * banks <= _BANKS


def _too_large(loop: Loop) -> str:
    return (
        f"line {loop.line}: the tiles of two iterations of {loop.variable} do not fit into SBUF and PSUM, or have no known "
        "shape: make them smaller, and declare them by numbers"
    )


def _jammed(kernel: KernelModule, loop: Loop, variant: Variant) -> str:
    """Return the source in which several iterations of ``loop`` run side by side."""
    count = int(variant.parameters["count"])
    trips, written_trips = loop.trips, kernel.count(loop)
    if trips != count:
        kernel, loop = split_loop(kernel, loop, count)
    own = _own(kernel, loop)
    copies = [
        {loop.variable: str(number)} | ({name: kernel.fresh(f"{name}_{number}") for name in own} if number else {})
        for number in range(count)
    ]
    text = _side_by_side(kernel, loop.items, loop.indent, copies)
    if trips == count and not written_trips.isdecimal():
        text = f"{loop.indent}assert {written_trips} == {trips}\n{text}"
    start, end = kernel.line_start(loop.start), kernel.after_line(loop.end)
    return kernel.source[:start] + text + kernel.source[end:]


def _side_by_side(kernel: KernelModule, items: Sequence[Item], indent: str, copies: Sequence[Mapping[str, str]]) -> str:
    """Return the lines of ``items`` once for each of ``copies``, item by item. A copy is a mapping from names to the
    copy's new names.
    """
    text = ""
    for item in items:
        if isinstance(item, Loop):
            body = _side_by_side(kernel, item.items, indent + STEP, copies)
            text += f"{indent}{header(kernel, item)}\n{body}"
        else:
            first, *others = (emitted(kernel, [item], indent, renames) for renames in copies)
            text += first + "".join(_bare(one) for one in others if item.kind == "op" or _bare(one) != _bare(first))
    return text


def _bare(text: str) -> str:
    """Return the lines of a statement without the comments above it."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))


RULE = UnrollAndJam()
