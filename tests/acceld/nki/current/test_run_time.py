"""Loops on registers, and statements that the compiler reads differently from Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure, LegalityError
from acceld.nki.execute.answers import Answers
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.current import frontend
from acceld.nki.frontend.current.surface import COLLECTIVES
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Loop, LoopKind, Program
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_current import PRELUDE

COUNTDOWN = """
@nki.jit
def kernel(n, x):
    left = nl.load(n)
    one = nl.full((1, 1), 1, dtype=nl.int32)
    total = nl.zeros((1, 8), dtype=nl.float32)
    step = nl.load(x)
    again = nisa.register_alloc()
    nisa.register_load(again, left)
    def body(register):
        nisa.tensor_tensor(dst=total, data1=total, data2=step, op=nl.add)
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        following = nisa.register_alloc()
        nisa.register_load(following, left)
        return following
    {loop}
    out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out
"""
FUNCTION = "nl.while_loop(again, body)"
STATEMENT = """while again:
        nisa.tensor_tensor(dst=total, data1=total, data2=step, op=nl.add)
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        nisa.register_load(again, left)"""


def countdown(loop: str) -> Program:
    specs = [TensorSpec((1, 1), "int32"), TensorSpec((1, 8), "float32")]
    program = trace(PRELUDE + COUNTDOWN.format(loop=loop), specs, api="nki", chip="trn2")
    assert decode(encode(program)) == program and verify(program) == ()
    return program


@pytest.mark.parametrize("loop", [FUNCTION, STATEMENT])
@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_runs_as_long_as_its_register_is_not_zero(loop: str, trips: int) -> None:
    program = countdown(loop)
    assert [one.kind for one in program.loops.values()] == [LoopKind.WHILE]
    (out,) = execute(program, [np.array([[trips]], np.int32), np.full((1, 8), 1.5, np.float32)])
    np.testing.assert_array_equal(out, np.full((1, 8), 1.5 * trips, np.float32))


def test_the_latency_of_a_while_loop_says_that_it_is_of_one_trip() -> None:
    assert any("known at run time only" in warning for warning in timeline(countdown(FUNCTION)).warnings)


def test_a_while_loop_that_does_not_end_is_a_failure_of_the_kernel() -> None:
    program = countdown(FUNCTION)
    body = tuple(replace(node, trips=7) if isinstance(node, Loop) else node for node in program.body)
    with pytest.raises(KernelFailure, match="more than 7 times"):
        execute(replace(program, body=body), [np.array([[-1]], np.int32), np.zeros((1, 8), np.float32)])


def test_a_while_statement_on_python_values_is_a_loop_of_python() -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, left = nl.load(x), 3
    while left:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        left -= 1
    nl.store(out, tile)
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec((128, 8), "float32")], api="nki", chip="trn2")
    (out,) = execute(program, [np.zeros((128, 8), np.float32)])
    np.testing.assert_array_equal(out, np.full((128, 8), 3, np.float32))


def elementwise(statements: str, dtype: str = "float32", chip: str = "trn2") -> Program:
    body = "\n    ".join(
        ["tile = nl.load(x)", "made = nl.ndarray(x.shape, dtype=x.dtype)", *statements.split("\n"),
         "out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)", "nl.store(out, made)", "return out"]
    )  # fmt: skip
    source = f"{PRELUDE}\n@nki.jit\ndef kernel(x):\n    {body}\n"
    return trace(source, [TensorSpec((128, 8), dtype)], api="nki", chip=chip)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ("if tile is made:\n    pass", "'is' can not compare two tensors"),
        ("if tile is not made:\n    pass", "'is' can not compare two tensors"),
        ("count = nl.ndarray((128, 8), dtype=nl.int32)\nnisa.memset(count, 2.0)", "must be of the type of dst"),
        ("nl.ndarray((4, nl.par_dim(128), 8), dtype=nl.float32)", "other than the first"),
        ("nl.while_loop(1, None)", "must be a register"),
        (
            "nl.fori_loop(0, 4, lambda i: i == 0 and nisa.memset(made, 1.0))",
            "the index of nl.fori_loop is a run-time value",
        ),
        (
            "seen = []\nnl.fori_loop(0, 4, seen.append)\nseen[0] != seen[1]",
            "the index of nl.fori_loop is a run-time value",
        ),
        ("nisa.tensor_scalar(dst=made, data=tile, op0=nl.square)", "needs NeuronCore-v4"),
    ],
)
def test_what_the_documentation_calls_an_error_is_one(statements: str, words: str) -> None:
    with pytest.raises(LegalityError, match=words):
        for finding in verify(elementwise(statements)):
            raise LegalityError(finding.message, rule=finding.rule)


def test_texts_of_registers_and_of_run_time_indices_show_no_number() -> None:
    asserted = "nl.fori_loop(0, 4, texts.append)\nassert not any(one.isdigit() for text in texts for one in str(text))"
    elementwise("texts = [nisa.register_alloc(), nisa.register_alloc(3)]\n" + asserted + "\nnisa.memset(made, 1.0)")


def test_a_name_is_compared_with_none_and_a_number_fills_floats() -> None:
    program = elementwise("if tile is not None and x is not None:\n    nisa.memset(made, 2)")
    assert verify(program) == ()


@pytest.mark.parametrize(("op", "expected"), [("square", np.square), ("relu", lambda x: np.maximum(x, 0))])
def test_the_vector_engine_of_trn3_squares_and_clips(op: str, expected: np.ufunc) -> None:
    program = elementwise(f"nisa.tensor_scalar(dst=made, data=tile, op0=nl.{op})", chip="trn3")
    x = np.random.default_rng(0).standard_normal((128, 8)).astype(np.float32)
    assert verify(program) == ()
    np.testing.assert_array_equal(execute(program, [x])[0], expected(x))


def test_a_pattern_of_uneven_steps_is_moved_into_rows() -> None:
    body = """
