"""Encode programs as JSON of limited size, and decode untrusted bytes safely.

``decode`` accepts any bytes. It returns a structurally valid :class:`Program` or raises :class:`ProgramError`.
It never executes, imports or unpickles anything, and refuses input beyond the limits below. It checks only
structure and references; :mod:`acceld.nki.verify.verifier` checks the rules of the chip.

A *place* is text that lists the calls in files other than the kernel's own that made a buffer or an
instruction.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn, cast

from acceld.nki.errors import ProgramError
from acceld.nki.ir.operations import DTYPE_BYTES, OPS
from acceld.nki.ir.program import (
    MAX_INSTRUCTIONS,
    RUN_TIME,
    SCHEMA_VERSION,
    Access,
    Affine,
    Attr,
    Buffer,
    Engine,
    Indirect,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Notice,
    Operand,
    Pattern,
    Program,
    Role,
    Space,
    TileDim,
)

MAX_BYTES = 512 * 1024 * 1024
MAX_BUFFERS = 200_000
MAX_CONSTANT_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
MAX_AXES = 12
MAX_BLOCKS = 65_536
MAX_DIM = 2**40
MAX_TEXT = 4096
MAX_REPEATED = 1 << 28
"""Limit on the total length of the repeated parts that a program names by number. Without a limit, a short text
could decode to an endless program.
"""


def encode(program: Program) -> bytes:
    """Return the program as UTF-8 JSON."""
    return _json(_Encoder().program(program)).encode()


def program_hash(program: Program) -> str:
    """Return the SHA-256 (hex) of the program without names, lines, places and notices.

    So two sources that differ only in comments, names or formatting have the same hash. The hashed text writes
    out each part that the encoded JSON names by number.
    """
    return hashlib.sha256(_Canonical(program).text().encode()).hexdigest()


def decode(data: bytes) -> Program:
    """Return the program that ``data`` encodes. Raise ProgramError if ``data`` is not an encoded program, or
    goes beyond the limits.
    """
    if len(data) > MAX_BYTES:
        raise ProgramError(
            f"the encoded program has {len(data)} bytes; at most {MAX_BYTES} are allowed: use loops in place of repeated instructions"
        )
    try:
        raw = json.loads(data)
        return _Decoder().program(raw)
    except ProgramError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise ProgramError(
            f"the bytes are not an encoded program: {type(error).__name__}: {str(error)[:200]}"
        ) from error


def _affine(value: Affine) -> list[Any]:
    return [value.const, *([loop, coef] for loop, coef in value.terms)]


def _pattern(value: Pattern) -> list[Any]:
    return [_affine(value.base), list(value.coefs)]


def _tile(value: Access, access: Callable[[Access], Any]) -> dict[str, Any]:
    """Return an access as plain data, without its buffer's id.

    If the access has run-time indices in a tile, ``access`` converts the access to that tile.
    """
    out: dict[str, Any] = {
        "s": [_affine(start) for start in value.start],
        "d": [[dim.count, *dim.steps] for dim in value.dims],
    }
    if value.dtype:
        out["t"] = value.dtype
    if value.indirect:
        out["i"] = [
            [i.dim, i.scale, i.register, None if i.index is None else access(i.index), i.axis] for i in value.indirect
        ]
    return out


def _form(node: Instruction) -> dict[str, Any]:
    """Return an instruction's attributes, mask and pattern as plain data; {} if the instruction has none of the
    three.
    """
    out: dict[str, Any] = {}
    if node.attrs:
        out["a"] = {key: list(value) if isinstance(value, tuple) else value for key, value in sorted(node.attrs)}
    if node.mask:
        out["m"] = [_pattern(pattern) for pattern in node.mask]
    if node.pattern is not None:
        out["p"] = _pattern(node.pattern)
    return out


def _loop(node: Loop) -> dict[str, Any]:
    """Return a loop as plain data, without its name, line and body."""
    out: dict[str, Any] = {"loop": node.id, "n": node.trips, "k": node.kind.value}
    if node.trips_register is not None:
        out["r"] = node.trips_register
    return out


def _declared(buffer: Buffer) -> dict[str, Any]:
    """Return a buffer as plain data, without its name, line and place."""
    out: dict[str, Any] = {
        "space": buffer.space.value,
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "par": buffer.partition_axis,
        "role": buffer.role.value,
    }
    if buffer.scope:
        out["scope"] = list(buffer.scope)
    if buffer.address is not None:
        out["address"] = list(buffer.address)
    if buffer.blocks:
        out["blocks"] = [list(one) for one in buffer.blocks]
    if buffer.data is not None:
        out["data"] = base64.b64encode(buffer.data).decode()
    if buffer.written_input:
        out["written"] = True
    if buffer.argument_shape is not None:
        out["outer"] = list(buffer.argument_shape)
    return out


def _interface(program: Program) -> dict[str, Any]:
    return {
        "schema": program.schema,
        "api": program.api,
        "chip": program.chip,
        "grid": list(program.grid),
        "lnc": program.lnc,
        "registers": program.registers,
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=True)


class _Encoder:
    """Turn one program into plain data.

    A tile, an instruction or a buffer that equals an earlier one is written as that earlier part's number.
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.tiles: dict[object, int] = {}
        self.forms: dict[object, int] = {}
        self.declared: dict[object, int] = {}

    def program(self, program: Program) -> dict[str, Any]:
        out = _interface(program)
        out["buffers"] = [self.buffer(number, buffer) for number, buffer in enumerate(program.buffers)]
        out["body"] = [self.node(node) for node in program.body]
        out |= {"entry": program.entry, "notices": [[notice.line, notice.text] for notice in program.notices]}
        if self.places:
            out["places"] = list(self.places)
        return out

    def access(self, value: Access) -> dict[str, Any]:
        if not value.indirect:
            start = tuple([(one.const, one.terms) for one in value.start])
            dims = tuple([(dim.count, dim.steps) for dim in value.dims])
            number = _known(self.tiles, (start, dims, value.dtype))
            if number is not None:
                return {"b": value.buffer, "n": number}
        return {"b": value.buffer, **_tile(value, self.access)}

    def operand(self, value: Operand) -> Any:
        if isinstance(value, Access):
            return self.access(value)
        return _pattern(value) if isinstance(value, Pattern) else value

    def node(self, node: Node) -> dict[str, Any]:
        if isinstance(node, Loop):
            body = [self.node(child) for child in node.body]
            return {**_loop(node), "name": node.name, "line": node.line, "body": body}
        # attributes are compared as text, because 1, 1.0 and True are equal
        number = _known(self.forms, (node.op, node.engine, repr(node.attrs), node.mask, node.pattern))
        out: dict[str, Any] = {"op": node.op, "e": node.engine.value} if number is None else {"o": number}
        out["w"] = [self.access(dst) for dst in node.dsts]
        if node.srcs:
            out["r"] = [self.operand(src) for src in node.srcs]
        if number is None:
            out |= _form(node)
        return self.placed(out, "l", node)

    def buffer(self, number: int, buffer: Buffer) -> dict[str, Any]:
        like = number if buffer.data is not None else self.declared.setdefault(_KIND(buffer), number)
        out: dict[str, Any] = _declared(buffer) if like == number else {"like": like}
        out["name"] = buffer.name
        return self.placed(out, "line", buffer)

    def placed(self, out: dict[str, Any], line: str, what: Buffer | Instruction) -> dict[str, Any]:
        out[line] = what.line
        if what.place:
            out["f"] = self.places.setdefault(what.place, len(self.places))
        return out


