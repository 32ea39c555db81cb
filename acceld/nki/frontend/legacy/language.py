"""Provide ``neuronxcc.nki.language``: loops, declarations, and functions that the current API lacks."""

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
    """Return ``nl.mod`` or ``nl.fmod``, which also takes ``dtype`` and ``mask`` as third and fourth argument."""
    shared = binary(name)

    def call(x: object, y: object, dtype: object = None, mask: object = None, **kwargs: Any) -> Any:
        return shared(x, y, dtype=dtype, mask=mask)

    call.__name__ = call.__qualname__ = name
    return call


def affine_range(*args: object, **kwargs: Any) -> object:
    """Return the iterations of a loop whose iterations do not depend on each other: ``nl.affine_range``."""
    return loops.open_loop(current(), "nl.affine_range", LoopKind.AFFINE, args)


def sequential_range(*args: object, **kwargs: Any) -> object:
    """Return the iterations of a loop whose iterations may depend on each other: ``nl.sequential_range``."""
    return loops.open_loop(current(), "nl.sequential_range", LoopKind.SEQUENTIAL, args)


def static_range(*args: Any, **kwargs: Any) -> range:
    """Return Python's range, so that the loop is unrolled: ``nl.static_range``."""
    return range(*args)


def static_cast(input_data: object, dtype: object, **kwargs: Any) -> Tensor:
    """Return a copy of ``input_data`` with the dtype ``dtype``: ``nl.static_cast``."""
    return elementwise.copy(input_data, dtype=dtype)


def rand(shape: Sequence[int], dtype: object = np.float32, **kwargs: Any) -> Tensor:
    """Return a new tile of uniform random values in [0, 1): ``nl.rand``."""
    return elementwise.result("random", Engine.VECTOR, tuple(shape), dtypes.dtype_name(dtype), [])


TILE_SIZES = frozenset(
    "pmax psum_fmax gemm_stationary_fmax gemm_moving_fmax bn_stats_fmax psum_min_align sbuf_min_align "
    "total_available_sbuf_size".split()
)
"""Names of the limits in ``nl.tile_size`` of the legacy API."""


def gemm_grid(**kwargs: Any) -> grids.Grid:
    """Return the positions of a 128 x 512 tile: ``nl.gemm_grid``."""
    return grids.MeshGrid()[0:128, 0:512]


def gemm_stationary_grid(**kwargs: Any) -> grids.Grid:
    """Return the positions of a 128 x 128 tile: ``nl.gemm_stationary_grid``."""
    return grids.MeshGrid()[0:128, 0:128]


def nc(n: int, **kwargs: Any) -> int:
    """Return the number of cores that share an axis of the launch grid: ``nl.nc``."""
    return operator.index(n)


def spmd_dim(*sizes: int, **kwargs: Any) -> int:
    """Return the size of an axis of the launch grid as the product of ``sizes``: ``nl.spmd_dim``."""
    return int(np.prod(sizes))


def _refused(name: str) -> Callable[..., object]:
    """Return a function that raises UnsupportedCall for ``nl.NAME``, with the reason in :data:`UNSUPPORTED`."""

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
    """Return the functions of ``neuronxcc.nki.language``, by name."""
    functions = language.functions() | {name: _remainder(name) for name in ("mod", "fmod")}
    functions |= {function.__name__: function for function in FUNCTIONS}
    names: dict[str, object] = {name: checked("nl", function) for name, function in functions.items()}
    return MappingProxyType(names | {name: _refused(name) for name in UNSUPPORTED})


# The functions are wrapped once in each process, because reading their signatures takes longer than a small trace.
_FUNCTIONS = _functions()


def namespace(chip: str = "trn1") -> dict[str, object]:
    """Return the names of ``neuronxcc.nki.language`` that the simulator has, with their values."""
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