@nki.jit
def kernel(x):
    tile = nl.ndarray((nl.par_dim(64), 6), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x.ap(pattern=[[65, 64], [7, 3], [2, 2]]))
    out = nl.ndarray((64, 6), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    program = trace(PRELUDE + body, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    assert verify(program) == ()
    steps = 65 * np.arange(64)[:, None, None] + 7 * np.arange(3)[:, None] + 2 * np.arange(2)
    np.testing.assert_array_equal(execute(program, [x])[0], x.reshape(-1)[steps].reshape(64, 6))


def test_a_register_is_loaded_from_a_tile_of_one_element() -> None:
    program = elementwise(
        "one = nl.ndarray((1, 1), dtype=nl.int32)\nnisa.memset(one, 3)\nheld = nisa.register_alloc()\n"
        "nisa.register_load(held, one)\ndef body(i):\n    nisa.memset(made, 1.0)\nnl.fori_loop(0, held, body)"
    )
    assert [loop.kind for loop in program.loops.values()] == [LoopKind.DYNAMIC]


def test_a_transpose_into_another_type_is_refused_unless_it_widens() -> None:
    body = """
@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 64), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    turned = nl.ndarray((64, 128), dtype=nl.INTO, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=tile)
    made = nl.ndarray((64, 128), dtype=nl.float32)
    nisa.tensor_copy(dst=made, src=turned)
    out = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=made)
    return out
"""
    for dtype, into, rules, is_noted in (
        ("float32", "float32", [], False),
        ("bfloat16", "float32", [], True),
        ("bfloat16", "float16", ["dtype"], True),
        ("float32", "bfloat16", ["dtype"], True),
    ):
        program = trace(PRELUDE + body.replace("INTO", into), [TensorSpec((128, 64), dtype)], api="nki", chip="trn2")
        assert [finding.rule for finding in verify(program)] == rules, (dtype, into)
        assert any("asks for one type" in one.text for one in program.notices) == is_noted, (dtype, into)


def test_a_wide_transpose_named_for_the_vector_engine_is_a_warning_and_timed_on_the_tensor_engine() -> None:
    body = """
@nki.jit
def kernel(x):
    made = nl.ndarray((128, 128), dtype=x.dtype)
    nisa.nc_transpose(dst=made, data=nl.load(x), engine=nisa.vector_engine)
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, made)
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec((128, 128), "float32")], api="nki", chip="trn2")
    assert verify(program) == ()
    assert ["documented for 32 x 32" in notice.text for notice in program.notices] == [True]
    assert timeline(program).engines["tensor"] > 0
    x = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    np.testing.assert_array_equal(execute(program, [x])[0], x.T)


@pytest.mark.parametrize(
    ("options", "space", "engine"),
    [
        ("op=nl.add", "sbuf", "gpsimd"),
        ("op=nl.add", "psum", "vector"),
        ("op=nl.bitwise_and", "sbuf", "vector"),
        ("op=nl.add, engine=nisa.vector_engine", "sbuf", "vector"),
    ],
)
def test_whole_numbers_are_added_exactly_on_gpsimd_unless_another_engine_is_named(
    options: str, space: str, engine: str
) -> None:
    body = f"""
@nki.jit
def kernel(x):
    made = nl.ndarray((8, 8), dtype=nl.int32, buffer=nl.{space})
    nisa.tensor_tensor(dst=made, data1=nl.load(x), data2=nl.load(x), {options})
    out = nl.ndarray((8, 8), dtype=nl.int32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(made))
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec((8, 8), "int32")], api="nki", chip="trn2")
    assert [node.engine.value for node, _ in program.walk() if node.op == "tensor_tensor"] == [engine]


