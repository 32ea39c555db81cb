"""Provide the functions of ``nl`` that return a tile, with the arguments that the current API documents.

Functions of two tiles are implemented here, because they neither repeat an operand nor copy an operand out of PSUM. The
other functions use the code of the legacy API. That code also takes ``mask``, and most arguments by name only.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from acceld.nki.frontend.core import elementwise, language, memory, products, reductions
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.signatures import checked
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current import declarations
from acceld.nki.frontend.current.operands import last_axes, not_in_psum, same_sizes, stored
from acceld.nki.ir.operations import COMPOSED_FUNCTIONS, INTEGER_DTYPES
from acceld.nki.ir.program import Space
from acceld.parsing import parse

UNARY = (*language.UNARY, "gelu_apprx_sigmoid_dx")
BINARY = (*language.BINARY, "abs_max", "abs_min")

ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(UNARY, "x, dtype=None"),
    **dict.fromkeys(BINARY, "x, y, dtype=None"),
    **dict.fromkeys(("sum", "prod", "max", "min", "mean"), "x, axis, dtype=None, keepdims=False"),
    "var": "x, axis, dtype=None, keepdims=False",
    "all": "x, axis, dtype=None",
    "softmax": "x, axis=-1, dtype=None",
    "rms_norm": "x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None",
    "where": "condition, x, y, dtype=None",
    "dropout": "x, rate, dtype=None",
    "copy": "x, dtype=None",
    "load": "src, dtype=None",
    "store": "dst, value",
    "load_transpose2d": "src, dtype=None",
    "gather_flattened": "data, indices, axis=0, dtype=None",
    "expand_dims": "x, axis",
    "broadcast_to": "x, shape, dtype=None",
    "transpose": "x, dtype=None",
    "matmul": "x, y, transpose_x=False",
    "random_seed": "seed",
    "program_id": "axis=0",
    "num_programs": "axes=None",
    "program_ndim": "",
    "shared_constant": "constant, dtype=None",
    "device_print": "print_prefix, tensor",
    "ds": "start, size",
    "finfo": "dtype",
}
"""The parameters of a function as text, by the function's name.

