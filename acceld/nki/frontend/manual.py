"""Answer questions about NKI as a manual does: about a call, a name of ``nl``, or a topic such as dtypes, buffers,
engines, limits or costs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final

from acceld import chips
from acceld.chips import CHIPS, NKI_DEFAULT
from acceld.nki.frontend import reference
from acceld.nki.frontend.permitted import HIDDEN_NAMES
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.timing.parameters import default_params

EXAMPLE: Final = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w):
    rows, depth = x.shape
    columns = w.shape[1]
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, columns), dtype=w.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    for m in nl.affine_range(rows // 128):
        x_tile = nl.ndarray((128, depth), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * m, 128), 0:depth])
        across = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=across, data=x_tile)
        turned = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=turned, src=across)
        product = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=turned, moving=w_tile)
        result = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=result, op=nl.relu, data=product)
        nisa.dma_copy(dst=out[nl.ds(128 * m, 128), 0:columns], src=result)
    return out
"""
"""A kernel of the current API: relu(x @ w) for x of 256 x 128 and w of 128 x 512 float32."""

MEANINGS: Final[Mapping[str, str]] = {
    "sub": "subtract", "minus": "subtract", "mul": "multiply", "times": "multiply", "plus": "add", "div": "reciprocal",
    "divide": "reciprocal", "neg": "negative", "pow": "power", "exponent": "exp", "ln": "log", "and": "logical_and", "or": "logical_or",
    "not": "logical_not", "xor": "logical_xor", "select": "where", "cast": "tensor_copy", "convert": "tensor_copy", "copy": "tensor_copy",
    "move": "dma_copy", "load": "dma_copy", "store": "dma_copy", "read": "dma_copy", "write": "dma_copy", "fill": "memset",
    "zeros": "memset", "matmul": "nc_matmul", "dot": "nc_matmul", "gemm": "nc_matmul", "mm": "nc_matmul", "turn": "nc_transpose",
    "transpose": "nc_transpose", "permute": "dma_transpose", "variance": "bn_stats", "mean": "bn_stats", "layernorm": "bn_stats",
    "aggregate": "bn_aggr", "sum": "tensor_reduce", "reduce": "tensor_reduce", "max": "tensor_reduce", "min": "tensor_reduce",
    "cumsum": "tensor_tensor_scan", "scan": "tensor_tensor_scan", "prefix": "tensor_tensor_scan", "gather": "nc_n_gather",
    "argmax": "nc_find_index8", "index": "nc_find_index8", "sort": "max8", "topk": "max8", "mask": "affine_select",
    "elementwise": "tensor_tensor", "scale": "tensor_scalar", "broadcast": "tensor_scalar", "fma": "scalar_tensor_tensor",
    "random": "rng", "range": "affine_range", "loop": "affine_range", "unroll": "static_range", "slice": "ds", "barrier": "core_barrier",
}  # fmt: skip
"""The NKI call that does what a word of another library means, by word. If a word, such as ``divide``, is also the name
of an NKI call, :func:`looked_up` returns that call.
"""


def looked_up(name: str) -> str | None:
    """Return the manual's text on a call, a name of ``nl``, a method of tensors or a topic; None for an unknown name."""
    bare = name.strip().removesuffix("()").lower()
    topic = bare.removeprefix("nl.").removeprefix("nisa.").removeprefix("nki.language.").replace(" ", "_")
    if topic in TOPICS:
        return TOPICS[topic]()
    called = reference.look_up(name)
    if called:
        return "\n\n".join(
            f"{one.module}.{one.name}{one.signature}: {one.state}\n{one.text}".rstrip() for one in called
        )
    if topic in DTYPE_BYTES:
        return f"nl.{topic}: a dtype of {DTYPE_BYTES[topic]} bytes.\n{_dtypes()}"
    if topic in _MEMORIES:
        return _buffers()
    if topic in _ENGINES:
        return _engines()
    if topic in _methods():
        return f"tensor.{topic}{_methods()[topic]}\n{_tensor_methods()}"
    return None


def near(name: str) -> list[str]:
    """Return names in the manual that are close to the unknown name ``name``: calls with the same meaning, then
    calls with similar names.
    """
    bare = name.strip().rpartition(".")[2].lower()
    meant = [call for word, call in MEANINGS.items() if word in bare.split("_")]
    return list(dict.fromkeys([*meant, *reference.near(name)]))[: reference.NEAR]


def _dtypes() -> str:
    listed = ", ".join(f"nl.{name} ({size})" for name, size in DTYPE_BYTES.items() if not name.endswith("_x4"))
    return (
        f"dtypes, with bytes: {listed}.\nGive dtype=nl.float32 or dtype=x.dtype. Engines compute in float32 and round when they "
        "write dst; a product of float32 takes four passes, one of two-byte types one. PSUM accumulates in float32."
    )


def _buffers() -> str:
    sizes = "; ".join(
        f"{name}: SBUF {one.sbuf_bytes_per_partition // 1024} KiB a partition, {one.sbuf_bytes >> 20} MiB; PSUM {one.psum_banks} banks "
        f"of {one.psum_bank_bytes} bytes a partition ({one.psum_bank_bytes // 4} float32)"
        for name, one in CHIPS.items()
    )
    return (
        f"buffers: nl.ndarray(shape, dtype=..., buffer=...). The first axis of a tile is partitions, at most {CHIPS['trn2'].partitions}.\n"
        "nl.sbuf: tiles that engines read and write. nl.psum: results of nc_matmul and nc_transpose; copy them out. "
        "nl.shared_hbm: outputs, which a kernel returns. nl.hbm, nl.private_hbm: scratch. Arguments are in HBM; move them with "
        f"nisa.dma_copy.\n{sizes}."
    )


