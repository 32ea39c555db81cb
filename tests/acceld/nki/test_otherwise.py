"""Random legal programs run as a chip may run them otherwise: every difference is a finding of a rule, or a bug of ours.

Each program is made twice: once as it should be, which must give the same bits in every run, and once with a mistake of a
known kind, which a rule must find. ``make fuzz`` runs it with fresh seeds.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acceld.evaluate.simulated.simulation import check_order, run
from acceld.nki.errors import KernelCrash, LegalityError
from acceld.nki.execute.interpreter import ExecuteOptions, execute, random_order
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify

_HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    held = nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
"""
MISTAKES = ("nothing", "memory", "address", "core")
_RULES = {"memory": "undefined_memory", "address": "overlapping_lives", "core": "race"}


def _source(seed: int, mistake: str) -> str:
    """Return a kernel on two cores: random operations on tiles at random places, handed on through HBM behind a barrier."""
    random = Random(seed)
    tiles = random.randint(2, 5)
    places = random.sample(range(16), tiles)
    lines = [
        f"t{n} = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, {256 * place}))"
        for n, place in enumerate(places)
    ]
    lines.append("nisa.dma_copy(dst=t0, src=x[128 * core : 128 * core + 128, :])")
    lines += [f"nisa.activation(dst=t{n}, op=nl.tanh, data=t{random.randrange(n)})" for n in range(1, tiles)]
    for _ in range(random.randint(1, 6)):
        one, two, three = (random.randrange(tiles) for _ in range(3))
        lines.append(random.choice([
            f"nisa.tensor_tensor(dst=t{one}, data1=t{two}, data2=t{three}, op=nl.{random.choice(['add', 'maximum'])})",
            f"nisa.activation(dst=t{one}, op=nl.{random.choice(['tanh', 'sigmoid'])}, data=t{two})",
            f"nisa.tensor_scalar(dst=t{one}, data=t{two}, op0=nl.multiply, operand0={random.uniform(-2, 2):.3f})",
        ]))  # fmt: skip
    last = random.randrange(tiles)
    if mistake == "memory":
        lines += ["wild = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, 8192))",
                  f"nisa.memset(dst=wild[:, 0:{random.randint(1, 63)}], value=1.0)",
                  f"nisa.tensor_tensor(dst=t{last}, data1=t{last}, data2=wild, op=nl.{random.choice(['add', 'maximum'])})"]  # fmt: skip
    if mistake == "address":
        other = random.choice([n for n in range(tiles) if n != last])
        lines += [f"late = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, {256 * places[last]}))",
                  f"nisa.tensor_copy(dst=late, src=t{other})"]  # fmt: skip
    lines.append(f"nisa.dma_copy(dst=held[128 * core : 128 * core + 128, :], src=t{last})")
    if mistake != "core":
        lines.append("nisa.core_barrier(data=held, cores=(0, 1))")
    lines += ["nisa.dma_copy(dst=t0, src=held[128 - 128 * core : 256 - 128 * core, :])",
              "nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=t0)"]  # fmt: skip
    return _HEAD + "".join(f"    {line}\n" for line in lines) + "    return out\n"


def _runs(program: Program, x: np.ndarray) -> list[np.ndarray]:
    """Return the output of the program in every way in which a chip may run it."""
    ways = [ExecuteOptions()]
    ways += [ExecuteOptions(chance=seed) for seed in (1, 2)]
    ways += [ExecuteOptions(shuffle_affine="reversed"), ExecuteOptions(uninitialized="zero")]
    return [execute(program, [x], way)[0] for way in ways]


