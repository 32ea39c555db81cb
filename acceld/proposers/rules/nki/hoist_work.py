"""Move work that gives the same result in every iteration before the loop, such as the transposes of an operand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import STEP, comments, header, renamed
from acceld.nki.source.invariants import Invariants, invariants
from acceld.nki.source.nests import first_line, inside, without_element
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Item, Loop, Statement, accesses, elements
from acceld.proposers.rules.records import Finding, Rule, Variant


class HoistWork(Rule):
    """Move loads, transposes and copies, with their own loops, in front of a loop on which they do not depend."""

    name = "hoist_work"
    reason = (
        "A transpose of a 128 x 128 tile occupies the tensor engine like a product and needs a copy out of PSUM. Done "
        "once and kept in SBUF, or even spilled and loaded again by idle DMA queues, it leaves the engine to products."
    )
    source = "nki.isa.nc_transpose and nc_matmul: cost on the tensor engine; AWS NKI performance guide: operational intensity"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"
    relieves = ("tensor", "vector", "scalar", "dma")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every parallel loop that repeats such work. If the work can not be moved, the finding has the reason."""
        for loop in kernel.loops:
            repeated = _repeated(kernel, loop)
            if repeated is not None:
                lines = ", ".join(str(line) for line in sorted(statement.line for statement in repeated.statements))
                names = ", ".join(sorted(repeated.made))
                yield self.found(
                    loop.line,
                    partial(_hoisted, kernel, repeated),
                    Variant("before the loop"),
                    precondition=f"lines {lines} use {loop.variable} only as an index of what they make, read nothing that "
                    "the rest of the loop writes, and have a place for every iteration of the loops around them",
                    plan=f"Loop {loop.variable} makes {names} anew in each of its {loop.trips} iterations, always with "
                    f"the same values. Make {names} once before the loop.",
                    benefit=0.3,
                    gain_percent=(0.0, 20.0),
                    key=loop.variable,
                )
            elif loop.kind == "affine_range":
                for reason in list(invariants(kernel, loop).reasons.values())[:1]:
                    wish = f"Do the work that does not use {loop.variable} before its loop"
                    yield self.refused(loop.line, reason, wish, loop.variable)


def _repeated(kernel: KernelModule, loop: Loop) -> Invariants | None:
    if loop.kind != "affine_range" or loop.trips is None or loop.trips < 2:
        return None
    found = invariants(kernel, loop)
    return found if found.made else None


def hoisted(kernel: KernelModule, loop: Loop) -> str:
    """Return the source with the work that ``loop`` repeats moved before it; unchanged if there is none."""
    repeated = _repeated(kernel, loop)
    return kernel.source if repeated is None else _hoisted(kernel, repeated, Variant("before the loop"))


def _hoisted(kernel: KernelModule, repeated: Invariants, _: Variant) -> str:
    """Return the source with the work moved, and the line of the loop."""
    loop, moving = repeated.loop, set(repeated.statements)
    local = {s.target.name for s in moving if s.target is not None} - set(repeated.dropped)
    for statement in loop.statements():
        if statement.kind == "declaration" and statement.target is not None and statement.target.name in local:
            moving.add(statement)
    edits = Edits(kernel.source)
    edits.insert(first_line(kernel, loop), _emitted(kernel, loop.items, loop.indent, moving, repeated.dropped))
    _remove(kernel, loop.items, moving, edits)
    for statement in loop.statements():
        if statement in moving:
            continue
        for access in {id(one.node): one for one in accesses(statement)}.values():
            if access.name in repeated.dropped:
                edits.replace(*_index(kernel, access, repeated.dropped[access.name]), "")
    for name, place in repeated.dropped.items():
        shape = kernel.buffers[name].declaration.args["shape"]
        assert isinstance(shape, ast.Tuple | ast.List)
        edits.replace(*without_element(kernel, shape.elts, place), "")
    return edits.apply()


def _index(kernel: KernelModule, access: Access, place: int) -> tuple[int, int]:
    return without_element(kernel, elements(access.node), place)


def _moves_whole(item: Item, moving: set[Statement]) -> bool:
    """Return True if all of ``item`` moves."""
    if isinstance(item, Loop):
        return any(s in moving for s in item.statements()) and all(
            s in moving or s.kind == "marker" for s in item.statements()
        )
    return item in moving


def _remove(kernel: KernelModule, items: Sequence[Item], moving: set[Statement], edits: Edits) -> None:
    for item in items:
        if _moves_whole(item, moving):
            edits.replace(first_line(kernel, item), kernel.after_line(item.end), "")
        elif isinstance(item, Loop):
            _remove(kernel, item.items, moving, edits)


def _emitted(
    kernel: KernelModule, items: Sequence[Item], indent: str, moving: set[Statement], dropped: dict[str, int]
) -> str:
    """Return the lines of the moving statements, in their loops."""
    pieces: list[str] = []
    for item in items:
        if isinstance(item, Loop):
            if any(inside(statement, item) for statement in moving):
                pieces.append(comments(kernel, item, indent) if _moves_whole(item, moving) else "")
                pieces.append(f"{indent}{header(kernel, item)}\n")
                pieces.append(_emitted(kernel, item.items, indent + STEP, moving, dropped))
        elif item in moving:
            pieces.append(comments(kernel, item, indent))
            pieces.append(indent + _moved(kernel, item, indent, dropped) + "\n")
    return "".join(pieces)


def _moved(kernel: KernelModule, statement: Statement, indent: str, dropped: dict[str, int]) -> str:
    edits = Edits(renamed(kernel, statement, {}))
    for access in {id(one.node): one for one in accesses(statement)}.values():
        if access.name in dropped:
            start, end = _index(kernel, access, dropped[access.name])
            edits.replace(start - statement.start, end - statement.start, "")
    first, *rest = edits.apply().split("\n")
    cut = len(statement.indent)
    return "\n".join([first, *(indent + line[cut:] if line[:cut].isspace() else line for line in rest)])


RULE = HoistWork()
