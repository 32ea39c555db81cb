"""Operations of several ranks: ``nki.collectives``."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.errors import UsageError
from acceld.nki.errors import KernelCrash, LegalityError, UnsupportedCall
from acceld.nki.execute.interpreter import execute
from acceld.nki.execute.ranks import execute_ranks
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Program
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_current import PRELUDE

F32 = NDArray[np.float32]
KERNEL = """
import nki.collectives as ncc
from nki.collectives import ReplicaGroup

@nki.jit
def kernel(x):
    group = ReplicaGroup([[0, 1], [3, 2]])
    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)
    {body}
    return out
"""
ON_CHIP = """
    src = nl.ndarray((8, 16), dtype=x.dtype)
    dst = nl.ndarray({shape}, dtype=x.dtype)
    nisa.dma_copy(dst=src, src=x)
    nisa.memset(dst=dst, value=-1.0)
    {call}
    nisa.dma_copy(dst=out, src=dst)
"""


def traced(body: str, shape: str = "(8, 16)", lnc: int = 1) -> Program:
    source = PRELUDE + KERNEL.format(body=body, shape=shape)
    program = trace(source, [TensorSpec((8, 16), "float32")], api="nki", chip="trn2", lnc=lnc)
    assert decode(encode(program)) == program and verify(program) == ()
    return program


def four() -> list[F32]:
    return [np.random.default_rng(rank).standard_normal((8, 16)).astype(np.float32) for rank in range(4)]


@pytest.mark.parametrize(
    ("call", "shape", "expected"),
    [
        ("ncc.all_reduce([x], [out], group, nl.add)", "(8, 16)", lambda x, r: x[0] + x[1] if r < 2 else x[3] + x[2]),
        ("ncc.all_reduce([x], [out], group, nl.maximum)", "(8, 16)", lambda x, r: np.maximum(x[r], x[r ^ 1])),
        (
            "ncc.all_gather([x], [out], group, 0)", "(16, 16)",
            lambda x, r: np.concatenate([x[0], x[1]] if r < 2 else [x[3], x[2]]),
        ),
        ("ncc.reduce_scatter([x], [out], group, 0, nl.add)", "(4, 16)", lambda x, r: np.split(x[r] + x[r ^ 1], 2)[[0, 1, 1, 0][r]]),
        (
            "ncc.all_to_all([x], [out], group, 0)", "(8, 16)",
            lambda x, r: np.concatenate([np.split(x[k], 2)[[0, 1, 1, 0][r]] for k in ([0, 1] if r < 2 else [3, 2])]),
        ),
        ("ncc.collective_permute_implicit([[x]], [[out]], group)", "(8, 16)", lambda x, r: x[r ^ 1]),
        (
            "ncc.collective_permute_implicit_reduce([[x]], [[x]], [[out]], group, nl.add)", "(8, 16)",
            lambda x, r: 2 * x[r ^ 1],
        ),
        ("ncc.collective_permute([x], [out], [(0, 2), (2, 3), (3, 1), (1, 0)])", "(8, 16)", lambda x, r: x[[1, 3, 0, 2][r]]),
    ],
)  # fmt: skip
def test_collectives_of_tensors_in_hbm(call: str, shape: str, expected: object) -> None:
    x = four()
    found = execute_ranks(traced(call, shape), [[one] for one in x])
    for rank, (out,) in enumerate(found):
        np.testing.assert_allclose(out, expected(x, rank), rtol=1e-6)  # type: ignore[operator]


def test_a_rank_that_no_pair_targets_keeps_its_tile_and_tiles_on_chip_gather_along_their_free_axis() -> None:
    x = four()
    filled = """
    tile = nl.ndarray((8, 16), dtype=x.dtype)
    nisa.memset(dst=tile, value=-1.0)
    nisa.dma_copy(dst=out, src=tile)
    ncc.collective_permute([x], [out], [(0, 1)])
    """
    kept = execute_ranks(traced(filled), [[one] for one in x])
    assert np.array_equal(kept[1][0], x[0]) and (kept[2][0] == -1).all()
    call = ON_CHIP.format(
        call="ncc.all_gather(srcs=[src], dsts=[dst], replica_group=group, collective_dim=1)", shape="(8, 32)"
    )
    wide = execute_ranks(traced(call, "(8, 32)"), [[one] for one in x])
    assert np.array_equal(wide[3][0], np.concatenate([x[3], x[2]], axis=1))


def test_ranks_know_who_they_are_and_whose_data_comes_around_the_ring() -> None:
    body = """
    ring = ReplicaGroup([[0, 1, 2, 3]])
    mine = ncc.rank_id()
    came = ncc.collective_permute_implicit_current_processing_rank_id(1, ring)
    for k, register in enumerate((mine, came)):
        t = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.register_store(t, register)
        f = nl.ndarray((1, 1), dtype=nl.float32)
        nisa.tensor_copy(dst=f, src=t)
        nisa.dma_copy(dst=out[k:k + 1, 0:1], src=f)
    """
    found = execute_ranks(traced(body, "(2, 1)"), [[one] for one in four()])
    assert [out[:, 0].tolist() for (out,) in found] == [[rank, (rank - 1) % 4] for rank in range(4)]


def test_ranks_of_two_cores_meet_core_by_core() -> None:
    body = """
    core = nl.program_id(0)
    tile = nl.ndarray((8, 8), dtype=x.dtype)
    both = nl.ndarray((8, 16), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x[:, nl.ds(core * 8, 8)])
    ncc.all_gather([tile], [both], group, 1)
    nisa.dma_copy(dst=out[:, nl.ds(core * 16, 16)], src=both)
    """
    x = four()
    found = execute_ranks(traced(body, "(8, 32)", lnc=2), [[one] for one in x])
    expected = np.concatenate([x[0][:, :8], x[1][:, :8], x[0][:, 8:], x[1][:, 8:]], axis=1)
    assert np.array_equal(found[0][0], expected)


def test_a_collective_needs_its_ranks_has_no_latency_and_says_so() -> None:
    program = traced("ncc.all_reduce([x], [out], group, nl.add)")
    with pytest.raises(KernelCrash, match="but the program runs as one"):
        execute(program, [four()[0]])
    with pytest.raises(KernelCrash, match=r"names rank [23], but only 2 ranks run|another rank, which failed"):
        execute_ranks(
            traced("ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0, 3], [1, 2]]), nl.add)"),
            [[one] for one in four()[:2]],
        )
    with pytest.raises(UsageError, match="0 ranks"):
        execute_ranks(program, [])
    with pytest.raises(
        UnsupportedCall, match=r"latency of all_reduce of nki\.collectives can not be predicted"
    ) as refused:
        timeline(program)
    assert refused.value.line > 0


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0, 1], [2]]), nl.add)", "equally many ranks"),
        ("ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0, 1], [1, 2]]), nl.add)", "in two lists"),
        ("ncc.all_reduce([x], [out], group, nl.subtract)", "can not reduce with subtract"),
        ("ncc.all_gather([x], [out], group, 0)", "declare it as"),
        ("ncc.all_gather([x], [nl.ndarray((16, 16), dtype=x.dtype)], group, 0)", "all in HBM, or all in SBUF"),
    ],
)
def test_a_collective_that_fits_no_ranks_is_refused(call: str, part: str) -> None:
    with pytest.raises(LegalityError, match=part):
        traced(call)


def test_groups_are_made_by_partition() -> None:
    body = """
    for op, number, lists in (("div", 2, [[0, 1], [2, 3]]), ("mod", 2, [[0, 2], [1, 3]]), ("bitwise_and", 0, [[0, 1, 2, 3]])):
        assert ReplicaGroup.from_partition_op(4, getattr(ncc.rg_partition_op, op), number).groups == lists
    nisa.dma_copy(dst=out, src=x)
    """
    traced(body)


VARIED = """
import nki.collectives as ncc

