"""Programs as bytes: round trips, and bytes that are no program or a malicious one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from acceld.nki.errors import KernelFailure, ProgramError
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.ir import codec
from acceld.nki.ir.codec import decode, encode, program_hash
from acceld.nki.ir.operations import DTYPE_BYTES, OPS
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
    Engine,
    Indirect,
    Instruction,
    Loop,
    LoopKind,
    Pattern,
    Program,
    Role,
    Space,
    TileDim,
)
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.programs import Kernel, Run, at, var
from tests.properties import examples

OPTIONS = ExecuteOptions(max_bytes=1 << 26, deadline_s=5.0)


def sample() -> Program:
    """Return a program with loops, masks, a constant, a gather, registers, a product and a reduction."""
    kernel = Kernel()
    x, table = kernel.input((40, 16)), kernel.input((9, 16))
    eye = kernel.constant(np.eye(16, dtype=np.float32).tobytes(), (16, 16))
    ident, numbers = kernel.sbuf((16, 16)), kernel.loaded((16, 1), "int32")
    kernel.load(ident, eye)
    kernel.builder.register()
    kernel.op("register_move", (), 2, register=0)
    y, z = kernel.output((40, 16)), kernel.output((16, 16))
    total = kernel.sbuf((16, 1))
    with kernel.loop(3) as i:
        tile, turned, part = kernel.sbuf((16, 16)), kernel.psum((16, 16)), kernel.sbuf((16, 1))
        inside = (Pattern(var(i, -16, 39), (-1, 0)),)
        kernel.op("memset", at(tile), 0.0)
        here = Run(var(i, 16), 16)
        kernel.op("dma_copy", at(tile), at(x, here, Run(0, 16)), mask=inside)
        kernel.op("matmul", at(turned), [at(tile), at(ident)], accumulate="no", transpose=True, moving_onezero=True)
        kernel.op("activation", at(tile), [at(turned), 0.0, 1.0], func="gelu")
        kernel.op("tensor_reduce", at(part), at(tile), op="add", axes=(1,))
        kernel.op("loop_reduce", at(total), at(part), op="max", loops=(i.id,))
        kernel.op("dma_copy", at(y, here, Run(0, 16)), at(tile), mask=inside)
    gathered = kernel.sbuf((16, 16))
    kernel.op(
        "dma_copy", at(gathered), at(table, Run(0, 16, 0), Run(0, 16), indirect=(Indirect(0, index=at(numbers)),))
    )
    kernel.op("tensor_scalar", at(gathered), [at(gathered), at(total)], op0="add")
    row = at(table, Run(0, 1), Run(0, 16), indirect=(Indirect(0, register=0),))
    kernel.op("dma_copy", at(gathered, Run(0, 1), Run(0, 16)), row)
    kernel.store(z, gathered)
    return kernel.finish()


def inputs_of(program: Program) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    made = []
    for number in program.inputs:
        buffer = program.buffers[number]
        if buffer.elements > 1 << 20:
            raise MemoryError
        made.append(rng.integers(0, 4, buffer.shape).astype(np.float32))
    return made


def check(program: Program) -> list[np.ndarray[Any, Any]] | None:
    """Treat a received program as the judge does: verify it, and run it if it is legal. Any other error fails the test."""
    found = verify(program)
    if found:
        assert all(one.message for one in found)
        assert [one.message for one in found if one.rule == "unverifiable"] == []
        return None
    try:
        return execute(program, inputs_of(program), OPTIONS)
    except (KernelFailure, MemoryError):
        return None


def test_the_sample_is_legal_and_runs() -> None:
    program = sample()
    assert verify(program) == ()
    result = check(program)
    assert result is not None
    assert all(np.isfinite(one).all() for one in result)


def test_a_round_trip_changes_nothing() -> None:
    program = sample()
    again = decode(encode(program))
    assert again == program
    assert program_hash(again) == program_hash(program)
    assert encode(again) == encode(program)


def test_the_hash_ignores_names_and_lines_and_nothing_else() -> None:
    program = sample()
    renamed = replace(
        program, entry="other", buffers=tuple(replace(b, name=f"{b.name}_", line=b.line + 7) for b in program.buffers)
    )
    assert program_hash(renamed) == program_hash(program)
    longer = replace(program, buffers=(replace(program.buffers[0], shape=(41, 16)), *program.buffers[1:]))
    assert program_hash(longer) != program_hash(program)


def test_a_hash_is_the_same_in_all_versions() -> None:
    assert program_hash(sample()) == "5795c68dd141d2fbcb0a6c6954315eab8b51a11359ee729986efa89dd6602ab1"


def unrolled(blocks: int = 50) -> Program:
    """Return a program of equal blocks, each on buffers of its own."""
    kernel = Kernel()
    x, y = kernel.input((16, 16 * blocks)), kernel.output((16, 16 * blocks))
    for number in range(blocks):
        part = Run(16 * number, 16)
        tile, doubled = kernel.sbuf((16, 16)), kernel.sbuf((16, 16))
        kernel.op("dma_copy", at(tile), at(x, Run(0, 16), part))
        kernel.op("tensor_tensor", at(doubled), [at(tile), at(tile)], op="add")
        kernel.op("dma_copy", at(y, Run(0, 16), part), at(doubled))
    return kernel.finish()


def test_what_a_program_repeats_is_written_and_made_once() -> None:
    program = unrolled()
    again = decode(encode(program))
    assert again == program
    assert program_hash(again) == program_hash(program)
    assert encode(again) == encode(program)
    sums = [node for node, _ in again.walk() if node.op == "tensor_tensor"]
    assert len({id(node.attrs) for node in sums}) == len({id(node.dsts[0].start) for node in sums}) == 1
    assert encode(program).count(b'"add"') == encode(program).count(b'"sbuf"') == 1


def test_attributes_that_are_only_equal_are_not_taken_for_the_same() -> None:
    kernel = Kernel()
    tile = kernel.sbuf((4, 4))
    for value in (1, 1.0, True, 0.0, -0.0, 0, False):
        kernel.op("exponential", at(tile), [at(tile), 0.0], reduce_init=value)
    program = kernel.finish()
    assert repr(decode(encode(program))) == repr(program)


VALUES: tuple[Any, ...] = (
    *("add", "max", "multiply", "bitwise_and", "greater", "exp", "yes", "no", "auto", "reset_reduce", "skip"),
    *(True, False, None, 0, 1, -1, 2.5, (0,), (1,), (0, 1), (5,), tuple(range(32)), ("x",), 2**70),
)
small = st.integers(-3, 12)
affines = st.builds(Affine, small)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return programs of any operations on a few small buffers: mostly illegal, always decodable."""
    buffers = []
    for number in range(draw(st.integers(1, 4))):
        space = draw(st.sampled_from(list(Space)))
        shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
        buffers.append(
            Buffer(
                number,
                f"b{number}",
                space,
                draw(st.sampled_from(sorted(DTYPE_BYTES))),
                shape,
                -1 if space is Space.HBM else draw(st.integers(0, len(shape) - 1)),
                draw(st.sampled_from([Role.OUTPUT, Role.SCRATCH])) if space is Space.HBM else Role.SCRATCH,
            )
        )

    def access(loops: tuple[int, ...]) -> Access:
        buffer = draw(st.sampled_from(buffers))
        rank = len(buffer.shape)
        starts = []
        for _ in range(rank):
            loop = draw(st.sampled_from([-1, *loops]))
            coef = draw(st.integers(-2, 4))
            starts.append(Affine(draw(st.integers(-1, 4)), ((loop, coef),) if loop >= 0 and coef else ()))
        dims = []
        for _ in range(draw(st.integers(0, 3))):
            steps = tuple(draw(st.integers(-1, 2)) for _ in range(rank))
            dims.append(TileDim(draw(st.integers(0, 8)), steps))
        if draw(st.integers(0, 2)):
            whole = [TileDim(size, tuple(int(k == d) for k in range(rank))) for d, size in enumerate(buffer.shape)]
            starts, dims = [Affine() for _ in buffer.shape], whole
        indirect: tuple[Indirect, ...] = ()
        if not draw(st.integers(0, 7)):
            indirect = (Indirect(draw(st.integers(0, rank - 1)), draw(st.integers(-1, 3)), register=0),)
        return Access(buffer.id, tuple(starts), tuple(dims), indirect)

    def attribute(key: str) -> Any:
        return draw(st.sampled_from(VALUES))

    def instruction(loops: tuple[int, ...]) -> Instruction:
        op = draw(st.sampled_from(sorted(OPS)))
        spec = OPS[op]
        srcs = [
            access(loops) if draw(st.integers(0, 3)) else draw(st.sampled_from([0, 1.5, -1, float("nan"), 2**80]))
            for _ in spec.srcs
        ]
        dsts = [access(loops) for _ in spec.dsts]
        attrs = tuple((key, attribute(key)) for key in sorted(spec.attrs) if draw(st.booleans()))
        mask = tuple(
            Pattern(draw(affines), tuple(draw(st.lists(st.integers(-2, 2), max_size=4))))
            for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])))
        )
        pattern = Pattern(draw(affines), tuple(draw(st.lists(small, max_size=3)))) if draw(st.booleans()) else None
        return Instruction(op, draw(st.sampled_from(list(Engine))), tuple(dsts), tuple(srcs), attrs, mask, pattern)

    body: list[Any] = [instruction(()) for _ in range(draw(st.integers(1, 3)))]
    kind = draw(st.sampled_from([LoopKind.AFFINE, LoopKind.SEQUENTIAL, LoopKind.DYNAMIC]))
    inner = tuple(instruction((0,)) for _ in range(draw(st.integers(0, 2))))
    body.append(Loop(0, "i", draw(st.integers(0, 4)), kind, inner, 0, 0 if kind is LoopKind.DYNAMIC else None))
    outputs = tuple(buffer.id for buffer in buffers if buffer.role is Role.OUTPUT)
    return Program("nki_legacy", "trn1", "k", tuple(buffers), tuple(body), (), outputs, registers=1)


