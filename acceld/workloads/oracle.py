"""Load and run the numpy reference of a workload, in a process that has no candidate's code."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from acceld.errors import WorkloadError, did_you_mean
from acceld.workloads.records import Workload, shape_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FUNCTIONS = ("get_inputs", "forward", "transform_to_nki_inputs", "forward_torch")


@dataclass(frozen=True, slots=True)
class Reference:
    """The functions of a reference's file. A file must have ``forward``; each other function is None if the file lacks
    it.
    """

    forward: Callable[..., Any]
    get_inputs: Callable[[], Sequence[Any]] | None
    """Draws the inputs in the order of ``forward``'s parameters."""
    to_kernel: Callable[[Sequence[Any]], Sequence[Any]] | None
    forward_torch: Callable[..., Any] | None = None
    """``forward`` on torch tensors, for a reference that runs on a GPU."""


def load_reference(path: Path) -> Reference:
    """Return the reference in the file ``path``. Raise WorkloadError if it can not be imported or lacks ``forward``."""
    module = reference_module(path)
    found = {name: getattr(module, name, None) for name in _FUNCTIONS}
    if not callable(found["forward"]):
        near = did_you_mean("forward", [name for name in vars(module) if not name.startswith("_")])
        raise WorkloadError(f"{path}: there is no function 'forward'.", hint=near)
    return Reference(
        found["forward"],
        _in_order(path, found["get_inputs"], found["forward"]) if found["get_inputs"] else None,
        found["transform_to_nki_inputs"],
        found["forward_torch"],
    )


def _in_order(path: Path, draw: Callable[[], Any], forward: Callable[..., Any]) -> Callable[[], Sequence[Any]]:
    """Return a function that calls ``draw``, a file's ``get_inputs``. If ``draw`` returns a dictionary by parameter name,
    its values come in the order of ``forward``'s parameters. A parameter that is no key is left out.
    """

    def drawn() -> Sequence[Any]:
        """Return the inputs. Raise WorkloadError if a key of the dictionary is no parameter of ``forward``."""
        made = draw()
        return as_list(path, made, list(inspect.signature(forward).parameters) if isinstance(made, Mapping) else ())

    return drawn


def as_list(path: Path, made: Any, names: Sequence[str]) -> list[Any]:
    """Return what ``get_inputs`` of the reference in ``path`` returned, as a list in the order of ``names``, the
    parameters of ``forward``. An array alone is one argument. Raise WorkloadError for a key that is no parameter, and
    for a result that is no series of arguments.
    """
    if hasattr(made, "dtype"):
        return [made]
    if isinstance(made, Mapping):
        if other := [str(name) for name in made if name not in names]:
            raise WorkloadError(
                f"{path}: get_inputs returned {', '.join(other)}, which forward does not take",
                hint=f"forward takes {', '.join(names)}",
            )
        return [made[name] for name in names if name in made]
    if not isinstance(made, Iterable) or isinstance(made, str):
        raise WorkloadError(
            f"{path}: get_inputs returned {_a_value(made)}",
            hint="return the arguments of forward: one array, a tuple of them, or a dictionary by name",
        )
    return list(made)


def outputs_of(result: Any) -> list[Any]:
    """Return the outputs that ``forward`` returned, as a list. Raise TypeError, whose text names what was returned, if
    an output is neither an array nor a number.
    """
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    if isinstance(result, list) and outputs and isinstance(outputs[0], list | bool | int | float):
        raise TypeError(f"a list of {len(outputs)} {type(outputs[0]).__name__}s")
    for place, one in enumerate(outputs):
        if not hasattr(one, "__array__") and not isinstance(one, bool | int | float | complex):
            raise TypeError(_a_value(one) + (f" as output {place}" if len(outputs) > 1 else ""))
    if not outputs:
        raise TypeError("no output")
    return outputs


def _a_value(value: Any) -> str:
    """Return words for the type of a value, such as ``a list``."""
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


class _Loader(importlib.machinery.SourceFileLoader):
    """Load a module without writing bytecode, so that no ``__pycache__`` appears in a person's folder."""

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        """Write no bytecode. importlib would call this method to write a module's bytecode."""


