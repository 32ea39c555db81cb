"""Random programs whose price is too low: work that is needed and not paid for, narrow prices for wide results.

``make fuzz`` runs this with fresh seeds. What is needed is found by changing each statement's result in a plain numpy reading
of the program: where that shows in the output, the statement's elements must be paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.chips import chip_spec
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing import buffer_pieces
from acceld.nki.timing.timeline import Timeline, as_timed, timeline
from tests.properties import examples

Array = np.ndarray[Any, np.dtype[np.float64]]
ROWS, WIDTH, TILES = 128, 512, 3
HEAD = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f, h, one = nl.arange(128)[:, None], nl.arange(512)[None, :], nl.arange(256)[None, :], nl.arange(1)[None, :]
    zero = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
"""


@dataclass(frozen=True)
class Statement:
    """Lines of the kernel, the elements of each partition that they take an engine, and what numpy makes of the tiles.

    ``part`` is the part of tile ``to`` that is written.
    """

    lines: tuple[str, ...]
    elements: int
    to: int
    part: Any
    value: Callable[[Sequence[Array]], Array]


def _copied(to: int, source: int, first: int, step: int, ends: bool) -> Statement:
    """Return a copy of some columns. With ``ends``, also copy the columns before the first and after the last one."""
    columns = range(first, WIDTH, step)
    pieces = [(first, step, len(columns))]
    if ends:
        pieces += [
            (start, 1, count) for start, count in ((0, first), (columns[-1] + 1, WIDTH - columns[-1] - 1)) if count
        ]
    places = [f"[p, {start} + {step} * nl.arange({count})[None, :]]" for start, step, count in pieces]
    part = np.concatenate([np.arange(start, start + step * count, step) for start, step, count in pieces])
    lines = tuple(f"t{to}{where} = nl.copy(t{source}{where})" for where in places)
    return Statement(lines, len(part), to, part, lambda t: t[source][:, part])


def _scaled(to: int, source: int, factor: float) -> Statement:
    line = f"t{to}[p, f] = nisa.tensor_scalar(data=t{source}[p, f], op0=nl.multiply, operand0={factor!r})"
    return Statement((line,), WIDTH, to, slice(None), lambda t: t[source] * factor)


def _bent(to: int, source: int) -> Statement:
    line = f"t{to}[p, f] = nisa.activation(op=nl.tanh, data=t{source}[p, f])"
    return Statement((line,), WIDTH, to, slice(None), lambda t: np.tanh(t[source]))


def _added(to: int, one: int, other: int) -> Statement:
    line = f"t{to}[p, f] = nisa.tensor_tensor(t{one}[p, f], t{other}[p, f], op=nl.add)"
    return Statement((line,), WIDTH, to, slice(None), lambda t: t[one] + t[other])


def _summed(to: int, source: int) -> Statement:
    """Return a sum whose first half stays in the scalar engine."""
    kept = f"reduce_res=s{to}[p, one], reduce_cmd=nisa.reduce_cmd.reduce"
    lines = (
        f"s{to} = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)",
        f"nisa.activation(op=nl.tanh, data=t{source}[p, h], reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)",
        f"nisa.activation(op=nl.tanh, data=t{source}[p, 256 + h], reduce_op=nl.add, {kept})",
        f"t{to}[p, f] = nisa.tensor_scalar(data=t{source}[p, f], op0=nl.add, operand0=s{to}[p, one])",
    )
    return Statement(
        lines, 2 * WIDTH, to, slice(None), lambda t: t[source] + np.tanh(t[source]).sum(axis=1, keepdims=True)
    )


@st.composite
def statements(draw: st.DrawFn) -> list[Statement]:
    tile = st.integers(0, TILES - 1)
    factor = st.floats(0.3, 0.9).map(lambda number: round(number, 6))
    return draw(
        st.lists(
            st.one_of(
                st.builds(_copied, tile, tile, st.integers(0, 7), st.integers(1, 8), st.booleans()),
                st.builds(_scaled, tile, tile, factor),
                st.builds(_bent, tile, tile),
                st.builds(_added, tile, tile, tile),
                st.builds(_summed, tile, tile),
            ),
            min_size=1,
            max_size=7,
        )
    )


def _source(program: Sequence[Statement], last: str = "t0[p, f]") -> str:
    lines = [HEAD]
    for tile in range(TILES):
        lines.append(f"    t{tile} = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)")
        lines.append(f"    t{tile}[p, f] = nl.load(x[{ROWS * tile} + p, f])")
    lines += [f"    {line}" for statement in program for line in statement.lines]
    return "\n".join([*lines, f"    nl.store(out[p, f], value={last})", "    return out", ""])


def _meant(program: Sequence[Statement], inputs: Array, changed: int = -1) -> Array:
    """Return numpy's outputs of the program, with one statement's result changed."""
    tiles = [inputs[ROWS * tile : ROWS * (tile + 1)].copy() for tile in range(TILES)]
    for number, statement in enumerate(program):
        value = statement.value(tiles)
        tiles[statement.to][:, statement.part] = value * 1.25 + 0.5 if number == changed else value
    return tiles[0]


def _paid_elements(timed: Timeline) -> float:
    """Return the elements of each partition that the busy time of all element-wise engines can process, one a cycle."""
    chip = chip_spec("trn1")
    clocks = {"vector": chip.vector_ghz, "scalar": chip.scalar_ghz, "gpsimd": chip.gpsimd_ghz}
    return sum(1000 * clock * timed.engines[engine] for engine, clock in clocks.items())


ARGUMENTS = [TensorSpec((ROWS * TILES, WIDTH), "float32")]


