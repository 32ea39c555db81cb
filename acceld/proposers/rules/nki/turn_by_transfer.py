"""Let a transfer transpose the blocks of a tile, in place of the tensor engine.

Before, and after::

    for row in nl.affine_range(16):                          kept = nl.ndarray((16, 128, 1024), ..., buffer=nl.private_hbm)
        nisa.tensor_scalar(dst=tile, ...)                    for row in nl.affine_range(16):
        for k in nl.affine_range(8):                             nisa.tensor_scalar(dst=tile, ...)
            turned = nl.ndarray(..., buffer=nl.psum)             nisa.dma_copy(dst=kept[row, 0:128, 0:1024], src=tile)
            nisa.nc_transpose(dst=turned, data=tile[:, k])       for k in nl.affine_range(8):
                                                                     turned = nl.ndarray(..., buffer=nl.sbuf)
                                                                     nisa.dma_transpose(dst=turned, src=kept[row, :, k])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import around, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import Access, Statement
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant

_DTYPES = ("float32", "bfloat16", "float16")
"""Types of two or four bytes, which a transfer transposes."""
_ROWS = 16
"""The number of rows of a transposing transfer is a multiple of this."""


@dataclass(frozen=True)
class _Turn:
    """Transposes of blocks of one tile into one other tile, on the tensor engine. A single statement makes the first
    tile.
    """

    turns: tuple[Statement, ...]
    data: Access
    """The block that the first of the transposes reads."""
    maker: Statement
    shape: tuple[int, int]
    """Rows and columns of the whole tile, as numbers."""
    counts: tuple[str, ...]
    """Numbers of iterations of the loops around the maker, from the outermost inwards, as the source writes them."""
    places: tuple[str, ...]
    """Variables of the loops around the maker, in the same order."""
    dtype: str
    """The tile's dtype, as the kernel's source writes it."""


class TurnByTransfer(Rule):
    """Keep a tile in HBM and load its blocks transposed, instead of transposing them on the tensor engine."""

    name = "turn_by_transfer"
    reason = (
        "A transpose of float32 takes three passes of the tensor engine, which can not multiply meanwhile. DMA engines "
        "that have little to do can transpose on the way from HBM to SBUF. The way through HBM takes 4.5 µs longer, so "
        "the tiles of several iterations have to be under way at the same time."
    )
    source = (
        "nki.isa.dma_transpose: HBM to SBUF, types of two or four bytes; profiles of round trips through HBM on trn2"
    )
    apis = frozenset({"nki"})
    only = "The compiler of the legacy API turns such transfers into transposes on the tensor engine."
    change_class = "dma"
    relieves = ("tensor",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every transpose, on the tensor engine, of a tile that a single statement makes, with the reason if a
        transfer can not transpose the tile.
        """
        for turn in kernel.statements:
            found = _turn(kernel, turn)
            if found is None:
                continue
            name, loaded = found.data.name, _loaded(kernel, found)
            instead = (
                f"Load them transposed from where line {found.maker.line} loads {name}."
                if loaded
                else f"Store {name} to HBM where it is made, and load the blocks transposed."
            )
            yield self.answer(
                turn.line,
                _obstacle(kernel, found),
                f"Keep {name} in HBM, and load its blocks transposed",
                partial(_from_source, kernel, found, loaded) if loaded else partial(_by_transfer, kernel, found),
                Variant("by transfer"),
                precondition=f"only line {found.maker.line} writes {name}, and it writes the whole tile; only these transposes "
                f"write {turn.made.name}",
                plan=f"{_lines(found).capitalize()} transposes blocks of {name} on the tensor engine. {instead}",
                benefit=0.1 if busy_share(profile, "dma") < 0.5 < busy_share(profile, "tensor") else 0.01,
                gain_percent=(-10.0, 10.0),
            )


def _lines(found: _Turn) -> str:
    """Return the lines of the transposes as text, such as ``line 12`` or ``each of lines 12, 13``."""
    lines = [str(one.line) for one in found.turns]
    return f"line {lines[0]}" if len(lines) == 1 else f"each of lines {', '.join(lines)}"


