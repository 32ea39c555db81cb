"""Keep a tensor in SBUF if the kernel stores it to HBM only to load it again.

Before, and after::

    kept = nl.ndarray((8, 128, 512), buffer=nl.private_hbm)   kept = nl.ndarray((nl.par_dim(128), 8, 512), buffer=nl.sbuf)
    for i in nl.affine_range(8):                              for i in nl.affine_range(8):
        x_tile = nl.exp(...)                                      kept[p, i, f] = nl.exp(...)
        nl.store(kept[i, p, f], value=x_tile)
    for i in nl.affine_range(8):                              for i in nl.affine_range(8):
        again = nl.load(kept[i, p, f])                            y_tile = nl.multiply(kept[p, i, f], 2.0)
        y_tile = nl.multiply(again, 2.0)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.matching import maker
from acceld.nki.source.nests import ELEMENT_BYTES, SBUF_BYTES, around
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import copied, prefix
from acceld.nki.source.syntax import LOADS, Access, Buffer, Statement
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant

_PARTITIONS = 128
_SCRATCH = {"nki": ("private_hbm", "hbm"), "nki_legacy": ("private_hbm",)}
"""Memories in which a kernel may declare scratch tensors, by API."""
_VALUE = {"nki": "src", "nki_legacy": "value"}
"""Name of the argument of a store that holds the stored tile, by API."""
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class _Scratch:
    """A tensor in HBM that only this kernel uses, by stores and loads."""

    buffer: Buffer
    axis: int
    """The dimension that every transfer maps to the partitions."""
    stores: tuple[Statement, ...]
    loads: tuple[Statement, ...]


class KeepOnChip(Rule):
    """Keep tensors in SBUF if the kernel uses them in HBM only as scratch space."""

    name = "keep_on_chip"
    reason = (
        "A value that goes to HBM and comes back costs two DMA transfers at the HBM's rate and about 2 us of latency; SBUF "
        "holds 24 MiB and is read at the engines' own rate. What does not fit is spilled, and costs no more than before."
    )
    source = "AWS NKI architecture guide: memory hierarchy, SBUF of 24 MiB; DMA transfers"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "dma"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every scratch tensor in HBM, with the reason if it has to stay in HBM."""
        for buffer in kernel.buffers.values():
            if buffer.space not in _SCRATCH[kernel.api]:
                continue
            scratch = _scratch(kernel, buffer)
            if isinstance(scratch, str):
                wish = f"Keep {buffer.name} in SBUF"
                yield self.refused(buffer.declaration.line, scratch, wish, key=buffer.name)
                continue
            lines = ", ".join(str(load.line) for load in scratch.loads)
            yield self.found(
                buffer.declaration.line,
                partial(_kept, kernel, scratch),
                Variant("in SBUF"),
                precondition=f"{buffer.name} is only stored and loaded, always with dimension {scratch.axis} over the "
                "partitions",
                plan=f"{buffer.name} goes to HBM and is loaded again in line {lines}. Keep the tensor in SBUF, so that "
                "no transfer is needed.",
                benefit=max(0.2, 0.6 * busy_share(profile, "dma")),
                gain_percent=(5.0, 40.0),
                key=buffer.name,
            )