@given(programs())
@examples(40, suppress_health_check=[HealthCheck.large_base_example, HealthCheck.too_slow])
def test_programs_of_any_operations_are_evaluated_without_a_crash(program: Program) -> None:
    again = decode(encode(program))
    assert encode(again) == encode(program)
    check(again)


@given(programs())
@examples(40, suppress_health_check=[HealthCheck.large_base_example, HealthCheck.too_slow])
def test_execution_alone_refuses_what_verification_would_have_refused(program: Program) -> None:
    """Even unverified, a program can only end in results or in one of the kernel's own failures."""
    try:
        execute(program, [], OPTIONS)
    except KernelFailure as error:
        assert error.message


ENCODED = encode(sample())


@given(st.integers(0, len(ENCODED) - 1), st.integers(0, 7))
@examples(40)
def test_a_flipped_bit_is_refused_or_evaluated(position: int, bit: int) -> None:
    data = bytearray(ENCODED)
    data[position] ^= 1 << bit
    try:
        program = decode(bytes(data))
    except ProgramError:
        return
    check(program)


@given(st.integers(0, len(ENCODED) - 1))
@examples(20)
def test_a_truncated_program_is_refused(length: int) -> None:
    with pytest.raises(ProgramError):
        decode(ENCODED[:length])


@given(st.binary(max_size=200))
def test_bytes_that_are_no_program_are_refused(data: bytes) -> None:
    with pytest.raises(ProgramError):
        decode(data)


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in _numbers(inner, (*path, key))]
    if isinstance(value, list):
        return [found for key, inner in enumerate(value) for found in _numbers(inner, (*path, key))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


PLACES = _numbers(json.loads(ENCODED))


@given(st.sampled_from(PLACES), st.sampled_from([-1, 0, 1, 3, 129, 2**31, 2**40, -(2**40), 2**63, 10**400, 1.5]))
@examples(60)
def test_a_program_with_one_number_replaced_is_refused_or_evaluated(place: tuple[Any, ...], value: Any) -> None:
    raw = json.loads(ENCODED)
    at_place = raw
    for key in place[:-1]:
        at_place = at_place[key]
    at_place[place[-1]] = value
    try:
        program = decode(json.dumps(raw).encode())
    except ProgramError:
        return
    check(program)


def forged(change: Callable[[Any], None]) -> bytes:
    raw = json.loads(ENCODED)
    change(raw)
    return json.dumps(raw).encode()


def _deep(raw: Any) -> None:
    body = raw["body"]
    for number in range(100):
        body = [{"loop": 1000 + number, "n": 1, "k": "affine", "name": "", "line": 0, "body": body}]
    raw["body"] = body


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.update(schema=2),
        lambda raw: raw["buffers"][0].update(dtype="float33"),
        lambda raw: raw["buffers"][0].update(shape=[2**40, 2**40]),
        lambda raw: raw["buffers"][0].update(space="moon"),
        lambda raw: raw["buffers"][0].update(scope=[999]),
        lambda raw: raw.update(inputs=[99]),
        lambda raw: raw.update(outputs=[3]),
        lambda raw: raw["body"][0].update(op="os.system"),
        lambda raw: raw["body"][0].update(a={"evil": 1}),
        lambda raw: raw["body"][0]["w"][0].update(b=10**6),
        lambda raw: raw["body"][0]["w"][0].update(t="int8"),
        lambda raw: raw["body"][0]["w"][0].update(s=[[0, [77, 1]], [0]]),
        lambda raw: raw.update(body="x"),
        _deep,
    ],
)
def test_a_forged_field_is_refused(change: Callable[[Any], None]) -> None:
    with pytest.raises(ProgramError):
        decode(forged(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["buffers"][4].update(like=4),
        lambda raw: raw["buffers"][4].update(like=-1),
        lambda raw: raw["body"][4].update(o=10**6),
        lambda raw: raw["body"][4].update(o=-1),
        lambda raw: raw["body"][4].update(w=[]),
        lambda raw: raw["body"][4]["w"][0].update(n=10**6),
        lambda raw: raw["body"][4]["w"][0].update(n=-1),
        lambda raw: raw["body"][4]["w"][0].update(n=1.0),
        lambda raw: raw["body"][4]["w"][0].update(b=10**6),
        lambda raw: raw["buffers"][3].update(raw["buffers"][2] | {"shape": [16], "like": None}),
    ],
)
def test_a_forged_number_of_something_before_is_refused(change: Callable[[Any], None]) -> None:
    raw = json.loads(encode(unrolled(3)))
    change(raw)
    with pytest.raises(ProgramError):
        decode(json.dumps(raw).encode())