def _engines() -> str:
    one = CHIPS["trn2"]
    return (
        "engines, which work at the same time and wait for each other's results only:\n"
        f"tensor ({one.tensor_ghz} GHz): nc_matmul, nc_transpose. vector ({one.vector_ghz}): tensor_tensor, tensor_scalar, "
        "scalar_tensor_tensor, tensor_reduce, bn_stats, bn_aggr, reciprocal, select. "
        f"scalar ({one.scalar_ghz}): activation. gpsimd ({one.gpsimd_ghz}): iota, gathers, and what engine=nisa.gpsimd_engine asks for. "
        "DMA: dma_copy, dma_transpose, dma_compute.\nengine=nisa.vector_engine, scalar_engine or gpsimd_engine chooses where a call "
        "has that parameter. Clocks are those of trn2."
    )


def _limits() -> str:
    one = CHIPS["trn2"]
    return (
        f"limits: {one.partitions} partitions. nc_matmul: stationary [K, M], moving [K, N], K <= {one.partitions}, M <= "
        f"{chips.STATIONARY_COLUMNS}, N <= {one.moving_columns} float32 of one PSUM bank; on trn3 {CHIPS['trn3'].moving_columns}. "
        f"nc_transpose: {chips.TENSOR_TRANSPOSE} x {chips.TENSOR_TRANSPOSE} on the tensor engine, {chips.VECTOR_TRANSPOSE} x "
        f"{chips.VECTOR_TRANSPOSE} on the vector engine. bn_stats: {chips.BN_STATS_ELEMENTS} elements a row. max8: "
        f"{chips.MAX8_ELEMENTS[0]} to {chips.MAX8_ELEMENTS[1]} elements. Access patterns: {chips.FREE_AXES} axes beside the partitions. "
        f"Rules are those of nki {NKI_DEFAULT} unless acceld.toml names another."
    )


def _costs() -> str:
    one, params = CHIPS["trn2"], default_params("nki", "trn2")
    column_us = 1 / (one.tensor_ghz * 1000)
    product = (one.moving_columns + params.tensor_overhead_cycles) * column_us
    rate = one.dma_engines * one.dma_long_row_bytes_per_us
    return (
        "costs that the performance model uses for the current API on trn2 (predictions, see docs/simulator):\n"
        f"nc_matmul of {one.moving_columns} columns: {product:.3f} us in bfloat16, {params.float32_passes} passes in float32. "
        f"nc_transpose: one pass of {(chips.TENSOR_TRANSPOSE + params.tensor_overhead_cycles) * column_us:.3f} us in two-byte types, "
        f"{params.transpose_passes} in float32. vector: an element a partition takes {1 / (one.vector_ghz * 1000):.5f} us, and each call "
        f"{params.vector_overhead_cycles / (one.vector_ghz * 1000):.3f} us more; 16-bit copies run four times as fast. scalar: "
        f"{1 / (one.scalar_ghz * 1000):.5f} us an element. DMA: {rate / 1e6:.2f} MB a us in long rows; a row below 512 bytes takes as long as one "
        f"of 512; a result can be read {params.dma_latency_us} us after its last byte. One engine sees another's result after {params.semaphore_us} us. "
        f"The launch and end of a kernel: {params.kernel_start_us + params.kernel_end_us:g} us. The tensor engine runs at half its rate until it has "
        f"been busy for about {one.tensor_ramp_us:g} us."
    )


def _methods() -> dict[str, str]:
    """Return the description of each method and attribute of the current API's tensors, as a dict by name."""
    from acceld.nki.frontend.current.tensor import NkiTensor

    found = {}
    for name in dir(NkiTensor):
        one = inspect.getattr_static(NkiTensor, name)
        text = (inspect.getdoc(getattr(NkiTensor, name, None)) or "").strip()
        if name.startswith("_") or name in HIDDEN_NAMES or not text or not (callable(one) or isinstance(one, property)):
            continue
        first = text.split("\n\n")[0].replace("\n", " ")
        found[name] = f": {first}" if isinstance(one, property) else f"(...): {first}"
    return found


def _tensor_methods() -> str:
    listed = "\n".join(f"{name}{text}"[:150] for name, text in _methods().items())
    return f"methods and attributes of tensors and tiles; index with slices and nl.ds(start, size):\n{listed}"


def _example() -> str:
    return f"relu(x @ w) for x of 256 x 128 and w of 128 x 512 float32; it passes the strict gate:\n\n{EXAMPLE}"


_MEMORIES = frozenset({"sbuf", "psum", "hbm", "shared_hbm", "private_hbm"})
_ENGINES = frozenset({"tensor_engine", "vector_engine", "scalar_engine", "gpsimd_engine", "engine"})
TOPICS: Final[Mapping[str, Callable[[], str]]] = {
    "dtypes": _dtypes,
    "buffers": _buffers,
    "engines": _engines,
    "limits": _limits,
    "costs": _costs,
    "tensor_methods": _tensor_methods,
    "example": _example,
}
"""The function that returns the text of a topic of the manual, by topic."""