def _turn(kernel: KernelModule, turn: Statement) -> _Turn | None:
    """Return the transposes of a tile, if the statement ``turn`` is the first of them.

    Return None if the statement is no transpose or not the tile's first transpose. Also return None if the rule does
    not know the statement that makes the tile, the tile's shape or its dtype.
    """
    data = turn.reads.get("data")
    if turn.kind != "op" or turn.op != "nc_transpose" or data is None or turn.target is None:
        return None
    tile, made, makers = kernel.buffers.get(data.name), kernel.buffers.get(turn.made.name), kernel.writers(data.name)
    if tile is None or made is None or tile.space != "sbuf" or made.space != "psum" or len(makers) != 1:
        return None
    maker, shape = makers[0], tuple(one for one in tile.shape if one is not None)
    types = [kernel.declared_dtype(one.name) for one in (tile, made)]
    if len(tile.shape) != 2 or len(shape) != 2 or maker.kind != "op" or maker.made.dims is not None:
        return None
    if types[0] != types[1] or types[0].rpartition(".")[2] not in _DTYPES:
        return None
    loops = tuple(reversed(around(maker)))
    if any(loop.trips is None for loop in loops):
        return None
    turns = [one for one in kernel.writers(turn.made.name) if one.op == "nc_transpose"]
    turns = [one for one in turns if "data" in one.reads and one.reads["data"].name == data.name]
    if turn is not turns[0]:
        return None
    counts = tuple(map(kernel.count, loops))
    return _Turn(
        tuple(turns), data, maker, (shape[0], shape[1]), counts, tuple(loop.variable for loop in loops), types[0]
    )


def _obstacle(kernel: KernelModule, found: _Turn) -> str:
    """Return the reason why a transfer can not transpose the tile; empty if it can."""
    name, made = found.data.name, found.turns[0].made.name
    declared = [kernel.buffers[one].declaration for one in (name, made)]
    where = f"line {found.turns[0].line}"
    problem = one_name(kernel, (name, made))
    if problem:
        return problem
    if kernel.writers(made) != list(found.turns):
        return f"{where}: {made} is written in several lines: give the transpose a tile of its own"
    for turn in found.turns:
        problem = _no_block(kernel, turn)
        if problem:
            return problem
    if found.maker.second is not None or found.maker.augmented:
        return (
            f"line {found.maker.line} adds to {name}, or has a second result: make {name} by an instruction of its own"
        )
    parent = found.maker.parent
    if parent is not None and not all(inside(one, parent) for one in (*found.turns, *declared)):
        return f"{where}: {name} or {made} outlives the iteration that makes {name}: declare both in the loop of line {parent.line}"
    if found.maker.start > found.turns[0].start:
        return f"{where} reads {name} before line {found.maker.line} makes it: make it first"
    return ""


def _no_block(kernel: KernelModule, turn: Statement) -> str:
    """Return the reason why a transfer can not do the transpose ``turn``; empty if it can."""
    extents = kernel.extents(turn.reads["data"])
    if turn.args.keys() - {"dst", "data"} or turn.second is not None:
        return f"line {turn.line} names an engine or another option: leave that argument out"
    if extents is None or len(extents) != 2 or extents[0] % _ROWS or max(extents) > 128:
        return f"line {turn.line} does not transpose rows by {_ROWS} and at most 128 columns, which a transfer needs: transpose such blocks"
    return ""


def _loaded(kernel: KernelModule, found: _Turn) -> tuple[str, ...]:
    """Return, for each transpose, the text of the part of an argument in HBM that holds the block to transpose.

    The result is () unless a transfer loads the tile from an argument of the same dtype that the kernel does not
    change, and the text of each part is valid where the tile is transposed.
    """
    parts = tuple(_part(kernel, found, turn) for turn in found.turns)
    return parts if all(parts) else ()