def _scratch(kernel: KernelModule, buffer: Buffer) -> _Scratch | str:
    """Return the tensor with its transfers. If the tensor has to stay in HBM, return the reason as text."""
    name = buffer.name
    stores, loads = kernel.writers(name), kernel.readers(name)
    where = f"line {buffer.declaration.line}"
    if name in kernel.ambiguous or not stores or not loads or None in buffer.shape:
        return f"{where}: the content or the shape of {name} is not known: use no second name for the tensor, and declare its shape by numbers"
    axes = set()
    for statement in (*stores, *loads):
        access = statement.target if statement in stores else statement.reads.get("src")
        operation = "dma_copy" if kernel.api == "nki" else "store" if statement in stores else "load"
        to_itself = statement in stores and statement in loads
        if statement.op != operation or access is None or access.name != name or to_itself:
            return f"line {statement.line}: {name} is used by another statement than a store or a load: use a tensor of its own there"
        if statement.args.keys() - {"src", "value"} or statement.augmented:
            return f"line {statement.line}: the transfer of {name} has a mask or another dtype: transfer all of it, in its type"
        axes.add(_partition_axis(access, buffer, slices=kernel.api == "nki"))
    if len(axes) != 1 or None in axes:
        return f"{where}: not every transfer of {name} spreads the same whole dimension over the partitions: load with the same dimension as partitions as you store"
    held = prod(extent or 0 for at, extent in enumerate(buffer.shape) if at not in axes) * ELEMENT_BYTES
    if kernel.api == "nki" and held > SBUF_BYTES:
        return f"{where}: {name} takes {held >> 10} KiB a partition, more than SBUF holds: use a smaller tensor"
    if any(_VALUE[kernel.api] not in store.reads for store in stores):
        return f"{where}: the value stored to {name} is no tile: compute it into a tile first"
    (axis,) = axes
    assert axis is not None
    return _Scratch(buffer, axis, tuple(stores), tuple(loads))


def _partition_axis(access: Access, buffer: Buffer, *, slices: bool) -> int | None:
    """Return the dimension whose index is the whole range over the partitions; None unless exactly one dimension has
    such an index.
    """
    if access.dims is None or len(access.dims) != len(buffer.shape):
        return None
    found = None
    for number, (dim, extent) in enumerate(zip(access.dims, buffer.shape, strict=True)):
        if slices and (dim.extent is not None or dim.full):  # the first slice of an access is over the partitions
            return number if dim.covers(extent) and (extent or 0) <= _PARTITIONS and found is None else None
        if dim.form is None or dim.full or dim.extent is not None:
            return None
        for symbol in dim.form.ranges:
            if symbol.axis:
                continue
            whole = dim.form.terms == ((symbol, 1),) and not dim.form.constant and symbol.extent == extent
            if found is not None or not whole or symbol.extent > _PARTITIONS:
                return None
            found = number
    return found


def _kept(kernel: KernelModule, scratch: _Scratch, _: Variant) -> str:
    """Return the source with the tensor in SBUF. Tiles that only held data on the way to or from the tensor are left
    out.
    """
    edits = Edits(kernel.source)
    _declare(kernel, scratch, edits)
    if kernel.api == "nki":
        for one in (*scratch.stores, *scratch.loads):
            kept, other = (one.made, one.reads["src"]) if one in scratch.stores else (one.reads["src"], one.made)
            places = {kept: _place(kept, scratch), other: kernel.text(other.node)}
            function = "dma_copy" if kernel.space_of(other.name) == "hbm" else "tensor_copy"
            text = f"{prefix(kernel, 'isa')}.{function}(dst={places[one.made]}, src={places[one.reads['src']]})"
            edits.replace(one.start, one.end, text)
        return edits.apply()
    for store in scratch.stores:
        place = _place(store.made, scratch)
        producer = _made_for(kernel, scratch, store)
        if producer is None:
            edits.replace(store.start, store.end, copied(kernel, place, kernel.text(store.reads["value"].node)))
            continue
        edits.delete_lines(store.start, store.end)
        edits.replace(*kernel.span(producer.made.node), place)
        _read_there(kernel, edits, producer, store.made, scratch, without=store)
    for load in scratch.loads:
        place = _place(load.reads["src"], scratch)
        if _needs_no_tile(kernel, scratch, load):
            edits.delete_lines(load.start, load.end)
            _read_there(kernel, edits, load, load.reads["src"], scratch)
        else:
            edits.replace(load.start, load.end, copied(kernel, kernel.text(load.made.node), place))
    return edits.apply()


def _declare(kernel: KernelModule, scratch: _Scratch, edits: Edits) -> None:
    nl, buffer = prefix(kernel, "language"), scratch.buffer
    extents = [kernel.text(extent) for extent in buffer.extents]
    rows = extents.pop(scratch.axis)
    partitions = rows if kernel.api == "nki" else f"{nl}.par_dim({rows})"
    for extent, text in zip(buffer.extents, [partitions, *extents], strict=True):
        edits.replace(*kernel.span(extent), text)
    edits.replace(*kernel.span(buffer.declaration.args["buffer"]), f"{nl}.sbuf")


