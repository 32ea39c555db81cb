"""Kernels of the current API on trn1: what others report refused is refused there, and nowhere else."""

from __future__ import annotations

import pytest

from acceld.errors import AcceldError
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.nki.timing.parameters import CURRENT, CURRENT_TRN1, default_params
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.doubts import doubts
from acceld.nki.verify.verifier import verify

HEAD = """
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, h, i):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    c = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    t = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    v = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    w = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=x)
    nisa.dma_copy(dst=c, src=h)
    nisa.memset(dst=v, value=0.5)
    nisa.dma_copy(dst=w, src=i)
"""
END = "    nisa.dma_copy(dst=out, src=a)\n    return out\n"
SPECS = [TensorSpec((128, 512), "float32"), TensorSpec((128, 512), "bfloat16"), TensorSpec((128, 1), "int32")]
TOP8 = (
    "m = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)",
    "at = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)",
    "nisa.max8(dst=m, src=b)",
)
GATHERED = (
    "here = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.private_hbm)",
    "both = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.private_hbm)",
    "nisa.dma_copy(dst=here, src=x)",
)


def traced(chip: str, *lines: str) -> Program:
    text = HEAD + "".join(f"    {line}\n" for line in lines) + END
    return trace(text, SPECS, filename="kernel.py", api="nki", chip=chip)


def refusals(chip: str, *lines: str) -> list[str]:
    """Return the texts of what refuses a kernel with these lines."""
    try:
        return [str(one) for one in verify(traced(chip, *lines))]
    except AcceldError as error:
        return [str(error)]


def loop(*body: str) -> tuple[str, ...]:
    return ("r = nisa.register_alloc(4)", "def body(k):", *(f"    {line}" for line in body), "nl.fori_loop(0, r, body)")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("nisa.tensor_copy(dst=a, src=b, engine=nisa.scalar_engine)",), "nisa.activation with op=nl.copy"),
        (("nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add, engine=nisa.gpsimd_engine)",), "NCC_IXCG965"),
        (("nisa.activation(dst=a, op=nl.copy, data=b, bias=v)",), "NCC_IBVF043"),
        ((*TOP8, "nisa.nc_match_replace8(dst=a, data=b, vals=m, imm=0.0, dst_idx=at)"), "NCC_INLA001"),
        (("r = nisa.register_alloc(1)", "nisa.register_store(w[0:1, :], r)"), "NCC_IXCG832"),
        (("nisa.dma_copy(dst=a, src=x, dge_mode=nisa.dge_mode.hwdge)",), "no hardware DGE"),
        (loop("nisa.nc_matmul(dst=p, stationary=c[:, 0:128], moving=c, accumulate=False)"), "NCC_IBIR092"),
        (
            loop(
                "nisa.tensor_copy(dst=a.ap(pattern=[[512, 128], [1, 1]], offset=0, scalar_offset=k, indirect_dim=1), src=v)"
            ),
            "NCC_IBIR829",
        ),
    ],
)
def test_what_is_reported_refused_is_refused_on_trn1_alone(lines: tuple[str, ...], said: str) -> None:
    assert any(said in one for one in refusals("trn1", *lines)), refusals("trn1", *lines)
    assert not refusals("trn2", *lines)


@pytest.mark.parametrize(
    "lines",
    [
        ("nisa.activation(dst=a, op=nl.copy, data=b, scale=v)",),
        (*TOP8, "nisa.nc_match_replace8(dst=a, data=b, vals=m, imm=0.0)"),
        ("nisa.dma_transpose(dst=t, src=h[:, 0:128])", "nisa.tensor_copy(dst=a[:, 0:128], src=t)"),
        loop(
            "q = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)",
            "nisa.nc_matmul(dst=q, stationary=c[:, 0:128], moving=c, accumulate=False)",
            "nisa.tensor_copy(dst=a, src=q)",
        ),
    ],
)
def test_what_is_reported_to_run_is_accepted(lines: tuple[str, ...]) -> None:
    assert not refusals("trn1", *lines)


def test_a_gather_among_ranks_takes_neither_arguments_nor_tiles() -> None:
    gather = "ncc.all_gather(srcs=[{}], dsts=[both], replica_group=ncc.ReplicaGroup([[0, 1]]), collective_dim=0)"
    assert not refusals("trn1", *GATHERED, gather.format("here"))
    assert "neither reads" in refusals("trn1", *GATHERED, gather.format("x"))[0]


def test_chains_of_products_side_by_side_in_one_psum_tile_get_a_note_on_trn1() -> None:
    side_by_side = [
        "for k in range(4):",
        "    nisa.nc_matmul(dst=p[:, 0:128], stationary=c[:, 0:128], moving=c[:, 0:128], accumulate=k > 0)",
        "    nisa.nc_matmul(dst=p[:, 128:256], stationary=c[:, 0:128], moving=c[:, 128:256], accumulate=k > 0)",
    ]
    assert any("lose their first product" in one.text for one in doubts(traced("trn1", *side_by_side)))
    assert not doubts(traced("trn2", *side_by_side))
    one_by_one = [side_by_side[0], side_by_side[1], side_by_side[0], side_by_side[2]]
    assert not doubts(traced("trn1", *one_by_one))


def test_a_latency_has_no_interval_because_no_whole_kernel_was_compared() -> None:
    found = timeline(traced("trn1")).prediction
    assert found.interval_percent is None and not found.validated
    assert default_params("nki", "trn1") is CURRENT_TRN1 and default_params("nki", "trn2") is CURRENT


@pytest.mark.parametrize("rows", [32, 128])
def test_each_row_of_a_gather_is_a_packet(rows: int) -> None:
    """GpSimd makes the descriptors of 100 gathers one after another, one for each row, whatever the rows' lengths."""

    def gathers(width: int) -> float:
        latency = timeline(
            traced(
                "trn1",
                "for _ in range(100):",
                f"    d = nl.ndarray(({rows}, {width}), dtype=nl.float32, buffer=nl.sbuf)",
                f"    nisa.dma_copy(dst=d, src=x.ap(pattern=[[512, {rows}], [1, {width}]], vector_offset=w[0:{rows}, :], indirect_dim=0))",
            )
        ).latency_us
        assert latency is not None
        return latency

    made = 100 * rows * CURRENT_TRN1.gather_packet_us
    assert made < gathers(8) < made + 40


def test_two_tiles_of_sbuf_cost_two_cycles_a_column_and_a_fixed_part() -> None:
    def each_us(second: str) -> float:
        """Return the time of one more tensor_tensor."""
        found = []
        for times in (10, 110):
            line = f"    nisa.tensor_tensor(dst=b, data1=a, data2={second}, op=nl.maximum, engine=nisa.vector_engine)"
            product = "nisa.nc_matmul(dst=p, stationary=c[:, 0:128], moving=c, accumulate=False)"
            latency = timeline(traced("trn1", product, f"for _ in range({times}):", line)).latency_us
            assert latency is not None
            found.append(latency)
        return (found[1] - found[0]) / 100

    assert each_us("p") == pytest.approx(0.5, abs=0.1)
    assert each_us("a") == pytest.approx(1.06, abs=0.1)