def reference_module(path: Path) -> ModuleType:
    """Return the module of a reference's file. Raise WorkloadError if it can not be imported."""
    name = f"acceld_reference_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a reference is a person's file: any error is reported with its name
        raise WorkloadError(
            f"{path}: importing it raised {type(error).__name__}: {error}",
            hint="import the file in Python to see the whole error",
        ) from error
    return module


def reference_of(workload: Workload) -> Reference:
    """Return the workload's reference. Raise WorkloadError if the workload has no reference."""
    if workload.reference is None:
        raise WorkloadError(
            f"workload {workload.name!r} has no reference",
            hint='name a file in workload.toml: reference = "reference.py"',
        )
    return load_reference(workload.reference)


def reference_outputs(workload: Workload, inputs: Sequence[Any], float64: bool = True) -> list[NDArray[Any]]:
    """Return the reference's outputs for ``inputs``, in the reference's layout. With ``float64``, everything is
    computed in float64.

    Raise WorkloadError if the reference raises, or returns other shapes than the workload declares.
    """
    given = [as_float64(one) if float64 else one for one in inputs]
    return called(workload, reference_of(workload).forward, given, [output.shape for output in workload.outputs])


def called(
    workload: Workload, forward: Callable[..., Any], given: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[Any]]:
    """Call a reference's ``forward``, and return its results as arrays of the given shapes. Raise WorkloadError if
    ``forward`` raises an exception, or returns other shapes.
    """
    import numpy as np

    try:
        result = forward(*given)
    except WorkloadError:
        raise
    except Exception as error:  # a person's code may raise anything
        raise WorkloadError(
            f"{workload.reference}{_line_of(workload, error)}: forward raised {type(error).__name__}{_at(workload)}: {error}".rstrip(
                ": "
            ),
            hint="get_inputs is not called at this shape: each argument is drawn as its distribution in workload.toml says; correct "
            "forward, or the distribution"
            if workload.reshaped
            else "call forward yourself with the shapes of workload.toml, and correct forward",
        ) from error
    try:
        outputs = [np.asarray(one) for one in outputs_of(result)]
    except TypeError as error:
        raise WorkloadError(
            f"{workload.reference}: forward returned {error}", hint="return an array, or a tuple of arrays"
        ) from error
    found, declared = [o.shape for o in outputs], list(shapes)
    if found != declared:
        raise WorkloadError(
            f"{workload.reference}: forward returned shapes {found}{_at(workload)}, [outputs] declares {declared}",
            hint="change forward or [outputs] in workload.toml, so that both agree",
        )
    return outputs


def _at(workload: Workload) -> str:
    """Return in words at which shape a reference was called; "" for the workload's main shape."""
    return f" at the shape {shape_text(workload.values)}" if workload.reshaped else ""


def _line_of(workload: Workload, error: BaseException) -> str:
    """Return ":" and the last line of the reference that an exception passed through; "" if it passed through none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if one.filename == str(workload.reference)]
    return f":{lines[-1]}" if lines else ""


def as_float64(value: Any) -> Any:
    """Return a floating-point array in float64, and any other value unchanged."""
    import numpy as np

    if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
        return value.astype(np.float64)
    return value


def as_float32(value: Any, *, copy: bool = False) -> Any:
    """Return a floating-point array in float32, and any other value unchanged. Without ``copy``, an array that is
    float32 already is returned itself.
    """
    import numpy as np

    if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
        return value.astype(np.float32, copy=copy)
    return value


def kernel_inputs(workload: Workload, inputs: Sequence[Any]) -> list[Any]:
    """Return ``inputs`` in the layout in which the kernel takes them."""
    reference = reference_of(workload) if workload.reference else None
    if reference and reference.to_kernel and not workload.reshaped:
        return list(reference.to_kernel(inputs))
    return [
        one if argument.is_scalar else one.reshape(argument.kernel_shape)
        for argument, one in zip(workload.arguments, inputs, strict=True)
    ]


def outputs_in_reference_layout(workload: Workload, result: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return a kernel's outputs reshaped to the reference's shapes. Raise ValueError if an output does not fit."""
    if len(result) != len(workload.outputs):
        raise ValueError(f"there are {len(result)} outputs, and the workload declares {len(workload.outputs)}")
    return [one.reshape(output.shape) for output, one in zip(workload.outputs, result, strict=True)]