``num_programs`` without axes returns the size of the whole grid, as documented. ``dtype`` of ``shared_constant`` is an
argument of earlier versions.
"""

SHARED_NAMES: dict[str, dict[str, str]] = {
    "copy": {"x": "src"},
    "expand_dims": {"x": "data"},
    "device_print": {"print_prefix": "prefix", "tensor": "x"},
}
"""Parameters that have another name in the shared code, by function. A kernel may use either name."""


def _var(x: object, axis: object, dtype: object = None, keepdims: bool = False) -> Tensor:
    """Return the variance over the axes ``axis``. These stay as axes of one element; NKI documents that ``keepdims`` is
    ignored.
    """
    tile = elementwise.operand(x, "x", "var")
    axes = reductions.free_axes(axis, tile, "var")
    last_axes("nl.var", axes, tile)
    kept = tuple(1 if k in axes else n for k, n in enumerate(tile.shape))
    return reductions.conform_to(reductions.var(tile, axis, dtype=dtype), kept)


def _gather_flattened(data: object, indices: object, axis: object = 0, dtype: object = None) -> Tensor:
    """Return, for each partition, the elements at the positions in ``indices`` of the flattened free axes."""
    if axis != 0:
        unsupported(f"nl.gather_flattened with axis={axis!r} is not simulated", "leave axis out, or pass 0")
    return elementwise.gather_flattened(data, indices, dtype=dtype)


def _broadcast_to(x: object, shape: Sequence[int], dtype: object = None) -> Tensor:
    """Return a view of ``x`` broadcast to ``shape``. With ``dtype`` the result is a copy in that type."""
    wide = elementwise.broadcast_to(x, shape=shape)
    return wide if dtype is None else elementwise.copy(wide, dtype=dtype)


def _binary(name: str) -> Callable[..., Any]:
    """Return the function ``nl.NAME`` of two tiles of one shape, or of a tile and a number.

    The function of two numbers returns a number.
    """

    def call(x: object, y: object, dtype: object = None) -> Any:
        tiles = [(word, one) for word, one in (("x", x), ("y", y)) if isinstance(one, Tensor)]
        if len(tiles) == 2:
            same_sizes(f"nl.{name}", *((word, elementwise.operand(one, word, name)) for word, one in tiles))
        elif tiles and name == "power":
            refuse(
                "operand_type",
                "NKI does not compile nl.power of a tile and a number",
                "use nl.square, nl.sqrt, nl.rsqrt or products, or nl.exp of a multiple of nl.log",
            )
        for word, tile in tiles if name == "power" else ():
            not_in_psum(tile, word, f"nl.{name}", "GpSimd computes it")
        return language.binary(name)(x, y, dtype=dtype)

    return call


def _unary(name: str) -> Callable[..., Tensor]:
    """Return the function ``nl.NAME`` of one tile."""

    def call(x: object, dtype: object = None) -> Tensor:
        if name == "rsqrt" and isinstance(x, Tensor):
            not_in_psum(x, "x", f"nl.{name}", "from NKI 0.5 GpSimd computes it")
        if name in COMPOSED_FUNCTIONS:
            current().notice(
                f"nl.{name} is not in NKI's table of activation functions: whether it compiles is not known",
            )
        return language.unary(name)(x, dtype=dtype)

    return call


def _reduction(name: str) -> Callable[..., Tensor]:
    """Return the function ``nl.NAME``, which folds the last free axes.

    Without ``keepdims`` at least one free axis must remain.
    """

    def call(x: object, axis: object, dtype: object = None, keepdims: bool = False) -> Tensor:
        tile = elementwise.operand(x, "x", name)
        axes = reductions.free_axes(axis, tile, name)
        last_axes(f"nl.{name}", axes, tile)
        if not keepdims and len(axes) == tile.ndim - 1:
            refuse(
                "insufficient_rank",
                f"nl.{name} over all free axes of a tile of shape {list(tile.shape)} would leave one dimension, and SBUF needs two",
                "pass keepdims=True",
            )
        made: Tensor = shared(tile, axis, dtype=dtype, keepdims=keepdims)
        return made

    shared = language.functions()[name]
    return call


def _store(dst: object, value: object) -> None:
    """Write a tile in SBUF to a tensor in HBM."""
    stored(dst, value, "nl.store")


def _expand_dims(data: Tensor, axis: int) -> Tensor:
    """Return a view of ``data`` with a new axis of one element at ``axis``. On chip, the partition axis stays first."""
    if data.space is not Space.HBM and axis % (data.ndim + 1) == 0:
        refuse(
            "partition_axis",
            f"nl.expand_dims can not add an axis before the partitions of {data.label}",
            "add the axis at 1 or later",
        )
    return language.expand_dims(data, axis)


def _transpose(x: object, dtype: object = None) -> Tensor:
    """Return the transpose of a tile of floats, computed by the tensor engine."""
    if isinstance(x, Tensor) and x.dtype_name in INTEGER_DTYPES:
        refuse(
            "dtype",
            f"nl.transpose of a tile of {x.dtype_name}: the tensor engine transposes floats only",
            "transpose with nisa.dma_transpose, or 32 x 32 elements with nisa.nc_transpose on the vector engine",
        )
    return products.transpose(x, dtype=dtype)


def _copy(src: object, dtype: object = None) -> Tensor:
    """Return a copy of a tile on chip, in SBUF."""
    if isinstance(src, Tensor) and src.space is Space.PSUM:
        current().notice("nl.copy from PSUM to SBUF needs NKI 0.6; nisa.tensor_copy works in all versions")
    return elementwise.copy(src, dtype=dtype)


def _random_seed(seed: object) -> None:
    """Seed the random number generator from a (1, 1) tile."""
    if not isinstance(seed, Tensor) or seed.size != 1:
        refuse(
            "operand_type",
            "the seed of nl.random_seed is not a (1, 1) tile",
            "pass a (1, 1) tile, such as nl.full((1, 1), 42, nl.int32)",
        )
    language.random_seed(seed)


def _rms_norm(*args: object, **kwargs: object) -> Tensor:
    """Raise LegalityError for every call. NKI's rms_norm passes a (P, 1) tile to tensor_tensor, so no kernel
    with it compiles.
    """
    return refuse(
        "shape",
        "nl.rms_norm does not compile: NKI 0.6 passes a (P, 1) tile to tensor_tensor in it",
        "write it with nl.square, nl.sum(keepdims=True), nl.rsqrt and nisa.tensor_scalar",
    )


def _device_print(prefix: object, x: object) -> None:
    """Print a tile in SBUF, or a tensor in HBM, while the kernel runs."""
    if not isinstance(prefix, str) or not isinstance(x, Tensor):
        refuse(
            "operand_type",
            f"nl.device_print can not print {type(x).__name__} with a prefix of {type(prefix).__name__}",
            "pass a text, then a tile or tensor; Python's print shows numbers while tracing",
        )
    not_in_psum(x, "tensor", "nl.device_print", "a DMA takes it off the chip")
    language.device_print(prefix, x)


def _over_last(name: str, shared: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of the reducing function ``shared`` that raises LegalityError unless the reduced axes are the
    last ones.
    """

    def call(x: object, axis: object = -1, **kwargs: object) -> Any:
        tile = elementwise.operand(x, "x", name)
        last_axes(f"nl.{name}", reductions.free_axes(axis, tile, name), tile)
        return shared(tile, axis, **kwargs)

    return call


