"""Move work before a loop if every iteration repeats it with the same result, such as the transposes of an operand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import emitted
from acceld.nki.source.invariants import Invariants, invariants
from acceld.nki.source.nests import first_line, remove, without_element
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Item, Loop, Statement, accesses, elements, flatten
from acceld.proposers.rules.records import Place, Rule, Variant


class HoistWork(Rule):
    """Move loads, transposes and copies, with their own loops, before a loop on which they do not depend."""

    name = "hoist_work"
    reason = (
        "A transpose of a 128 x 128 tile occupies the tensor engine like a product and needs a copy out of PSUM. If "
        "the transposed tile is made once and kept in SBUF, or even spilled and loaded again by idle DMA queues, the "
        "engine is free for products."
    )
    source = "nki.isa.nc_transpose and nc_matmul: cost on the tensor engine; AWS NKI performance guide: operational intensity"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"
    relieves = ("tensor", "vector", "scalar", "dma")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every loop that repeats work, with the reason if the work can not be moved."""
        for loop in kernel.loops:
            repeated = _repeated(kernel, loop)
            if repeated is not None:
                lines = ", ".join(str(line) for line in sorted(statement.line for statement in repeated.statements))
                names = ", ".join(sorted(repeated.made))
                yield self.found(
                    loop.line,
                    partial(_hoisted, kernel, repeated),
                    Variant("before the loop"),
                    precondition=f"lines {lines} use {loop.variable} only as an index of the tiles that they make, read "
                    "nothing that the rest of the loop writes, and have one tile for every iteration of the loops around them",
                    plan=f"Loop {loop.variable} makes {names} anew in each of its {loop.trips} iterations, always with "
                    f"the same values. Make {names} once before the loop.",
                    benefit=0.3,
                    gain_percent=(0.0, 20.0),
                    key=loop.variable,
                )
            else:
                for reason in list(invariants(kernel, loop).reasons.values())[:1]:
                    wish = f"Do the work that does not use {loop.variable} before its loop"
                    yield self.refused(loop.line, reason, wish, loop.variable)


def _repeated(kernel: KernelModule, loop: Loop) -> Invariants | None:
    if loop.trips is None or loop.trips < 2:
        return None
    found = invariants(kernel, loop)
    return found if found.made else None


def hoisted(kernel: KernelModule, loop: Loop) -> str:
    """Return the source with the work that ``loop`` repeats moved before the loop; the same source if ``loop`` repeats
    no work.
    """
    repeated = _repeated(kernel, loop)
    return kernel.source if repeated is None else _hoisted(kernel, repeated, Variant("before the loop"))


def _hoisted(kernel: KernelModule, repeated: Invariants, _: Variant) -> str:
    """Return the source with the repeated work moved before its loop."""
    loop, moving = repeated.loop, set(repeated.statements)
    local = {s.made.name for s in moving} - set(repeated.dropped)
    moving |= {s for s in loop.statements() if s.kind == "declaration" and s.made.name in local}
    edits = Edits(kernel.source)
    texts: dict[ast.AST, str] = {}
    for name, place in repeated.dropped.items():
        edits.replace(*without_element(kernel, kernel.buffers[name].extents, place), "")
        texts |= {access.node: _without(kernel, access, place) for _, access in kernel.uses[name]}
    edits.insert(first_line(kernel, loop), emitted(kernel, loop.items, loop.indent, keep=moving, texts=texts))
    _remove(kernel, loop.items, moving, edits)
    for statement in loop.statements():
        for access in accesses(statement) if statement not in moving else ():
            if access.node in texts:
                edits.replace(*kernel.span(access.node), texts[access.node])
    return edits.apply()


def _without(kernel: KernelModule, access: Access, place: int) -> str:
    indices = [kernel.text(index) for at, index in enumerate(elements(access.node)) if at != place]
    return f"{access.name}[{', '.join(indices)}]"


def _remove(kernel: KernelModule, items: Sequence[Item], moving: set[Statement], edits: Edits) -> None:
    for item in items:
        inside = [one for one in flatten([item]) if one.kind != "marker"]
        if inside and moving.issuperset(inside):
            remove(kernel, item, edits)
        elif isinstance(item, Loop):
            _remove(kernel, item.items, moving, edits)


RULE = HoistWork()
