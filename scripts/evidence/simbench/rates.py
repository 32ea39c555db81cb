"""Compare what one more instruction costs in the model with what others measured on a chip.

The figures are those of foxl-ai/kiln (docs/neuron-notes.md, "Engine rates on trn1"): trn1.2xlarge, SDK 2.32, nki 0.6.0. As
there, a rate is the latency of a kernel with 272 instructions less that of a kernel with 16, divided by 256.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing.parameters import CURRENT, TimelineParams
from acceld.nki.timing.timeline import timeline
from scripts.evidence.simbench.tables import Table

CHIP = "trn1"
FEW, MANY, RING = 16, 272, 4
"""Instructions of the short and of the long kernel, and the tiles that they write in turn."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A kind of instruction, with the time that one more of the kind takes."""

    number: int
    """Number of the variant in the source."""
    instruction: str
    """The instruction in words."""
    measured_ns: float
    loads: str
    """Tiles in :data:`TILES` that the kernel loads first."""
    ring: str
    """Memory, shape and data type of the tiles that the instructions write."""
    read: str
    """The part of such a tile, ``d``, that the kernel reads at its end."""
    statement: str
    """The instruction. ``d`` is the tile that it writes, and ``t`` counts the instructions."""


TILES: Mapping[str, tuple[tuple[int, int], str]] = {
    "half": ((128, 8192), "bfloat16"),
    "full": ((128, 2112), "float32"),
    "bytes": ((128, 512), "float8_e4m3"),
    "unit": ((128, 128), "bfloat16"),
    "at": ((128, 1), "int32"),
}
"""Shape and data type of the tiles that a kernel may load."""


def _product(dst: str, stationary: str, moving: str) -> str:
    return f"nisa.nc_matmul(dst={dst}, stationary={stationary}, moving={moving}, accumulate=t >= {RING})"


def _copied(width: int) -> str:
    """Return a slice of ``width`` columns. Each of eight consecutive instructions gets a slice further on."""
    return f"t % 8 * {width}:t % 8 * {width} + {width}"