def _place(access: Access, scratch: _Scratch) -> str:
    """Return the text of an access to the tensor in SBUF, where the partition index comes first."""
    assert access.dims is not None
    texts = [dim.text for dim in access.dims]
    first = texts.pop(scratch.axis)
    return f"{access.name}[{', '.join([first, *texts])}]"


def _part(kernel: KernelModule, access: Access, scratch: _Scratch, reader: Access) -> str | None:
    """Return the text of the elements of the tensor that ``reader`` reads through the tile that ``access`` loads; None
    if they are not known.
    """
    place = _place(access, scratch)
    if reader.dims is None:
        return place
    assert access.dims is not None
    if len(reader.dims) != 2 or any(dim.form is None or dim.full or dim.extent is not None for dim in reader.dims):
        return None
    if reader.dims[0].form != access.dims[scratch.axis].form:
        return None
    columns = [name for name in _WORD.findall(place) if _is_columns(kernel, name)]
    if len(columns) != 1:
        return None
    taken = reader.dims[1].text
    return re.sub(rf"\b{columns[0]}\b", taken if _WORD.fullmatch(taken) else f"({taken})", place)


def _is_columns(kernel: KernelModule, name: str) -> bool:
    """Return True if a name stands for an index range along the columns."""
    form = kernel.affine(ast.Name(name))
    return form is not None and len(form.terms) == 1 and form.terms[0][0].in_columns and form.terms[0][1] == 1


def _made_for(kernel: KernelModule, scratch: _Scratch, store: Statement) -> Statement | None:
    """Return the statement that makes the stored value and can write it to the tensor in SBUF directly; None if a copy
    is needed.
    """
    value = store.reads["value"]
    if len(scratch.stores) != 1 or value.dims is not None or value.name in kernel.buffers:
        return None
    if not kernel.declared_dtype(scratch.buffer.name).endswith("float32"):
        return None
    producer = maker(kernel, store, value)
    if isinstance(producer, str) or producer.op in LOADS or "dtype" in producer.args:
        return None
    return producer if _readable(kernel, producer, store.made, scratch, without=store) else None


def _needs_no_tile(kernel: KernelModule, scratch: _Scratch, load: Statement) -> bool:
    """Return True if all readers of the tile that ``load`` fills can read the tensor in SBUF themselves."""
    target = load.target
    if target is None or target.dims is not None or target.name in kernel.buffers or load.augmented:
        return False
    if target.name in kernel.ambiguous or kernel.writers(target.name) != [load]:
        return False
    if max(store.start for store in scratch.stores) > min(one.start for one in scratch.loads):
        return False
    return _readable(kernel, load, load.reads["src"], scratch)


def _readable(
    kernel: KernelModule, writer: Statement, access: Access, scratch: _Scratch, without: Statement | None = None
) -> bool:
    """Return True if every reader of a tile follows its writer in the same loop body and reads a part that is known."""
    name = writer.made.name
    for reader in kernel.readers(name):
        if reader is without:
            continue
        if reader.kind != "op" or reader.start < writer.start:
            return False
        if writer.parent is not None and writer.parent not in around(reader):
            return False
        parts = [_part(kernel, access, scratch, one) for one in reader.mentions if one.name == name]
        if None in parts:
            return False
    return True


def _read_there(
    kernel: KernelModule,
    edits: Edits,
    writer: Statement,
    access: Access,
    scratch: _Scratch,
    without: Statement | None = None,
) -> None:
    """Add to ``edits`` the changes by which the readers of a tile read the tensor in SBUF instead."""
    for reader in kernel.readers(writer.made.name):
        if reader is without:
            continue
        for one in reader.mentions:
            if one.name == writer.made.name:
                part = _part(kernel, access, scratch, one)
                assert part is not None
                edits.replace(*kernel.span(one.node), part)


RULE = KeepOnChip()
