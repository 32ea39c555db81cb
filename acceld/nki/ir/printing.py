"""Print a program for people: one instruction on each line with its source line, indented by loops."""

from __future__ import annotations

from collections.abc import Iterator

from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Access, Affine, Loop, Node, Operand, Pattern, Program, Space


def program_text(program: Program) -> str:
    """Return the program as text: a header, the buffers, then the instructions."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    grid = f" grid {program.grid}" if program.grid else ""
    yield f"program {program.entry} ({program.api}, {program.chip}{grid}), schema {program.schema}, {program_hash(program)[:12]}"
    for buffer in program.buffers:
        shape = ", ".join(
            f"par {n}" if axis == buffer.partition_axis else str(n) for axis, n in enumerate(buffer.shape)
        )
        role = "" if buffer.role.value == "scratch" else f" {buffer.role}"
        where = f" at {', '.join(map(str, buffer.places))}" if buffer.places else ""
        yield f"  %{buffer.id} {buffer.space}{role} {buffer.dtype}[{shape}] {buffer.name}{where}".rstrip()
    names = _loop_names(program)
    yield from _body(program, program.body, names, 1)
    for notice in program.notices:
        yield f"note (line {notice.line}): {notice.text}"


def _loop_names(program: Program) -> dict[int, str]:
    """Return a name for each loop by id: the loop's variable. If several loops have the same variable, the id
    is added to the name.
    """
    loops = list(program.loops.values())
    given = [loop.name for loop in loops]
    return {loop.id: loop.name if given.count(loop.name) == 1 else f"{loop.name or 'i'}{loop.id}" for loop in loops}


def _body(program: Program, body: tuple[Node, ...], names: dict[int, str], depth: int) -> Iterator[str]:
    for node in body:
        if isinstance(node, Loop):
            trips = f"register {node.trips_register}" if node.trips_register is not None else str(node.trips)
            yield f"{'  ' * depth}for {names[node.id]} in {trips} ({node.kind})"
            yield from _body(program, node.body, names, depth + 1)
            continue
        targets = ", ".join(_access(program, dst, names) for dst in node.dsts)
        sources = ", ".join(_operand(program, src, names) for src in node.srcs)
        attrs = " ".join(f"{key}={value}" for key, value in node.attrs if value not in (None, False))
        mask = "".join(f" where {_pattern(p, names)} >= 0" for p in node.mask)
        pattern = f" pattern {_pattern(node.pattern, names)}" if node.pattern else ""
        line = f"  # line {node.line}" if node.line else ""
        head = f"{targets} = " if targets else ""
        yield f"{'  ' * depth}{head}{node.op}.{node.engine}({sources}) {attrs}{pattern}{mask}".rstrip() + line


def _affine(value: Affine, names: dict[int, str]) -> str:
    parts = [f"{names[loop]}" if coef == 1 else f"{coef}*{names[loop]}" for loop, coef in value.terms]
    if value.const or not parts:
        parts.append(str(value.const))
    return "+".join(parts).replace("+-", "-")


def _pattern(value: Pattern, names: dict[int, str]) -> str:
    parts = [f"{coef}*a{axis}" for axis, coef in enumerate(value.coefs) if coef]
    return "+".join([_affine(value.base, names), *parts]).replace("+-", "-")


def _operand(program: Program, value: Operand, names: dict[int, str]) -> str:
    if isinstance(value, Access):
        return _access(program, value, names)
    return _pattern(value, names) if isinstance(value, Pattern) else f"{value:g}"


def _access(program: Program, value: Access, names: dict[int, str]) -> str:
    buffer = program.buffers[value.buffer]
    starts = ", ".join(_affine(start, names) for start in value.start)
    shape = "x".join(str(n) for n in value.shape)
    strides = buffer.strides
    steps = ",".join(str(sum(s * w for s, w in zip(dim.steps, strides, strict=True))) for dim in value.dims)
    gather = " indirect" if value.indirect else ""
    cast = f" as {value.dtype}" if value.dtype else ""
    space = "" if buffer.space is not Space.PSUM else "psum "
    return f"{space}%{value.buffer}[{starts}]:{shape}:{steps}{cast}{gather}"
