"""Limits of each API and chip, as data with their source.

Sources: *arch* is AWS's architecture guide of the chip (NKI documentation), *isa* the ``nki.isa`` reference, *alloc*
the direct allocation guide, *mig* the migration guide of block dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from acceld.errors import UsageError, did_you_mean

APIS: dict[str, tuple[str, ...]] = {"nki_legacy": ("trn1", "trn2"), "nki": ("trn2", "trn3")}
"""Chips each API generation may be checked for."""

GENERATION: dict[str, int] = {"trn1": 2, "trn2": 3, "trn3": 4}
"""NeuronCore version of each chip."""

_HBM_GIB = {"trn1": 16, "trn2": 12, "trn3": 18}
_SBUF_KIB = {"trn1": 192, "trn2": 224, "trn3": 256}

SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "partitions": "arch: SBUF and PSUM have 128 partitions",
        "stationary_free": "isa nc_matmul: free size of the stationary operand",
        "moving_free": "isa nc_matmul: free size of the moving operand in float32 elements",
        "psum_bank_bytes": "arch: a PSUM bank holds 2 KiB a partition",
        "psum_bytes": "arch: PSUM holds 16 KiB a partition",
        "sbuf_bytes": "arch: SBUF bytes a partition",
        "hbm_bytes": "arch: HBM of the chip, shared equally by its cores",
        "tensor_transpose": "isa nc_transpose: tile edge on the tensor engine",
        "vector_transpose": "isa nc_transpose: tile edge on the vector engine",
        "bn_stats_free": "isa bn_stats: free elements",
        "max8_free": "isa max8: least and greatest number of free elements",
        "free_axes": "arch: axes of an engine's access pattern beside the partitions",
        "block_dimensions": "mig: block dimensions are refused from SDK 2.25 on, tolerated by earlier compilers",
        "psum_starts_on_bank": "migration guide: PSUM tensors start on a bank boundary; neuronxcc allows an offset in it",
        "accumulates_on_any_value": "isa nc_matmul: on v2 and v3 do not accumulate over memset data; neuronxcc does it for nl.zeros",
        "same_base_partition": "isa (neuronxcc): both tiles of tensor_tensor start on one partition; AWS's own kernels do not keep to it",
    }
)


@dataclass(frozen=True, slots=True)
class RuleBook:
    """What a program may do. Sizes are elements, or bytes of one partition where the name says so.

    ``strict`` adds what documentation demands but compilers are known to accept.
    """

    api: str
    chip: str
    strict: bool = False
    partitions: int = 128
    stationary_free: int = 128
    moving_free: int = 512
    psum_bank_bytes: int = 2048
    psum_bytes: int = 16 * 1024
    sbuf_bytes: int = 192 * 1024
    hbm_bytes: int = 16 * 2**30
    tensor_transpose: int = 128
    vector_transpose: int = 32
    bn_stats_free: int = 512
    max8_free: tuple[int, int] = (8, 16384)
    free_axes: int = 4
    block_dimensions: bool = True
    same_base_partition: bool = False
    psum_starts_on_bank: bool = False
    accumulates_on_any_value: bool = True
    generation: int = 2
    sources: Mapping[str, str] = field(default_factory=lambda: SOURCES, compare=False, repr=False)


def rulebook(api: str, chip: str, strict: bool = False) -> RuleBook:
    """The rules of ``api`` on ``chip``. UsageError naming both where they do not go together."""
    if api not in APIS:
        raise UsageError(f"no rule book for API {api!r}", hint=did_you_mean(api, APIS) or f"one of {', '.join(APIS)}")
    if chip not in GENERATION:
        raise UsageError(
            f"no rule book for chip {chip!r}", hint=did_you_mean(chip, GENERATION) or f"one of {', '.join(GENERATION)}"
        )
    if chip not in APIS[api]:
        raise UsageError(
            f"API {api} does not support chip {chip}",
            hint=f"{api} runs on {', '.join(APIS[api])}; chip {chip} takes "
            f"{', '.join(name for name, chips in APIS.items() if chip in chips)}",
        )
    legacy = api == "nki_legacy"
    return RuleBook(
        api=api,
        chip=chip,
        strict=strict,
        moving_free=4096 if chip == "trn3" else 512,
        psum_bank_bytes=16 * 1024 if chip == "trn3" else 2048,
        sbuf_bytes=_SBUF_KIB[chip] * 1024,
        hbm_bytes=_HBM_GIB[chip] * 2**30,
        block_dimensions=legacy and not strict,
        same_base_partition=legacy and strict,
        psum_starts_on_bank=not legacy,
        accumulates_on_any_value=legacy or chip == "trn3",
        generation=GENERATION[chip],
    )