def _part(kernel: KernelModule, found: _Turn, turn: Statement) -> str:
    maker, data = found.maker, turn.reads["data"]
    source = maker.reads.get("src")
    if maker.op != "dma_copy" or maker.args.keys() - {"dst", "src"} or source is None or source.dims is None:
        return ""
    if kernel.dtypes.get(source.name) != found.dtype.rpartition(".")[2] or kernel.writers(source.name):
        return ""
    loops = around(maker)
    variables = {loop.variable for loop in loops}
    names = {one.id for one in ast.walk(source.node) if isinstance(one, ast.Name)}
    changed = {loop.variable for loop in around(turn) if loop not in loops}
    if (
        names - variables - {source.name, prefix(kernel, "language")}
        or names & changed
        or one_name(kernel, [source.name])
    ):
        return ""
    wide = [number for number, dim in enumerate(source.dims) if not dim.is_point]
    if tuple(source.dims[number].extent for number in wide) != found.shape:
        return ""
    texts = [dim.text for dim in source.dims]
    for number, extent, block in zip(wide, found.shape, data.dims or (None, None), strict=True):
        if block is not None and not block.covers(extent):
            if source.dims[number].form != Affine():
                return ""
            texts[number] = block.text
    return f"{source.name}[{', '.join(texts)}]"


def _from_source(kernel: KernelModule, found: _Turn, parts: Sequence[str], _: Variant) -> str:
    """Return the source in which the blocks are loaded transposed, from the place in HBM from which the tile is
    loaded. If nothing else reads the tile, the tile itself is not loaded.
    """
    edits, name, made = Edits(kernel.source), found.data.name, found.turns[0].made.name
    isa, language = prefix(kernel, "isa"), prefix(kernel, "language")
    for turn, part in zip(found.turns, parts, strict=True):
        edits.replace(turn.start, turn.end, f"{isa}.dma_transpose(dst={kernel.text(turn.made.node)}, src={part})")
    edits.replace(*kernel.span(kernel.buffers[made].declaration.args["buffer"]), f"{language}.sbuf")
    declaration = kernel.declaration(name)
    unread = kernel.readers(name) == list(found.turns) and kernel.named[name] == 2 + len(found.turns)
    if unread and declaration is not None:
        for one in (declaration, found.maker):
            edits.delete_lines(one.start, one.end)
    return edits.apply()


def _by_transfer(kernel: KernelModule, found: _Turn, _: Variant) -> str:
    """Return the source in which the tile is stored where it is made, and its blocks are loaded transposed."""
    language, isa, name = prefix(kernel, "language"), prefix(kernel, "isa"), found.data.name
    kept = kernel.fresh(f"{name}_kept")
    rows, columns = found.shape
    whole = ", ".join([*found.counts, str(rows), str(columns)])
    place = "".join(f"{one}, " for one in found.places)
    edits = Edits(kernel.source)
    loops = around(found.maker)
    first = first_line(kernel, loops[-1]) if loops else found.maker.start
    indent = loops[-1].indent if loops else found.maker.indent
    declared = f"{kept} = {language}.ndarray(({whole}), dtype={found.dtype}, buffer={language}.private_hbm)\n"
    edits.insert(first, f"{indent}{declared}" if loops else f"{declared}{indent}")
    store = f"{isa}.dma_copy(dst={kept}[{place}0:{rows}, 0:{columns}], src={name})\n"
    edits.insert(kernel.after_line(found.maker.end), f"{found.maker.indent}{store}")
    for turn in found.turns:
        node, target = turn.reads["data"].node, kernel.text(turn.made.node)
        block = kernel.text(node.slice) if isinstance(node, ast.Subscript) else f"0:{rows}, 0:{columns}"
        edits.replace(turn.start, turn.end, f"{isa}.dma_transpose(dst={target}, src={kept}[{place}{block}])")
    declaration = kernel.buffers[found.turns[0].made.name].declaration
    edits.replace(*kernel.span(declaration.args["buffer"]), f"{language}.sbuf")
    return edits.apply()


RULE = TurnByTransfer()