@nki.jit
def kernel(x, sizes):
    group = ncc.ReplicaGroup([[0, 1], [3, 2]])
    out = nl.ndarray((4, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    zeros = nl.ndarray((4, 16), dtype=x.dtype)
    nisa.memset(dst=zeros, value=0.0)
    nisa.dma_copy(dst=out, src=zeros)
    {body}
    return out
"""
ROWS = "[x], [out], group, sizes"


def varied(body: str, rows: int = 4) -> Program:
    specs = [TensorSpec((8, 16), "float32"), TensorSpec((rows, 2), "uint32")]
    program = trace(PRELUDE + VARIED.format(body=body), specs, api="nki", chip="trn2")
    assert decode(encode(program)) == program and verify(program) == ()
    return program


@pytest.mark.parametrize(
    ("body", "displaced", "gathers"),
    [
        (f"ncc.all_to_all_v({ROWS})", False, False),
        (f"ncc.all_to_all_v({ROWS}, has_rdispls=True)", True, False),
        (f"ncc.all_gather_v({ROWS}, recv_counts_known=True)", False, True),
        (f"ncc.all_to_all_v_trigger(ncc.all_to_all_v_prepare({ROWS}))", False, False),
        (f"ncc.all_gather_v_trigger(ncc.all_gather_v_prepare({ROWS}, has_rdispls=True))", True, True),
    ],
)
def test_collectives_of_run_time_sizes(body: str, displaced: bool, gathers: bool) -> None:
    x = four()
    sizes = [
        np.array([[3 + rank, 5], [10, 40 + rank], [0, 0], [1, 20 + rank]], np.uint32) for rank in range(4)
    ]  # fmt: skip
    found = execute_ranks(varied(body), [list(pair) for pair in zip(x, sizes, strict=True)])
    for rank, (out,) in enumerate(found):
        ranks = [0, 1] if rank < 2 else [3, 2]
        wanted = np.zeros(64, np.float32)
        for number, other in enumerate(ranks):
            column = 0 if gathers else ranks.index(rank)
            count, begin = sizes[other][:2, column]
            at = sizes[rank][3, number] if displaced else 32 * number
            wanted[at : at + count] = x[other].reshape(-1)[begin : begin + count]
        assert np.array_equal(out.reshape(-1), wanted)


def test_counts_beyond_a_slot_are_a_failure_at_their_line() -> None:
    sizes = np.array([[40, 40], [0, 0]], np.uint32)
    with pytest.raises(KernelCrash, match="do not fit"):
        execute_ranks(varied(f"ncc.all_to_all_v({ROWS})", 2), [[one, sizes] for one in four()])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"ncc.all_to_all_v({ROWS}, has_rdispls=True)", "4 to 4 rows"),
        ("ncc.all_to_all_v([x], [out], group, x)", "uint32"),
        ("ncc.all_to_all_v([x], [out], ncc.ReplicaGroup([[0, 1], [1, 2]]), sizes)", "in two lists"),
        ("ncc.all_gather_v([x, x], [out, out], group, sizes)", "got 2 tensors"),
        (f"ncc.all_to_all_v_prepare({ROWS})", "never triggered"),
        (f"ncc.all_to_all_v_prepare({ROWS})\n    ncc.all_gather_v_prepare({ROWS})", "comes before the trigger"),
        (f"ncc.all_gather_v_trigger(ncc.all_to_all_v_prepare({ROWS}))", "did not get the result of"),
    ],
)
def test_a_wrong_call_of_a_collective_of_run_time_sizes_is_refused(body: str, said: str) -> None:
    with pytest.raises(LegalityError) as caught:
        varied(body, 2)
    assert said in f"{caught.value.message} {caught.value.hint}" and caught.value.line
    assert (caught.value.rule == "collective_order") == ("_prepare" in body)
    assert (caught.value.rule == "replica_group") == ("ReplicaGroup" in body)
