"""Make tiles where they are used, instead of making all tiles beforehand.

The loop nest that makes the tiles (the producer) moves into a loop of the nest that uses them (the consumer). If one
iteration of that loop needs only a single index of a producer's loop, that loop of the producer disappears::

    for row in nl.affine_range(32):                       for head in nl.affine_range(8):
        for one in nl.affine_range(8):                        for part in nl.affine_range(32):
            q[row, one, p, c] = nl.load(x[...])                   q[part, head, p, c] = nl.load(x[...])
    for head in nl.affine_range(8):                               y = nl.matmul(q[part, head, p, c], ...)
        for part in nl.affine_range(32):
            y = nl.matmul(q[part, head, p, c], ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import emitted, read, written
from acceld.nki.source.effects import parallel, understood, undisturbed
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import all_accesses, around, first_line, has_place, indices_by, inside, remove
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Dim, Item, Loop, Statement
from acceld.proposers.rules.profiles import spilled
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Sinking:
    """A nest that makes tiles (the producer), and a loop of the nest that uses them (the consumer) into which the
    producer can move.
    """

    producer: Loop
    into: Loop
    names: tuple[str, ...]
    """Buffers that the producer makes for the consumer."""
    known: Mapping[str, Dim]
    """Variables of the producer's loops that disappear, each with the consumer's index that replaces it."""


class SinkWork(Rule):
    """Move a loop nest that makes tiles into a loop of the only nest that uses them, so that each iteration makes only
    the tiles that it uses.
    """

    name = "sink_work"
    reason = (
        "Tiles that are made long before they are used occupy SBUF meanwhile, 192 KiB a partition on trn1. What does not "
        "fit is spilled to HBM and loaded again, and other work waits for the space."
    )
    source = "AWS NKI architecture guide: SBUF size; neuron-profile spill_save_bytes and spill_reload_bytes"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "spill"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield each producer nest with each loop of its consumer into which the nest can move."""
        for body in kernel.bodies:
            nests = [item for item in body if isinstance(item, Loop)]
            for number, producer in enumerate(nests):
                for consumer in nests[number + 1 :]:
                    names = tuple(sorted(written([producer]) & read([consumer])))
                    if not names:
                        continue
                    between = body[body.index(producer) + 1 : body.index(consumer)]
                    places = list(_sinkings(kernel, producer, consumer, names))
                    problem = _obstacle(kernel, producer, consumer, between, names) if places else ""
                    if problem:
                        wish = f"Make {', '.join(names)} in loop {places[0].into.variable}, where they are used"
                        yield self.refused(producer.line, problem, wish, key=f"{places[0].into.line}")
                        continue
                    for found in places:
                        yield self._found(kernel, found, profile)

    def _found(self, kernel: KernelModule, one: _Sinking, profile: Profile | None) -> Place:
        names = ", ".join(one.names)
        return self.found(
            one.producer.line,
            partial(_sunk, kernel, one),
            Variant(f"into {one.into.variable}"),
            precondition=f"only the loop nest around line {one.into.line} uses {names}, and an iteration of "
            f"{one.into.variable} uses only the tiles of one {' and one '.join(sorted(one.known))}",
            plan=f"The loop nest at line {one.producer.line} makes all tiles of {names} before the first one is used. Make "
            f"the tiles that an iteration of {one.into.variable} uses at the beginning of that iteration.",
            benefit=0.25 if spilled(profile) else 0.03,
            gain_percent=(-10.0, 30.0),
            key=f"{one.into.line}",
        )


def _obstacle(
    kernel: KernelModule, producer: Loop, consumer: Loop, between: Sequence[Item], names: Sequence[str]
) -> str:
    """Return the reason why the producer may not run inside the consumer; empty if it gives the same values there."""
    made = written([producer])
    problem = (
        parallel((producer, *producer.loops()))
        or understood([producer, *between, consumer])
        or undisturbed([producer], between)
        or undisturbed([producer], [consumer], names)
        or one_name(kernel, made | read([producer]))
    )
    if problem:
        return problem
    for name in sorted(made):
        if not _is_only_for(kernel, name, (producer, consumer) if name in names else (producer,)):
            return f"line {producer.line}: {name}, which this nest makes, is also used outside of the two nests: make another tile for that use"
    return ""


def _is_only_for(kernel: KernelModule, name: str, nests: Sequence[Loop]) -> bool:
    """Return True if a tile on the chip is used only in these nests. For two nests, the tile must be declared before
    both.
    """
    if kernel.space_of(name) == "hbm":
        return False
    if name not in kernel.buffers:
        return len(nests) == 1
    found = all_accesses(kernel, name)
    declared = len(nests) == 1 or not inside(kernel.buffers[name].declaration, nests[0])
    return declared and found is not None and all(any(inside(one, nest) for nest in nests) for one, _ in found)