_BANK = "psum 128 512 float32"
_ONE = "sbuf 128 1 float32"
_VECTOR = ", engine=nisa.vector_engine)"
_QUARTER = "t % 4 * 128:t % 4 * 128 + 128"
_ROWS = (
    "nisa.dma_copy(dst=d, src=rows.ap(pattern=[[1024, 128], [1, 1024]], offset=0, "
    "vector_offset=at_.ap(pattern=[[1, 128], [1, 1]], offset=0), indirect_dim=0))"
)
_EXP = (
    "nisa.activation_reduce(dst=d, op=nl.exp, data={}, reduce_op=nl.add, reduce_res=sums[t % 4], bias=value, scale=1.0)"
)
# fmt: off
RATES = (
    Rate(0, "product, 128 x 128 by 512 columns, bf16", 219, "half", _BANK, "d",
         _product("d", "half_[:, 0:128]", "half_[:, 512:1024]")),
    Rate(26, "the same, 256 columns", 175, "half", _BANK, "d[:, 0:256]",
         _product("d[:, 0:256]", "half_[:, 0:128]", "half_[:, 512:768]")),
    Rate(1, "the same, 128 columns", 48, "half", _BANK, "d[:, 0:128]",
         _product("d[:, 0:128]", "half_[:, 0:128]", "half_[:, 512:640]")),
    Rate(2, "product, 128 x 128 by 512 columns, f32", 1150, "full", _BANK, "d",
         _product("d", "full_[:, 0:128]", "full_[:, 128:640]")),
    Rate(28, "the same, 128 columns", 192, "full", _BANK, "d[:, 0:128]",
         _product("d[:, 0:128]", "full_[:, 0:128]", "full_[:, 128:256]")),
    Rate(32, "the same, another stationary tile each time", 232, "full", _BANK, "d[:, 0:128]",
         _product("d[:, 0:128]", f"full_[:, {_QUARTER}]", "full_[:, 1024:1152]")),
    Rate(25, "product, 128 x 1 by 128 columns, f32", 233, "full", _BANK, "d[0:1, 0:128]",
         _product("d[0:1, 0:128]", "full_[:, 0:1]", "full_[:, 0:128]")),
    Rate(3, "product, 128 x 128 bf16 by 512 columns fp8", 263, "half bytes", _BANK, "d",
         _product("d", "half_[:, 0:128]", "bytes_")),
    Rate(4, "product, 128 x 8 by 512 columns, bf16", 421, "half", _BANK, "d[0:8, :]",
         _product("d[0:8, :]", "half_[:, 0:8]", "half_[:, 512:1024]")),
    Rate(5, "the same, 128 columns", 68, "half", _BANK, "d[0:8, 0:128]",
         _product("d[0:8, 0:128]", "half_[:, 0:8]", "half_[:, 512:640]")),
    Rate(6, "product with a unit matrix, 128 columns, bf16", 40, "half unit", _BANK, "d[:, 0:128]",
         _product("d[:, 0:128]", f"half_[:, {_copied(128)}]", "unit_")),
    Rate(8, "product, 64 x 128 by 512 columns, bf16", 271, "half", _BANK, "d",
         _product("d", "half_[0:64, 0:128]", "half_[0:64, 512:1024]")),
    Rate(9, "product, 1 x 128 by 512 columns, bf16", 373, "half", _BANK, "d",
         _product("d", "half_[0:1, 0:128]", "half_[0:1, 512:1024]")),
    Rate(31, "transpose 128 x 128, f32", 208, "full", _BANK, "d[:, 0:128]",
         f"nisa.nc_transpose(dst=d[:, 0:128], data=full_[:, {_QUARTER}], engine=nisa.tensor_engine)"),
    Rate(10, "maximum of 512 columns in PSUM", 494, "half", _ONE, "d",
         "nisa.tensor_reduce(dst=d, op=nl.maximum, data=bank, axis=1)"),
    Rate(11, "maximum of 2048 columns in SBUF, f32", 1908, "full", _ONE, "d",
         "nisa.tensor_reduce(dst=d, op=nl.maximum, data=full_[:, 0:2048], axis=1)"),
    Rate(21, "sum of 128 columns in SBUF, f32", 147, "full", _ONE, "d",
         f"nisa.tensor_reduce(dst=d, op=nl.add, data=full_[:, {_copied(128)}], axis=1)"),
    Rate(14, "vector copy of 512 columns, PSUM to bf16", 447, "half", "sbuf 128 512 bfloat16", "d",
         f"nisa.tensor_copy(dst=d, src=bank{_VECTOR}"),
    Rate(33, "vector copy of 128 columns, f32 to bf16", 165, "full", "sbuf 128 128 bfloat16", "d",
         f"nisa.tensor_copy(dst=d, src=full_[:, {_copied(128)}]{_VECTOR}"),
    Rate(15, "scalar_tensor_tensor, 512 columns, PSUM and SBUF", 505, "half full", "sbuf 128 512 float32", "d",
         "nisa.scalar_tensor_tensor(dst=d, data=bank, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=full_[:, 0:512])"),
    Rate(16, "tensor_scalar, 2048 columns, f32", 1894, "full", "sbuf 128 2048 float32", "d[:, 0:512]",
         f"nisa.tensor_scalar(dst=d, data=full_[:, 0:2048], op0=nl.multiply, operand0=0.5{_VECTOR}"),
    Rate(17, "tensor_scalar_reduce, 2112 columns, f32", 2154, "full", _ONE, "d",
         "nisa.tensor_scalar_reduce(dst=spare, data=full_, op0=nl.greater_equal, operand0=value, reduce_op=nl.add, "
         "reduce_res=d)"),
    Rate(23, "tensor_tensor, 512 columns, f32 in SBUF", 1039, "full", "sbuf 128 512 float32", "d",
         f"nisa.tensor_tensor(dst=d, data1=full_[:, 0:512], data2=full_[:, 512:1024], op=nl.multiply{_VECTOR}"),
    Rate(24, "the same, one operand in PSUM", 494, "half full", "sbuf 128 512 float32", "d",
         f"nisa.tensor_tensor(dst=d, data1=bank, data2=full_[:, 512:1024], op=nl.multiply{_VECTOR}"),
    Rate(34, "tensor_tensor, 128 columns, f32 and bf16 in SBUF", 387, "half full", "sbuf 128 128 bfloat16", "d",
         f"nisa.tensor_tensor(dst=d, data1=full_[:, {_copied(128)}], data2=half_[:, {_copied(128)}], op=nl.subtract{_VECTOR}"),
    Rate(12, "exp of 512 columns in PSUM, with a sum", 466, "half", "sbuf 128 512 bfloat16", "d", _EXP.format("bank")),
    Rate(27, "exp of 2048 columns in SBUF, with a sum", 1574, "full", "sbuf 128 2048 bfloat16", "d[:, 0:512]",
         _EXP.format("full_[:, 0:2048]")),
    Rate(13, "scalar copy of 512 columns, PSUM to bf16", 383, "half", "sbuf 128 512 bfloat16", "d",
         "nisa.activation(dst=d, op=nl.copy, data=bank)"),
    Rate(22, "scalar copy of 128 columns, f32", 106, "full", "sbuf 128 128 float32", "d",
         "nisa.activation(dst=d, op=nl.copy, data=full_[:, 0:128])"),
    Rate(35, "scalar copy of 128 columns, f32 to bf16", 117, "full", "sbuf 128 128 bfloat16", "d",
         f"nisa.activation(dst=d, op=nl.copy, data=full_[:, {_copied(128)}])"),
    Rate(20, "gather of 128 rows of 2 KiB", 1419, "at", "sbuf 128 1024 bfloat16", "d[:, 0:512]", _ROWS),
)
# fmt: on