@pytest.mark.parametrize(
    ("call", "engine"),
    [
        ("nl.add(a, b)", "gpsimd"),
        ("nl.subtract(a, b)", "gpsimd"),
        ("nl.multiply(a, b)", "gpsimd"),
        ("nl.maximum(a, b)", "gpsimd"),
        ("nl.minimum(a, b)", "gpsimd"),
        ("nl.equal(a, b, dtype=nl.int32)", "gpsimd"),
        ("nl.less(a, b, dtype=nl.int32)", "gpsimd"),
        ("nl.equal(a, b)", "vector"),
        ("nl.add(a, b, dtype=nl.float32)", "vector"),
        ("nl.bitwise_xor(a, b)", "vector"),
    ],
)
def test_functions_of_two_tiles_of_whole_numbers_are_exact_where_tensor_tensor_is(call: str, engine: str) -> None:
    body = f"""
@nki.jit
def kernel(x, y):
    a, b = nl.load(x), nl.load(y)
    made = {call}
    out = nl.ndarray((8, 8), dtype=made.dtype, buffer=nl.shared_hbm)
    nl.store(out, made)
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec((8, 8), "int32")] * 2, api="nki", chip="trn2")
    assert [node.engine.value for node, _ in program.walk() if node.op == "tensor_tensor"] == [engine]
    x = np.arange(2**24, 2**24 + 64, dtype=np.int32).reshape(8, 8)
    y = x + np.where(x % 3, 1, 0).astype(np.int32)
    name = call[3 : call.index("(")]
    exact = engine == "gpsimd" or name == "bitwise_xor"
    wanted = getattr(np, name)(x, y)
    same = np.array_equal(execute(program, [x, y])[0], wanted.astype(np.int32))
    assert same == exact, name


def test_whole_numbers_may_be_compared_exactly_though_they_depend_on_memory_that_was_never_written() -> None:
    body = """
@nki.jit
def kernel(x):
    a = nl.ndarray((8, 8), dtype=nl.int32, buffer=nl.sbuf)
    made = nl.ndarray((8, 8), dtype=nl.int32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=made, data1=a, data2=nl.load(x), op=nl.equal)
    out = nl.ndarray((8, 8), dtype=nl.int32, buffer=nl.shared_hbm)
    nl.store(out, made)
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec((8, 8), "int32")], api="nki", chip="trn2")
    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    answers = Answers()
    first = execute(program, [x], ExecuteOptions(answers=answers))
    answers.begin_again()
    second = execute(program, [x], ExecuteOptions(chance=1, answers=answers))
    assert not np.array_equal(first[0], second[0])


def test_a_call_that_nki_has_and_the_simulator_lacks_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "COLLECTIVES", (*COLLECTIVES, "all_to_all_w"))
    with pytest.raises(KernelFailure, match="NKI has it"):
        elementwise("nki.collectives.all_to_all_w([made], [made], None, made)")