def test_a_tile_or_a_mask_is_not_repeated_outside_of_its_loop() -> None:
    kernel = Kernel()
    tile = kernel.sbuf((16, 16))
    with kernel.loop(3) as i:
        kernel.op("memset", at(tile, Run(0, 16), Run(var(i, 4), 4)), 0.0)
        kernel.op("memset", at(tile), 0.0, mask=(Pattern(var(i), (0, 0)),))
    kernel.op("memset", at(tile), 0.0)
    program = kernel.finish()
    raw = json.loads(encode(program))
    assert decode(json.dumps(raw).encode()) == program
    raw["body"][1]["w"][0]["n"] = 0
    with pytest.raises(ProgramError, match="outside of its body"):
        decode(json.dumps(raw).encode())
    raw["body"][1]["w"][0]["n"], raw["body"][1]["o"] = 1, 1
    with pytest.raises(ProgramError, match="outside of its body"):
        decode(json.dumps(raw).encode())


def test_a_program_is_not_repeated_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_REPEATED", 1000)
    with pytest.raises(ProgramError, match="repeats too much"):
        decode(encode(unrolled()))


def test_a_nest_of_arrays_too_deep_for_the_parser_is_refused() -> None:
    with pytest.raises(ProgramError):
        decode(b"[" * 100_000 + b"]" * 100_000)