class _Canonical:
    """Write the text that :func:`program_hash` hashes.

    Instructions have many parts in common, so the text of a part is made once.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tiles: dict[object, str] = {}
        self.forms: dict[object, tuple[str, str]] = {}
        self.declared: dict[object, str] = {}

    def text(self) -> str:
        buffers = ",".join([self.buffer(buffer) for buffer in self.program.buffers])
        return f'{_json(_interface(self.program))[:-1]},"buffers":[{buffers}],"body":[{self.body(self.program.body)}]}}'

    def body(self, body: tuple[Node, ...]) -> str:
        return ",".join([self.node(node) for node in body])

    def buffer(self, buffer: Buffer) -> str:
        key = (_KIND(buffer), buffer.data)
        found = self.declared.get(key)
        if found is None:
            found = self.declared[key] = _json(_declared(buffer))
        return found

    def node(self, node: Node) -> str:
        if isinstance(node, Loop):
            return f'{_json(_loop(node))[:-1]},"body":[{self.body(node.body)}]}}'
        # the program keeps these objects, so their ids stay unique
        key = (node.op, node.engine, id(node.attrs), id(node.mask), id(node.pattern))
        form = self.forms.get(key)
        if form is None:
            rest = _form(node)
            start = _json({"op": node.op, "e": node.engine.value})[:-1]
            form = self.forms[key] = start, f",{_json(rest)[1:]}" if rest else "}"
        writes = ",".join([self.operand(dst) for dst in node.dsts])
        reads = ",".join([self.operand(src) for src in node.srcs])
        operands = f'"w":[{writes}],"r":[{reads}]' if reads else f'"w":[{writes}]'
        return f"{form[0]},{operands}{form[1]}"

    def operand(self, value: Operand) -> str:
        if not isinstance(value, Access):
            return _json(_pattern(value) if isinstance(value, Pattern) else value)
        if value.indirect:
            return _json(_access(value))
        key = (id(value.start), id(value.dims), value.dtype)
        tile = self.tiles.get(key)
        if tile is None:
            tile = self.tiles[key] = _json(_tile(value, _access))[1:]
        return f'{{"b":{value.buffer},{tile}'


def _access(value: Access) -> dict[str, Any]:
    return {"b": value.buffer, **_tile(value, _access)}


_KIND = attrgetter(
    "space", "dtype", "shape", "partition_axis", "role", "scope", "address", "blocks", "written_input", "argument_shape"
)
"""A function that returns the fields of a buffer except its number, name, line, place and data."""


_LEAST = {
    op: tuple(sum(not one.optional for one in ones) for ones in (spec.dsts, spec.srcs)) for op, spec in OPS.items()
}
"""Least numbers of destinations and sources, by operation."""


def _known(numbers: dict[object, int], key: object) -> int | None:
    """Return the number that ``key`` has in ``numbers``; None for a new key, to which the next number is then given."""
    found = numbers.get(key)
    if found is None:
        numbers[key] = len(numbers)
    return found


def _refuse(message: str) -> NoReturn:
    raise ProgramError(message)


def _int(value: Any, low: int = -MAX_DIM, high: int = MAX_DIM) -> int:
    if type(value) is not int or not low <= value <= high:
        _refuse(f"expected an integer from {low} to {high}, got {str(value)[:40]!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse(f"expected a text, got a value of type {type(value).__name__}")
    if len(value) > MAX_TEXT:
        _refuse(f"a text has {len(value)} characters; at most {MAX_TEXT} are allowed")
    return value


def _list(value: Any, longest: int) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"expected a list, got a value of type {type(value).__name__}")
    if len(value) > longest:
        _refuse(f"a list has {len(value)} entries; at most {longest} are allowed")
    return value


class _Decoder:
    """Decode one program. Raise ProgramError for a reference to a buffer, loop or register that the program
    does not declare.
    """

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.loops: set[int] = set()
        self.open: list[int] = []
        self.nodes = 0
        self.constant_bytes = 0
        self.registers = 0
        self.axes: dict[str, tuple[TileDim, ...]] = {}
        """Axes of tiles by their JSON text. Most tiles of a long program have the same axes as another tile."""
        self.constants: dict[int, Affine] = {}
        """Expressions without loop variables, by their constant value."""
        self.tiles: list[tuple[Access, int]] = []
        """Each tile that the JSON writes in full, so that later tiles can name it by number, and its approximate
        length.
        """
        self.forms: list[tuple[Instruction, int]] = []
        """Each instruction that the JSON writes in full, so that later instructions can name it by number, and its
        approximate length.
        """
        self.repeated = 0

    def program(self, raw: Any) -> Program:
        if not isinstance(raw, dict):
            _refuse(f"expected a JSON object for the program, got a {type(raw).__name__}")
        if raw["schema"] != SCHEMA_VERSION:
            _refuse(
                f"the program has schema {str(raw['schema'])[:20]}; this version reads schema {SCHEMA_VERSION}: trace the kernel again"
            )
        self.registers = _int(raw["registers"], 0, 100_000)
        self.places = [_text(place) for place in _list(raw.get("places", []), MAX_INSTRUCTIONS)]
        for number, buffer in enumerate(_list(raw["buffers"], MAX_BUFFERS)):
            self.buffers.append(self.buffer(number, buffer))
        body = self.body(raw["body"], 0)
        for buffer in self.buffers:
            if not set(buffer.scope) <= self.loops:
                _refuse(f"buffer {buffer.id} is declared in a loop that does not exist")
        inputs, outputs = (tuple(self.buffer_id(i) for i in _list(raw[key], 1000)) for key in ("inputs", "outputs"))
        for ids, role in ((inputs, Role.INPUT), (outputs, Role.OUTPUT)):
            for i in ids:
                allowed = {role, Role.INPUT} if role is Role.OUTPUT else {role}
                if self.buffers[i].role not in allowed or self.buffers[i].space is not Space.HBM:
                    _refuse(f"buffer {i} can not be an {role.value}")
        return Program(
            api=_text(raw["api"]),
            chip=_text(raw["chip"]),
            entry=_text(raw["entry"]),
            buffers=tuple(self.buffers),
            body=body,
            inputs=inputs,
            outputs=outputs,
            grid=tuple(_int(n, 1, 65536) for n in _list(raw["grid"], 4)),
            lnc=_int(raw["lnc"], 1, 2),
            registers=self.registers,
            notices=tuple(Notice(_int(line, 0), _text(text)) for line, text in _list(raw["notices"], 10_000)),
        )

    def buffer_id(self, value: Any) -> int:
        return _int(value, 0, len(self.buffers) - 1)

    def buffer(self, number: int, raw: Any) -> Buffer:
        if "like" in raw:
            other = self.buffers[_int(raw["like"], 0, number - 1)]
            if other.data is not None:
                _refuse(
                    f"buffer {number} is declared like buffer {other.id}, which is a constant and can not be repeated"
                )
            return Buffer(
                number,
                _text(raw["name"]),
                other.space,
                other.dtype,
                other.shape,
                other.partition_axis,
                other.role,
                other.scope,
                _int(raw["line"], 0),
                other.address,
                None,
                other.written_input,
                other.argument_shape,
                self.place(raw),
                other.blocks,
            )
        shape = tuple(_int(n, 0) for n in _list(raw["shape"], MAX_AXES))
        dtype = _text(raw["dtype"])
        if dtype not in DTYPE_BYTES:
            _refuse(f"buffer {number} has the unknown dtype {dtype!r}")
        if math.prod(shape) > MAX_DIM:
            _refuse(f"buffer {number} has {math.prod(shape)} elements; at most {MAX_DIM} are allowed")
        space, role, partition_axis = Space(raw["space"]), Role(raw["role"]), _int(raw["par"], -1, len(shape) - 1)
        if (space is Space.HBM) != (partition_axis == -1):
            _refuse(
                f"buffer {number} is in {space.value} with partition axis {partition_axis}: the axis of a buffer on chip is 0 or more, that of a buffer in HBM -1"
            )
        data = None
        if "data" in raw:
            try:
                data = base64.b64decode(raw["data"], validate=True)
            except binascii.Error as error:
                raise ProgramError(f"the data of constant buffer {number} are not base64") from error
            self.constant_bytes += len(data)
            if role is not Role.CONSTANT or len(data) != math.prod(shape) * DTYPE_BYTES[dtype]:
                _refuse(
                    f"buffer {number} has {len(data)} bytes of data: only a constant has data, as many bytes as its shape needs"
                )
            if self.constant_bytes > MAX_CONSTANT_BYTES:
                _refuse(
                    f"the constants take {self.constant_bytes} bytes; at most {MAX_CONSTANT_BYTES} are allowed: pass large data as an argument"
                )
        elif role is Role.CONSTANT:
            _refuse(f"buffer {number} is a constant without data")
        address = None
        if "address" in raw:
            partition, offset = raw["address"]
            address = (_int(partition, 0), _int(offset, 0))
        blocks = tuple(
            (_int(partition, 0), _int(offset, 0)) for partition, offset in _list(raw.get("blocks", []), MAX_BLOCKS)
        )
        if blocks and (address is not None or len(blocks) != math.prod(shape[: max(0, partition_axis)])):
            _refuse(f"buffer {number} has {len(blocks)} block addresses: give one for each block, and no other address")
        outer = None
        if "outer" in raw:
            outer = tuple(_int(n, 0) for n in _list(raw["outer"], MAX_AXES))
            if math.prod(outer) != math.prod(shape) or role not in (Role.INPUT, Role.OUTPUT):
                _refuse(
                    f"buffer {number} of shape {list(shape)} can not be the caller's array of shape {list(outer)}: both need the same number of elements, and the buffer must be an input or output"
                )
        return Buffer(
            id=number,
            name=_text(raw["name"]),
            space=space,
            dtype=dtype,
            shape=shape,
            partition_axis=partition_axis,
            role=role,
            scope=tuple(_int(i, 0) for i in _list(raw.get("scope", []), MAX_DEPTH)),
            line=_int(raw["line"], 0),
            address=address,
            data=data,
            written_input=raw.get("written", False) is True,
            argument_shape=outer,
            place=self.place(raw),
            blocks=blocks,
        )

    def place(self, raw: dict[str, Any]) -> str:
        """Return the ``place`` text of the buffer or instruction that ``raw`` encodes; empty if ``raw`` gives no
        place.
        """
        return self.places[_int(raw["f"], 0, len(self.places) - 1)] if "f" in raw else ""

    def body(self, raw: Any, depth: int) -> tuple[Node, ...]:
        if depth > MAX_DEPTH:
            _refuse(f"loops are nested deeper than {MAX_DEPTH}")
        return tuple(self.node(node, depth) for node in _list(raw, MAX_INSTRUCTIONS))

    def node(self, raw: Any, depth: int) -> Node:
        self.nodes += 1
        if self.nodes > MAX_INSTRUCTIONS:
            _refuse(f"the program has more than {MAX_INSTRUCTIONS} instructions")
        if "loop" in raw:
            number = _int(raw["loop"], 0, MAX_INSTRUCTIONS)
            if number in self.loops:
                _refuse(f"two loops have the id {number}")
            self.loops.add(number)
            self.open.append(number)
            body = self.body(raw["body"], depth + 1)
            self.open.pop()
            kind, register = LoopKind(raw["k"]), raw.get("r")
            if (kind in RUN_TIME) != (register is not None):
                _refuse(
                    f"loop {number} is {kind.value} with register {register}: a loop has a register if its number of iterations is known only at run time, and only then"
                )
            return Loop(
                id=number,
                name=_text(raw["name"]),
                trips=_int(raw["n"], 0),
                kind=kind,
                body=body,
                line=_int(raw["line"], 0),
                trips_register=None if register is None else self.register(register),
            )
        like = None
        if "o" in raw:
            like, length = self.forms[_int(raw["o"], 0, len(self.forms) - 1)]
            self.repeat(length)
        op = _text(raw["op"]) if like is None else like.op
        spec = OPS.get(op)
        if spec is None:
            _refuse(f"unknown operation {op!r}")
        dsts = tuple([self.access(a) for a in _list(raw["w"], len(spec.dsts))])
        srcs = tuple([self.operand(a) for a in _list(raw.get("r", []), len(spec.srcs))])
        least_dsts, least_srcs = _LEAST[op]
        if len(dsts) < least_dsts:
            _refuse(f"{op} has fewer destinations than it needs")
        if len(srcs) < least_srcs:
            _refuse(f"{op} has fewer source operands than it needs")
        line, place = _int(raw["l"], 0), self.place(raw)
        if like is not None:
            for pattern in like.mask if like.pattern is None else (*like.mask, like.pattern):
                for loop, _ in pattern.base.terms:
                    self.inside(loop)
            return Instruction(op, like.engine, dsts, srcs, like.attrs, like.mask, like.pattern, line, place)
        attrs = raw.get("a", {})
        if not isinstance(attrs, dict) or not attrs.keys() <= spec.attrs:
            _refuse(f"{op} has an attribute that the operation does not take")
        made = Instruction(
            op=op,
            engine=Engine(raw["e"]),
            dsts=dsts,
            srcs=srcs,
            attrs=tuple((key, self.attr(value)) for key, value in sorted(attrs.items())),
            mask=tuple(self.pattern(p) for p in _list(raw.get("m", []), 16)),
            pattern=self.pattern(raw["p"]) if "p" in raw else None,
            line=line,
            place=place,
        )
        self.forms.append((made, len(str(made.attrs)) + len(str(made.mask)) + len(str(made.pattern))))
        return made

    def repeat(self, length: int) -> None:
        self.repeated += length
        if self.repeated > MAX_REPEATED:
            _refuse("the program repeats too much: its parts that are named by number are too long when written out")

    def register(self, value: Any) -> int:
        return _int(value, 0, self.registers - 1)

    def attr(self, value: Any) -> Attr:
        if isinstance(value, list):
            entries = _list(value, 4096)
            if all(isinstance(entry, str) for entry in entries):
                return tuple(_text(entry) for entry in entries)
            return tuple(_int(entry) for entry in entries)
        if value is None or isinstance(value, bool | int | float):
            return cast("Attr", value)
        return _text(value)

    def operand(self, value: Any) -> Operand:
        if isinstance(value, dict):
            return self.access(value)
        if isinstance(value, list):
            return self.pattern(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(f"an operand is neither a tile nor a number: {str(value)[:40]!r}")
        return value

    def affine(self, raw: Any) -> Affine:
        const, *terms = _list(raw, MAX_DEPTH + 1)
        out = self.constants.get(_int(const))
        if out is None:
            out = self.constants[const] = Affine(const)
        for loop, coef in terms:
            self.inside(loop)
            out = out + Affine(0, ((loop, _int(coef)),) if coef else ())
        return out

    def inside(self, loop: Any) -> None:
        if loop not in self.open:
            _refuse(f"loop {str(loop)[:20]} is used outside of its body")

    def pattern(self, raw: Any) -> Pattern:
        base, coefs = raw
        return Pattern(self.affine(base), tuple(_int(c) for c in _list(coefs, MAX_AXES)))

    def access(self, raw: Any, depth: int = 0) -> Access:
        if depth > 2:
            _refuse("tiles of indices are nested too deep")
        buffer = self.buffers[self.buffer_id(raw["b"])]
        rank = len(buffer.shape)
        if "n" in raw:
            like, length = self.tiles[_int(raw["n"], 0, len(self.tiles) - 1)]
            self.repeat(length)
            for one in like.start:
                for loop, _ in one.terms:
                    self.inside(loop)
            made = Access(buffer.id, like.start, like.dims, (), like.dtype)
            self.fits(buffer, made)
            return made
        start = tuple([self.affine(a) for a in _list(raw["s"], MAX_AXES)])
        written = repr(raw["d"])
        dims = self.axes.get(written)
        if dims is None:
            dims = self.axes[written] = tuple(
                TileDim(_int(count, 0), tuple(_int(step) for step in steps))
                for count, *steps in _list(raw["d"], MAX_AXES)
            )
        indirect = []
        for dim, scale, register, index, axis in _list(raw.get("i", []), MAX_AXES):
            indirect.append(
                Indirect(
                    dim=_int(dim, 0, rank - 1),
                    scale=_int(scale),
                    register=None if register is None else self.register(register),
                    index=None if index is None else self.access(index, depth + 1),
                    axis=_int(axis, 0, max(0, len(dims) - 1)),
                )
            )
        made = Access(buffer.id, start, dims, tuple(indirect), _text(raw.get("t", "")))
        self.fits(buffer, made)
        if not indirect:
            self.tiles.append((made, len(written) + sum([8 + 24 * len(index.terms) for index in start])))
        return made

    def fits(self, buffer: Buffer, tile: Access) -> None:
        """Raise ProgramError if a tile's rank or dtype does not fit its buffer."""
        rank = len(buffer.shape)
        if len(tile.start) != rank or any(len(dim.steps) != rank for dim in tile.dims):
            _refuse(f"a tile of buffer {buffer.id} has another rank than the buffer, which has {rank} dimensions")
        if tile.dtype and DTYPE_BYTES.get(tile.dtype) != DTYPE_BYTES[buffer.dtype]:
            _refuse(
                f"a tile of {buffer.dtype} can not be read as {tile.dtype!r}, which is of another width or is no dtype"
            )