_HEAD = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(half, full, bytes, unit, at):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    rows = half.reshape((1024, 1024))
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    value = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=value, value=0.5)
    spare = nl.ndarray((128, 2112), dtype=nl.float32, buffer=nl.sbuf)
    bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
"""


def kernel(rate: Rate, instructions: int) -> str:
    """Return a kernel of the current API with that many instructions of one kind."""
    lines = []
    for name in rate.loads.split():
        shape, dtype = TILES[name]
        lines += [
            f"{name}_ = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.sbuf)",
            f"nisa.dma_copy(dst={name}_, src={name})",
        ]
    if "bank" in rate.statement:
        lines.append(
            "nisa.nc_matmul(dst=bank, stationary=half_[:, 0:128], moving=half_[:, 512:1024], accumulate=False)"
        )
    space, partitions, columns, dtype = rate.ring.split()
    lines += [
        "ring = []",
        "sums = []",
        f"for _ in range({RING}):",
        f"    ring.append(nl.ndarray(({partitions}, {columns}), dtype=nl.{dtype}, buffer=nl.{space}))",
        "    sums.append(nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf))",
        f"for t in range({instructions}):",
        f"    d = ring[t % {RING}]",
        f"    {rate.statement}",
        f"for i in range({RING}):",
        "    d = ring[i]",
    ]
    read = rate.read.split(",", maxsplit=1)[0].partition("[0:")[2] or "128"
    part, whole = f"[0:{read}, :]", f"total[0:{read}, :]"
    if "sums[" in rate.statement:
        lines.append("    nisa.tensor_tensor(dst=total, data1=total, data2=sums[i], op=nl.add)")
    elif columns == "1":
        lines.append("    nisa.tensor_tensor(dst=total, data1=total, data2=d, op=nl.add)")
    else:
        lines += [
            "    part = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)",
            f"    nisa.tensor_reduce(dst=part{part}, op=nl.add, data={rate.read}, axis=1)",
            f"    nisa.tensor_tensor(dst={whole}, data1={whole}, data2=part{part}, op=nl.add)",
        ]
    return _HEAD + "".join(f"    {line}\n" for line in (*lines, "nisa.dma_copy(dst=out, src=total)", "return out"))


def predicted_ns(rate: Rate, params: TimelineParams | None = None) -> float:
    """Return the predicted nanoseconds of one more instruction, with other parameters than the chip's if given."""
    specs = [TensorSpec(shape, dtype) for shape, dtype in TILES.values()]
    found = []
    for instructions in (FEW, MANY):
        program = trace(kernel(rate, instructions), specs, filename="rate.py", api="nki", chip=CHIP)
        latency = timeline(program, params).latency_us
        assert latency is not None
        found.append(latency)
    return 1000 * (found[1] - found[0]) / (MANY - FEW)


def table() -> Table:
    """Return the predicted and the measured rates, and the errors that the constants of trn2 would give."""
    rows: Table = []
    for rate in RATES:
        ours = predicted_ns(rate)
        rows.append(
            {
                "one more": f"{rate.instruction} ({rate.number})",
                "measured ns": round(rate.measured_ns),
                "predicted ns": round(ours),
                "error %": _error(ours, rate),
                "error with trn2's constants %": _error(predicted_ns(rate, CURRENT), rate),
            }
        )
    return rows


def _error(ns: float, rate: Rate) -> str:
    return f"{100 * (ns / rate.measured_ns - 1):+.0f}"