@given(program=statements(), starts=st.sampled_from([8, 4096]))
@examples(12)
def test_what_the_output_needs_is_paid_for_and_nothing_needed_is_left_out(
    program: list[Statement], starts: int
) -> None:
    inputs = np.random.default_rng(7).uniform(0.2, 1.2, (ROWS * TILES, WIDTH))
    whole = _meant(program, inputs)
    needed = [n for n in range(len(program)) if not np.allclose(_meant(program, inputs, n), whole, rtol=1e-12, atol=0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer_pieces, "MAX_STARTS", starts)
        made = trace(_source(program), ARGUMENTS)
        timed = timeline(made)
    given = [inputs.astype(np.float32)]
    (found,) = execute(made, given, ExecuteOptions())
    np.testing.assert_allclose(found, whole, rtol=2e-4, atol=2e-4)
    program_as_timed, turns = as_timed(made)
    (left,) = execute(program_as_timed, given, ExecuteOptions(turns=turns))
    np.testing.assert_array_equal(left, found)
    # equal statements on equal values are done once: those that make different results are not equal
    distinct = {_trace_of(program, n, inputs): program[n].elements for n in needed}
    assert _paid_elements(timed) >= 0.999 * sum(distinct.values())


def _trace_of(program: Sequence[Statement], number: int, inputs: Array) -> bytes:
    """Return the result of a statement as bytes."""
    tiles = [inputs[ROWS * tile : ROWS * (tile + 1)].copy() for tile in range(TILES)]
    for statement in program[: number + 1]:
        value = np.array(statement.value(tiles))
        tiles[statement.to][:, statement.part] = value
    return value.tobytes()


IDENTITIES = (
    "op0=nl.multiply, operand0=1.0", "op0=nl.multiply, operand0=-1.0", "op0=nl.add, operand0=0.0",
    "op0=nl.multiply, operand0=4.0, op1=nl.multiply, operand1=0.25", "op0=nl.subtract, operand0=2.0, op1=nl.add, operand1=2.0",
    "op0=nl.maximum, operand0=-3e38", "op0=nl.multiply, operand0=1.0000002",
)  # fmt: skip


@given(
    left=st.lists(st.sampled_from(IDENTITIES), max_size=3),
    right=st.lists(st.sampled_from(IDENTITIES), max_size=3),
    program=statements(),
)
@examples(12)
def test_operations_that_change_nothing_make_nothing_faster(
    left: list[str], right: list[str], program: list[Statement]
) -> None:
    def timed(left: Sequence[str], right: Sequence[str]) -> Timeline:
        operands = ["t0[p, f]", "t1[p, f]"]
        for at, chain in enumerate((left, right)):
            for identity in chain:
                operands[at] = f"nisa.tensor_scalar(data={operands[at]}, {identity})"
        return timeline(trace(_source(program, f"nisa.tensor_tensor({', '.join(operands)}, op=nl.add)"), ARGUMENTS))

    plain, more = timed([], []), timed(left, right)
    assert more.engines["vector"] >= plain.engines["vector"] - 1e-9
    assert _paid_elements(more) >= _paid_elements(plain) - 1e-6


@given(program=statements(), places=st.lists(st.integers(0, 7), max_size=3))
@examples(12)
def test_work_added_to_a_program_makes_it_no_faster(program: list[Statement], places: list[int]) -> None:
    """Statements added at the end are needed where the output is what they make."""
    longer = [*program, *[_bent(0, 0) for _ in places], _added(0, 0, 1)]
    for short, long in pairwise([longer[:n] for n in range(len(program), len(longer) + 1)]):
        before, after = (timeline(trace(_source(one), ARGUMENTS)) for one in (short, long))
        assert _paid_elements(after) >= _paid_elements(before) - 1e-6


PRODUCT = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, c, f = nl.arange(128)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
    total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.LOOP(BLOCKS):
        left = nl.load(a[128 * k + p, c])
        right = nl.load(b[128 * k + p, f])
        total += nisa.nc_matmul(LEFT, RIGHT)
    nl.store(out[p, f], value=nl.copy(total))
    return out
"""
WAYS = {
    "plain": "{0}",
    "viewed": "{0}.view(nl.tfloat32)",
    "copied": "nl.copy({0}, dtype=nl.tfloat32)",
    "copied as viewed": "nl.copy({0}.view(nl.tfloat32), dtype=nl.tfloat32)",
    "scaled": "nisa.tensor_scalar(data={0}, op0=nl.multiply, operand0=1.0, dtype=nl.tfloat32)",
    "activated": "nisa.activation(op=nl.copy, data={0}, dtype=nl.tfloat32)",
    "bfloat16": "nl.copy({0}, dtype=nl.bfloat16)",
}


@given(
    left=st.sampled_from(sorted(WAYS)),
    right=st.sampled_from(sorted(WAYS)),
    loop=st.sampled_from(["affine_range", "sequential_range", "static_range"]),
    blocks=st.integers(1, 4),
)
@examples(12)
def test_a_product_is_as_exact_as_its_passes_cost(left: str, right: str, loop: str, blocks: int) -> None:
    text = PRODUCT.replace("LOOP", loop).replace("BLOCKS", str(blocks))
    text = text.replace("LEFT", WAYS[left].format("left")).replace("RIGHT", WAYS[right].format("right"))
    shapes = [(128 * blocks, 128), (128 * blocks, 512)]
    made = trace(text, [TensorSpec(shape, "float32") for shape in shapes])
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    (found,) = execute(made, [a, b], ExecuteOptions())
    exact = a.astype(np.float64).T @ b.astype(np.float64)
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    if timeline(made).pe_passes < 4 * blocks:
        assert error > 3e-5, "a narrow product shows in its result"
    else:
        assert error < 1e-6 or {left, right} != {"plain"}