def _found(program: Program, x: np.ndarray) -> str:
    """Return the rule that refuses a program; empty if all runs agree."""
    if findings := verify(program):
        return findings[0].rule
    try:
        one, *others = _runs(program, x)
    except KernelCrash as crash:
        return crash.rule
    return "" if all(one.tobytes() == other.tobytes() for other in others) else "undefined_memory"


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), mistake=st.sampled_from(MISTAKES))
def test_a_program_gives_the_same_bits_in_every_run_or_breaks_a_rule(seed: int, mistake: str) -> None:
    x = np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)
    try:
        program = trace(_source(seed, mistake), [TensorSpec(x.shape, "float32")], api="nki", chip="trn2", lnc=2)
    except LegalityError as refusal:
        assert mistake != "nothing", refusal
        return
    assert _found(program, x) == _RULES.get(mistake, "")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_kind_of_mistake_is_found_by_its_rule(mistake: str) -> None:
    x = np.random.default_rng(7).standard_normal((256, 64)).astype(np.float32)
    program = trace(_source(7, mistake), [TensorSpec(x.shape, "float32")], api="nki", chip="trn2", lnc=2)
    assert _found(program, x) == _RULES.get(mistake, "")


_HANDS_ON = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    held = nl.zeros((2, nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        held[row, p, f] = nl.copy(tile)
        nl.store(out[128 * row + p, f], value=nl.add(tile, nl.multiply(held[PLACE, p, f], 1e-6)))
    return out
"""


@pytest.mark.parametrize(("place", "refused"), [("1 - row", True), ("row", False)])
@pytest.mark.parametrize("special", [0.0, np.inf, np.nan])
def test_what_an_affine_iteration_hands_on_is_found_however_small(place: str, refused: bool, special: float) -> None:
    x = np.random.default_rng(7).standard_normal((256, 64)).astype(np.float32)
    x[5, 3] = special  # an output that is not finite hides no other element
    program = trace(_HANDS_ON.replace("PLACE", place), [TensorSpec(x.shape, "float32")])
    shuffled, backwards = (run(program, [x], shuffle=way, float64=False, max_bytes=1 << 30) for way in (7, "reversed"))
    try:
        check_order(program, [x], shuffled, backwards, 1 << 30)
    except KernelCrash as crash:
        assert refused and crash.rule == "affine_order"
    else:
        assert not refused


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 7, 32])
def test_a_random_order_begins_and_ends_with_other_iterations_than_the_reversed_one(trips: int) -> None:
    orders = {tuple(random_order(trips, np.random.default_rng(seed))) for seed in range(60)}
    assert all(sorted(order) == list(range(trips)) for order in orders)
    assert trips == 1 or all(order[0] != trips - 1 and order[-1] != 0 for order in orders)
    assert len(orders) > 1 or trips < 3


_PRODUCTS = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), 0:64])
        sums = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=sums[0:64, 0:COLUMNS], stationary=tile[0:64, 0:64], moving=tile[0:64, 0:COLUMNS])
        nisa.nc_matmul(dst=sums[0:64, 0:COLUMNS], stationary=tile[64:128, 0:64], moving=tile[64:128, 0:COLUMNS])
        kept = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=kept, src=sums)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 64), 0:64], src=kept)
        nisa.dma_copy(dst=out[nl.ds(128 * row + 64, 64), 0:64], src=kept)
    return out
"""


@pytest.mark.parametrize("columns", [64, 33])
def test_the_first_product_into_a_new_tile_adds_nothing_whatever_lies_there(columns: int) -> None:
    """A product without ``accumulate`` overwrites a tile that was never written, and the next one adds to it."""
    program = trace(
        _PRODUCTS.replace("COLUMNS", str(columns)), [TensorSpec((256, 64), "float32")], api="nki", chip="trn2"
    )
    x = np.random.default_rng(3).standard_normal((256, 64)).astype(np.float32)
    one, *others = _runs(program, x)
    written = [other[:, :columns].tobytes() == one[:, :columns].tobytes() for other in others]
    assert all(written) and _found(program, x) == ("" if columns == 64 else "undefined_memory")


_IN_PLACE = {
    "nisa.nc_stream_shuffle(src=t[0:1, :], dst=t[0:32, :], shuffle_mask=[0] * 32)": True,
    "nisa.nc_stream_shuffle(src=t, dst=t, shuffle_mask=[*range(31, -1, -1)])": True,
    "nisa.nc_stream_shuffle(src=t[0:32, 0:62], dst=t[0:32, 1:63], shuffle_mask=[0] * 32)": False,
    "nisa.tensor_reduce(dst=t[:, 3:4], op=nl.add, data=t[:, 0:8], axis=1)": True,
    "nisa.tensor_reduce(dst=t[:, 0:2], op=nl.add, data=t.reshape((128, 2, 32)), axis=2)": False,
    "nisa.bn_stats(dst=t[:, 0:6], data=t)": True,
    "nisa.max8(dst=t[:, 8:16], src=t)": True,
    "nisa.nc_match_replace8(dst=t, data=t, vals=u, imm=0.0, dst_idx=n)": True,
    "nisa.nc_match_replace8(dst=t[:, 0:8], data=u, vals=t[:, 0:8], imm=0.0)": False,
    "nisa.nc_match_replace8(dst=t[:, 0:8], data=t[:, 0:8], vals=t[:, 0:8], imm=0.0)": False,
    "nisa.nc_match_replace8(dst=u, data=t[:, 0:8], vals=t[:, 8:16], imm=0.0, dst_idx=t[:, 8:16].view(nl.uint32))": False,
    "nisa.nc_match_replace8(dst=u, data=t[:, 0:8], vals=t[:, 8:16], imm=0.0, dst_idx=t[:, 0:8].view(nl.uint32))": False,
    "nisa.tensor_copy(dst=t[:, 1:64], src=t[:, 0:63])": False,
    "nisa.tensor_copy(dst=t, src=t.view(nl.bfloat16)[:, 1:128:2])": True,
    "nisa.tensor_copy(dst=t[:, 32:64], src=t.view(nl.bfloat16)[:, 0:32])": True,
    "nisa.tensor_copy(dst=t[:, 0:32], src=t[:, 32:64].view(nl.bfloat16)[:, 0:32])": True,
    "nisa.tensor_copy(dst=t[:, 0:32], src=t.view(nl.bfloat16)[:, 32:64])": False,
    "nisa.tensor_copy(dst=t[:, 16:48], src=t[:, 32:64].view(nl.bfloat16)[:, 0:32])": False,
    "nisa.dma_copy(dst=t[:, 0:62], src=t.view(nl.bfloat16)[:, 3:127:2])": False,
    "nisa.max8(dst=t[:, 0:8], src=t.view(nl.bfloat16)[:, 1:128:2])": True,
}


@pytest.mark.parametrize(("call", "allowed"), _IN_PLACE.items())
def test_an_operation_may_write_what_it_has_certainly_read_before(call: str, allowed: bool) -> None:
    more = "n = nl.ndarray((128, 8), dtype=nl.uint32)\n    u = nl.load(x[0:128, 16:24])"
    head = _HEAD.replace("    held", f"    t = nl.load(x[0:128, :])\n    {more}\n    held")
    source = f"{head}    {call}\n    nl.store(out[0:128, :], value=t)\n    nl.store(out[128:256, :], value=t)\n"
    x = np.random.default_rng(1).standard_normal((256, 64)).astype(np.float32)
    program = trace(f"{source}    return out\n", [TensorSpec(x.shape, "float32")], api="nki", chip="trn2")
    assert _found(program, x) == ("" if allowed else "overlap")


@pytest.mark.parametrize(("step", "allowed"), [(1, True), (0, False)])
def test_a_transfer_may_add_to_rows_in_place_if_no_row_occurs_twice(step: int, allowed: bool) -> None:
    source = f"""
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    one = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    row = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=one, value=1.0)
    nisa.iota(dst=row, pattern=[[0, 1]], offset=7, channel_multiplier={step})
    rows = out.ap([[64, 128], [1, 64]], vector_offset=row, indirect_dim=0)
    nisa.dma_compute(dst=rows, srcs=[rows, one], reduce_op=nl.add)
    return out
"""
    x = np.random.default_rng(1).standard_normal((256, 64)).astype(np.float32)
    program = trace(source, [TensorSpec(x.shape, "float32")], api="nki", chip="trn2")
    assert _found(program, x) == ("" if allowed else "overlap")


_BOTH_WRITE = """
    t, u = (nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=t, src=x[0:128, :])
    FIRST
    nisa.dma_copy(dst=held[0:128, :], src=t)
    nisa.dma_copy(dst=u, src=held[0:128, :])
    nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=u)
    return out
"""


@pytest.mark.parametrize(
    ("first", "raced"),
    [
        ("pass", False),
        ("nisa.activation(dst=t, op=nl.tanh, data=t, scale=1.0 + core)", True),
        ("core == 0 and nisa.dma_copy(dst=held[0:128, :], src=x[128:256, :])", True),
        ("nisa.dma_copy(dst=held[0:128, :], src=x[128:256, :])", True),
    ],
)
def test_a_core_may_read_back_what_both_cores_wrote_alike(first: str, raced: bool) -> None:
    x = np.random.default_rng(3).standard_normal((256, 64)).astype(np.float32)
    source = _HEAD + _BOTH_WRITE.replace("FIRST", first)
    program = trace(source, [TensorSpec(x.shape, "float32")], api="nki", chip="trn2", lnc=2)
    assert _found(program, x) == ("race" if raced else "")


@pytest.mark.parametrize("core", [0, 1])
def test_a_value_that_a_core_has_read_and_replaced_may_not_be_stored_again_by_the_other(core: int) -> None:
    body = """
    t, u, z = (nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
    nisa.dma_copy(dst=t, src=x[0:128, :])
    nisa.dma_copy(dst=u, src=x[0:128, :])
    nisa.memset(dst=z, value=0.0)
    core == CORE and nisa.dma_copy(dst=held[0:128, :], src=t)
    core == CORE and nisa.dma_copy(dst=u, src=held[0:128, :])
    core == CORE and nisa.dma_copy(dst=held[0:128, :], src=z)
    core != CORE and nisa.dma_copy(dst=held[0:128, :], src=z)
    nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=u)
    return out
""".replace("CORE", str(core))
    x = np.random.default_rng(3).standard_normal((256, 64)).astype(np.float32)
    program = trace(_HEAD + body, [TensorSpec(x.shape, "float32")], api="nki", chip="trn2", lnc=2)
    assert _found(program, x) == "race"


_HIDES = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[0:128, 0:64])
    sums = nl.ndarray((64, 64), dtype=nl.DTYPE, buffer=nl.psum)
    nisa.nc_matmul(dst=sums[0:64, 0:33], stationary=tile[0:64, 0:64], moving=tile[0:64, 0:33])
    held = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=held, src=sums[0:64, 40:41])
    whole = nl.ndarray((64, 1), dtype=nl.uint32, buffer=nl.sbuf)
    HIDE
    one = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=one, src=whole)
    nisa.tensor_scalar(dst=tile[0:64, 0:64], data=tile[0:64, 0:64], op0=nl.add, operand0=one)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "sbuf"])