@pytest.mark.parametrize("width", [1, 2])
def test_what_is_folded_does_not_depend_on_where_the_elements_are_dropped(width: int) -> None:
    """A destination with a step of 0 keeps one element a partition; the sum is of all of them."""
    body = f"""
@nki.jit
def kernel(x):
    dropped = nl.ndarray((128, {width}), dtype=nl.float32)
    total = nl.ndarray((128, 1), dtype=nl.float32)
    nisa.activation_reduce(
        dst=dropped.ap(pattern=[[{width}, 128], [0, 64]]), op=nl.square, data=nl.load(x), reduce_op=nl.add,
        reduce_res=total)
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out
"""
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    program = trace(PRELUDE + body, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    np.testing.assert_allclose(execute(program, [x])[0], np.square(x).sum(1, keepdims=True), rtol=1e-5)


READ = "nisa.dma_copy(dst=t, src=x.ap([[16, 8], [1, 16]], scalar_offset=r, indirect_dim=0))"


@pytest.mark.parametrize(
    "use",
    [
        READ,
        "q = r + 1",
        "q = nisa.register_alloc(0) + r",
        "q = nisa.register_alloc(r)",
        "place = nl.zeros((1, 1), dtype=nl.int32); nisa.register_store(dst=place, src=r)",
        "none = nisa.register_alloc(0)\n    for i in nl.dynamic_range(0, none, 1): nisa.register_move(dst=r, src=0)\n    "
        + READ,
    ],
)
def test_a_register_that_was_never_written_has_no_value(use: str) -> None:
    source = f"""
@nki.jit
def kernel(x):
    out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((8, 16), dtype=x.dtype)
    nisa.dma_copy(dst=t, src=x[0:8, :])
    r = nisa.register_alloc()
    {use}
    nisa.dma_copy(dst=out, src=t)
    return out
"""
    program = trace(PRELUDE + source, [TensorSpec((16, 16), "float32")], api="nki", chip="trn2")
    with pytest.raises(KernelFailure, match="never written") as caught:
        execute(program, [np.zeros((16, 16), np.float32)])
    assert caught.value.rule == "undefined_memory" and caught.value.line


CHASE = """
@nki.jit
def kernel(x, place):
    out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.ndarray((1, 1), dtype=nl.int32)
    nisa.dma_copy(dst=at, src=place[0:1, :])
    for step in range(STEPS):
        r = nisa.register_alloc(at)
        at = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.dma_copy(dst=at, src=place.ap([[1, 1], [1, 1]], scalar_offset=r, indirect_dim=0))
    t = nl.ndarray((8, 16), dtype=x.dtype)
    q = nisa.register_alloc(at)
    nisa.dma_copy(dst=t, src=x.ap([[16, 8], [1, 16]], scalar_offset=q, indirect_dim=0))
    nisa.dma_copy(dst=out, src=t)
    return out
"""
REUSED = """
@nki.jit
def kernel(x, place):
    out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    r = nisa.register_alloc(0)
    for step in range(STEPS):
        t = nl.ndarray((8, 16), dtype=x.dtype)
        nisa.register_move(dst=r, src=step % 2)
        nisa.dma_copy(dst=t, src=x.ap([[16, 8], [1, 16]], scalar_offset=r, indirect_dim=0))
        nisa.dma_copy(dst=out, src=t)
    return out
"""


def test_a_transfer_waits_for_the_register_that_says_where_it_begins() -> None:
    def latency_us(source: str, steps: int) -> float:
        specs = [TensorSpec((16, 16), "float32"), TensorSpec((16, 1), "int32")]
        program = trace(PRELUDE + source.replace("STEPS", str(steps)), specs, api="nki", chip="trn2")
        assert decode(encode(program)) == program and verify(program) == ()
        found = timeline(program).latency_us
        assert found is not None
        return found

    one, eleven = latency_us(CHASE, 1), latency_us(CHASE, 11)
    assert (eleven - one) / 10 > 1.5, "a place that was loaded is known only when its transfer has ended"
    one, eleven = latency_us(REUSED, 1), latency_us(REUSED, 11)
    assert (eleven - one) / 10 < 1.5, "a new value of a register does not wait for transfers that read the earlier one"
