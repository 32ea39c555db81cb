"""Provide the functions of ``nki.language`` that return a tile, with this API's arguments.

The implementation is shared with the legacy API, whose functions also take ``mask``, and most arguments by name only.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acceld.nki.frontend.core import elementwise, language, reductions
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.signatures import checked
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current import declarations
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
"""Parameters by function, in order. ``num_programs`` without axes is the size of the whole grid, as documented;
``dtype`` of ``shared_constant`` is an argument of earlier versions."""

SHARED_NAMES: dict[str, dict[str, str]] = {
    "copy": {"x": "src"},
    "expand_dims": {"x": "data"},
    "device_print": {"print_prefix": "prefix", "tensor": "x"},
}
"""Other names of parameters in the shared function. Either name is accepted."""


def _var(x: object, axis: object, dtype: object = None, keepdims: bool = False) -> Tensor:
    """Return the variance, always with the reduced axes as axes of one element: ``keepdims`` is documented as ignored."""
    tile = elementwise.operand(x, "x", "var")
    axes = reductions.free_axes(axis, tile, "var")
    kept = tuple(1 if k in axes else n for k, n in enumerate(tile.shape))
    return reductions.conform_to(reductions.var(tile, axis, dtype=dtype), kept)


def _gather_flattened(data: object, indices: object, axis: object = 0, dtype: object = None) -> Tensor:
    """Gather along the flattened free axes of each partition."""
    if axis != 0:
        unsupported(f"nl.gather_flattened with axis={axis!r}", "leave axis out, or pass 0")
    return elementwise.gather_flattened(data, indices, dtype=dtype)


def _broadcast_to(x: object, shape: Sequence[int], dtype: object = None) -> Tensor:
    """Return a view; a copy if ``dtype`` differs."""
    wide = elementwise.broadcast_to(x, shape=shape)
    return wide if dtype is None else elementwise.copy(wide, dtype=dtype)


OWN: Mapping[str, Callable[..., Any]] = {
    "var": _var,
    "gather_flattened": _gather_flattened,
    "broadcast_to": _broadcast_to,
}


def _signature(text: str) -> inspect.Signature:
    arguments = parse(f"def f({text}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    names = [one.arg for one in arguments.args.args]
    values = [inspect.Parameter.empty] * len(names)
    for at, value in enumerate(reversed(arguments.args.defaults), 1):
        values[-at] = ast.literal_eval(value)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(n, kind, default=v) for n, v in zip(names, values, strict=True)])


def _documented(name: str, shared: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``shared`` under the name and with the arguments of this API."""
    signature = _signature(ARGUMENTS[name])
    shared_names = SHARED_NAMES.get(name, {})
    own_names = {theirs: ours for ours, theirs in shared_names.items()}

    def call(*args: Any, **kwargs: Any) -> Any:
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
            refuse("mask_form", f"{name} takes no mask in this API", "use slices")
        return guarded(*args, **{own_names.get(key, key): value for key, value in kwargs.items()})

    entry.__name__ = entry.__qualname__ = name
    entry.__dict__["__signature__"] = signature
    return entry


def wrappers() -> dict[str, object]:
    """Return the functions by name."""
    shared: dict[str, Callable[..., Any]] = {
        **language.functions(),
        **{name: language.unary(name) for name in UNARY},
        **{name: language.binary(name) for name in BINARY},
        **OWN,
    }
    made: dict[str, object] = {name: _documented(name, shared[name]) for name in ARGUMENTS}
    made["rand"] = checked("nl", declarations.rand)
    return made