def _sinkings(kernel: KernelModule, producer: Loop, consumer: Loop, names: Sequence[str]) -> Iterator[_Sinking]:
    """Yield the loops of the consumer into which the producer can move, outermost first."""
    readers = [one for name in names for one in kernel.readers(name) if not inside(one, producer)]
    if not readers or any(name not in kernel.buffers or kernel.space_of(name) == "hbm" for name in names):
        return
    chain = [loop for loop in reversed(_common(readers)) if loop is consumer or inside(loop, consumer)]
    indices = _indices(kernel, producer, names)
    before: dict[str, Dim] = {}
    for loop in chain:
        bound = {one.variable for one in (loop, *around(loop))}
        known = {variable: dim for variable, dim in indices.items() if dim.form and dim.form.variables <= bound}
        if len(known) > len(before) and _keeps_sums(producer, known):
            yield _Sinking(producer, loop, tuple(names), known)
        before = known


def _common(statements: Sequence[Statement]) -> list[Loop]:
    """Return the loops around all of the statements, innermost first."""
    return [loop for loop in around(statements[0]) if all(inside(one, loop) for one in statements)]


def _indices(kernel: KernelModule, producer: Loop, names: Sequence[str]) -> dict[str, Dim]:
    """Return the indices by which the consumer reads the tiles, as a dict by the variables of the producer's loops.

    For each loop of the producer, it is the index by which the consumer reads what one iteration of that loop made. A
    loop is left out if the consumer reads by several indices.
    """
    found: dict[str, Dim] = {}
    for loop in (producer, *producer.loops()):
        dims: list[Dim] = []
        for name in names:
            place = _place(kernel, loop, name)
            if place is None:
                dims = []
                break
            dims += [
                (access.dims or ())[place]
                for one in kernel.readers(name)
                for access in one.mentions
                if access.name == name and not inside(one, producer)
            ]
        if dims and all(dim == dims[0] for dim in dims) and _is_index(dims[0]):
            found[loop.variable] = dims[0]
    return found


def _place(kernel: KernelModule, loop: Loop, name: str) -> int | None:
    """Return the position of the index that is the loop's variable in every access of ``name`` in the producer; None
    if there is no such position.
    """
    buffer, found = kernel.buffers[name], all_accesses(kernel, name) or []
    if any(len(access.dims or ()) != len(buffer.shape) for _, access in found):
        return None
    made = [access for one, access in found if inside(one, loop)]
    fits = indices_by(buffer, loop, made) - {buffer.partition_axis}
    return fits.pop() if len(fits) == 1 else None


def _is_index(dim: Dim) -> bool:
    """Return True if an index is a single element given by loop variables."""
    plain = dim.form is not None and all(symbol.name == symbol.variable for symbol, _ in dim.form.terms)
    return plain and dim.is_point


def _keeps_sums(producer: Loop, known: Mapping[str, Dim]) -> bool:
    """Return True if no sum of the producer runs over a loop that disappears."""
    gone = [loop for loop in (producer, *producer.loops()) if loop.variable in known]
    for one in producer.statements():
        loops = [loop for loop in gone if inside(one, loop)]
        if "loop_indices" in one.args and loops:
            return False
        if one.augmented and not (one.target is not None and all(has_place(one.target, loop) for loop in loops)):
            return False
    return True


def _sunk(kernel: KernelModule, one: _Sinking, _: Variant) -> str:
    """Return the source with the producer inside the consumer's loop."""
    loops = [one.producer, *one.producer.loops()]
    taken = {loop.variable for loop in (one.into, *around(one.into), *one.into.loops())}
    texts = {variable: dim.text for variable, dim in one.known.items()}
    renames = {variable: text if text.isidentifier() else f"({text})" for variable, text in texts.items()}
    for loop in loops:
        if loop.variable not in renames and loop.variable in taken:
            renames[loop.variable] = kernel.fresh(f"{loop.variable}_of_{one.names[0]}", renames.values())
    first = one.into.items[0]
    private = _private(kernel, one)
    work = [statement for statement in one.producer.statements() if statement.kind != "marker"]
    text = emitted(kernel, private, first.indent)
    text += emitted(kernel, [one.producer], first.indent, renames, keep=work, flat=one.known)
    edits = Edits(kernel.source)
    for declaration in private:
        edits.delete_lines(declaration.start, declaration.end)
    remove(kernel, one.producer, edits)
    edits.insert(first_line(kernel, first), text)
    return edits.apply()


def _private(kernel: KernelModule, one: _Sinking) -> list[Statement]:
    """Return the declarations that move together with the producer: those of tiles that each iteration at the
    producer's new position can make for itself.
    """
    outer = {loop.variable for loop in (one.into, *around(one.into)) if loop not in around(one.producer)}
    places = {variable for dim in one.known.values() if dim.form for variable in dim.form.variables}
    found = []
    for name in sorted(written([one.producer])):
        buffer = kernel.buffers.get(name)
        if buffer is None or inside(buffer.declaration, one.producer):
            continue
        if name not in one.names or not outer <= places:
            found.append(buffer.declaration)
    return found


RULE = SinkWork()