@pytest.mark.parametrize(
    "hide",
    [
        (
            "nisa.tensor_scalar(dst=whole, data=held.view(nl.uint32), op0=nl.right_shift, operand0=30, "
            "op1=nl.bitwise_and, operand1=1)"
        ),
        (
            "nisa.activation(dst=held, op=nl.abs, data=held)\n    "
            "nisa.tensor_copy(dst=whole, src=held)\n    "
            "nisa.tensor_scalar(dst=whole, data=whole, op0=nl.bitwise_and, operand0=1024)"
        ),
        (
            "nisa.activation(dst=held, op=nl.square, data=held)\n    "
            "nisa.tensor_scalar(dst=held, data=held, op0=nl.minimum, operand0=1.0)\n    "
            "nisa.tensor_copy(dst=whole, src=held)"
        ),
    ],
    ids=["a bit of the exponent", "a bit of the whole number", "the least of its square and one"],
)
def test_an_element_beside_a_product_is_found_whatever_hides_it(dtype: str, hide: str) -> None:
    source = _HIDES.replace("HIDE", hide)
    if dtype == "sbuf":
        source = source.replace("    nisa.tensor_copy(dst=held, src=sums[0:64, 40:41])\n", "").replace(
            "DTYPE", "float32"
        )
    source = source.replace("DTYPE", dtype)
    program = trace(source, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    x = np.random.default_rng(3).standard_normal((128, 64)).astype(np.float32)
    first, other = (execute(program, [x], ExecuteOptions(chance=chance))[0] for chance in (None, 5))
    assert first.tobytes() != other.tobytes()