def _program_id(axis: int = 0) -> object:
    """Return the number of the running core. A launch has one axis, the cores."""
    if axis != 0:
        refuse(
            "grid_axis",
            f"nl.program_id({axis}) asks for an axis that the launch does not have: its only axis is that of the cores",
            "use nl.program_id(0)",
        )
    return language.program_id(axis)


def _num_programs(axes: object = None) -> object:
    """Return the number of cores of the launch. A launch has one axis, the cores."""
    if isinstance(axes, int) and axes != 0:
        refuse(
            "grid_axis",
            f"nl.num_programs({axes}) asks for axes that the launch does not have: its only axis is that of the cores",
            "use nl.num_programs(0)",
        )
    return language.num_programs(cast("Any", axes))


def _shared_constant(constant: object, dtype: object = None) -> Tensor:
    """Return a tensor in HBM with the data of an array or of a ``.npy`` file.

    Raise LegalityError for numbers that are no array, and for an array of a dtype that ``nki`` lacks.
    """
    if isinstance(constant, list | tuple | int | float):
        refuse(
            "operand_type",
            f"nl.shared_constant takes an array or the path of a .npy file, not {type(constant).__name__}",
            "pass np.array(values, dtype=np.float32)",
        )
    if dtype is None and isinstance(constant, np.ndarray) and constant.dtype == np.float64:
        refuse(
            "dtype",
            "nl.shared_constant can not store float64, which NKI lacks",
            "give the array dtype=np.float32",
        )
    return memory.shared_constant(constant, dtype)


OWN: Mapping[str, Callable[..., Any]] = {
    "var": _var,
    "gather_flattened": _gather_flattened,
    "broadcast_to": _broadcast_to,
    "program_id": _program_id,
    "num_programs": _num_programs,
    "store": _store,
    "expand_dims": _expand_dims,
    "transpose": _transpose,
    "copy": _copy,
    "random_seed": _random_seed,
    "rms_norm": _rms_norm,
    **{name: _reduction(name) for name in ("sum", "prod", "max", "min", "mean")},
    "softmax": _over_last("softmax", reductions.softmax),
    "all": _over_last("all", language.functions()["all"]),
    "device_print": _device_print,
    "shared_constant": _shared_constant,
}


def _signature(text: str) -> inspect.Signature:
    """Return the Python signature that a text of parameters describes, such as ``x, axis, keepdims=False``. The
    texts are those of :data:`ARGUMENTS`.
    """
    arguments = parse(f"def f({text}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    names = [one.arg for one in arguments.args.args]
    values = [inspect.Parameter.empty] * len(names)
    for at, value in enumerate(reversed(arguments.args.defaults), 1):
        values[-at] = ast.literal_eval(value)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(n, kind, default=v) for n, v in zip(names, values, strict=True)])


def _documented(name: str, shared: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``shared`` with the name ``name`` and the parameters that the current API documents."""
    signature = _signature(ARGUMENTS[name])
    shared_names = SHARED_NAMES.get(name, {})
    own_names = {theirs: ours for ours, theirs in shared_names.items()}
    every = tuple(shared_names.get(key, key) for key in signature.parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == len(every) and not kwargs and all(one is not None for one in args):
            # a call with all arguments by position is not bound to the signature, which would take longer than most
            # calls
            return shared(**dict(zip(every, args, strict=True)))
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {
            shared_names.get(key, key): value
            for key, value in bound.arguments.items()
            if value is not None or signature.parameters[key].default is not None
        }
        return shared(**given)

    call.__name__ = call.__qualname__ = name
    call.__dict__["__signature__"] = signature
    guarded = checked("nl", call)

    def entry(*args: Any, **kwargs: Any) -> Any:
        if "mask" in kwargs:
            refuse("mask_form", f"{name} takes no mask in this API", "slice its operands instead")
        return guarded(*args, **{own_names.get(key, key): value for key, value in kwargs.items()})

    entry.__name__ = entry.__qualname__ = name
    entry.__dict__["__signature__"] = signature
    return entry


def _wrappers() -> Mapping[str, object]:
    """Return the functions of this module by name."""
    shared: dict[str, Callable[..., Any]] = {
        **language.functions(),
        **{name: _unary(name) for name in UNARY},
        **{name: _binary(name) for name in BINARY},
        **OWN,
    }
    made: dict[str, object] = {name: _documented(name, shared[name]) for name in ARGUMENTS}
    made["rand"] = checked("nl", declarations.rand)
    return MappingProxyType(made)


WRAPPERS = _wrappers()
"""The functions of :func:`_wrappers`, created once in each process, because reading their signatures takes longer than
a small trace.
"""
