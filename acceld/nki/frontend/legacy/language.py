"""Provide ``neuronxcc.nki.language``: loops, declarations and everything that the current API lacks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from acceld.chips import LEGACY_RESERVED_SBUF_BYTES, chip_spec
from acceld.nki.frontend.core import dtypes, elementwise, language
from acceld.nki.frontend.core.context import unsupported
from acceld.nki.frontend.core.language import binary
from acceld.nki.frontend.core.memory import HBM, PRIVATE_HBM, PSUM, SBUF, SHARED_HBM
from acceld.nki.frontend.core.signatures import checked
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.legacy import grids, loops, memory, transfers
from acceld.nki.ir.program import Engine, LoopKind


def _remainder(name: str) -> Callable[..., Tensor]:
    """Return ``nl.mod`` or ``nl.fmod``, whose ``dtype`` and ``mask`` may also be the third and fourth argument."""
    shared = binary(name)

    def call(x: object, y: object, dtype: object = None, mask: object = None, **kwargs: Any) -> Any:
        return shared(x, y, dtype=dtype, mask=mask)

    call.__name__ = call.__qualname__ = name
    return call


def affine_range(*args: object, **kwargs: Any) -> object:
    """``nl.affine_range``."""
    return loops.open_loop(current(), "nl.affine_range", LoopKind.AFFINE, args)


def sequential_range(*args: object, **kwargs: Any) -> object:
    """``nl.sequential_range``."""
    return loops.open_loop(current(), "nl.sequential_range", LoopKind.SEQUENTIAL, args)


def static_range(*args: Any, **kwargs: Any) -> range:
    """``nl.static_range``: Python's range."""
    return range(*args)


def static_cast(input_data: object, dtype: object, **kwargs: Any) -> Tensor:
    """``nl.static_cast``: a copy in another type."""
    return elementwise.copy(input_data, dtype=dtype)


def rand(shape: Sequence[int], dtype: object = np.float32, **kwargs: Any) -> Tensor:
    """``nl.rand``: uniform values in [0, 1)."""
    return elementwise.result("random", Engine.VECTOR, tuple(shape), dtypes.dtype_name(dtype), [])


TILE_SIZES = frozenset(
    "pmax psum_fmax gemm_stationary_fmax gemm_moving_fmax bn_stats_fmax psum_min_align sbuf_min_align "
    "total_available_sbuf_size".split()
)
"""Constants of ``nl.tile_size`` in this API."""


def gemm_grid(**kwargs: Any) -> grids.Grid:
    """``nl.gemm_grid``: the positions of a 128 x 512 tile."""
    return grids.MeshGrid()[0:128, 0:512]


def gemm_stationary_grid(**kwargs: Any) -> grids.Grid:
    """``nl.gemm_stationary_grid``: the positions of a 128 x 128 tile."""
    return grids.MeshGrid()[0:128, 0:128]


def nc(n: int, **kwargs: Any) -> int:
    """``nl.nc``: the number of cores that share a grid dimension."""
    return operator.index(n)


def spmd_dim(*sizes: int, **kwargs: Any) -> int:
    """``nl.spmd_dim``: a grid dimension as a product of parts."""
    return int(np.prod(sizes))


def _refused(name: str) -> Callable[..., object]:
    def call(*args: Any, **kwargs: Any) -> object:
        unsupported(
            f"nl.{name} is not simulated: {UNSUPPORTED[name]}",
            "store each program's part and add the parts in a kernel without a grid",
        )

    call.__name__ = name
    return call


UNSUPPORTED = {
    "all_reduce": "programs of a launch grid are simulated one after another and do not exchange tiles",
}


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    language.par_dim, affine_range, sequential_range, static_range, spmd_dim, nc, static_cast, rand, gemm_grid,
    gemm_stationary_grid, grids.arange, memory.ndarray, memory.full, memory.zeros, memory.ones, memory.empty_like,
    memory.zeros_like, loops.loop_reduce, transfers.atomic_rmw,
)  # fmt: skip


def _functions() -> Mapping[str, object]:
    """Return the functions of the module by name."""
    functions = language.functions() | {name: _remainder(name) for name in ("mod", "fmod")}
    functions |= {function.__name__: function for function in FUNCTIONS}
    names: dict[str, object] = {name: checked("nl", function) for name, function in functions.items()}
    return MappingProxyType(names | {name: _refused(name) for name in UNSUPPORTED})


# Made once a process: reading their signatures takes longer than a small trace.
_FUNCTIONS = _functions()


def namespace(chip: str = "trn1") -> dict[str, object]:
    """Return every attribute of the module."""
    names = {**_FUNCTIONS}
    names |= {
        "mgrid": grids.MeshGrid(),
        "tile_size": language.TileSize(chip_spec(chip), LEGACY_RESERVED_SBUF_BYTES, TILE_SIZES),
        "sbuf": SBUF,
        "psum": PSUM,
        "hbm": HBM,
        "private_hbm": PRIVATE_HBM,
        "shared_hbm": SHARED_HBM,
        "fp32": SimpleNamespace(min=float(np.finfo(np.float32).min), max=float(np.finfo(np.float32).max)),
        "bool_": dtypes.NAMED["bool"],
        **{name: kind for name, kind in dtypes.NAMED.items() if name != "bool"},
    }
    return names
