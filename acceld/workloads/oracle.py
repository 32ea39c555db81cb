"""Load and run the numpy reference of a workload, in a process that has no candidate's code."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from acceld.errors import WorkloadError, did_you_mean
from acceld.workloads.records import Workload

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
    """Return the reference in the file ``path``. Raises WorkloadError if it can not be imported or lacks ``forward``."""
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
        """Return the inputs. Raises WorkloadError if a key of the dictionary is no parameter of ``forward``."""
        made = draw()
        if not isinstance(made, Mapping):
            return list(made)
        names = list(inspect.signature(forward).parameters)
        if other := [str(name) for name in made if name not in names]:
            raise WorkloadError(
                f"{path}: get_inputs returned {', '.join(other)}, which forward does not take",
                hint=f"forward takes {', '.join(names)}",
            )
        return [made[name] for name in names if name in made]

    return drawn


class _Loader(importlib.machinery.SourceFileLoader):
    """Load a module without writing bytecode, so that no ``__pycache__`` appears in a person's folder."""

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        """Write no bytecode: importlib calls this method to write it."""


def reference_module(path: Path) -> ModuleType:
    """Return the module of a reference's file. Raises WorkloadError if it can not be imported."""
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
    """Return the workload's reference. Raises WorkloadError if the workload has no reference."""
    if workload.reference is None:
        raise WorkloadError(
            f"workload {workload.name!r} has no reference",
            hint='name a file in workload.toml: reference = "reference.py"',
        )
    return load_reference(workload.reference)


def reference_outputs(workload: Workload, inputs: Sequence[Any], float64: bool = True) -> list[NDArray[Any]]:
    """Return the reference's outputs for ``inputs``, in the reference's layout. With ``float64``, everything is
    computed in float64.

    Raises WorkloadError if the reference raises, or returns other shapes than the workload declares.
    """
    given = [as_float64(one) if float64 else one for one in inputs]
    return called(workload, reference_of(workload).forward, given, [output.shape for output in workload.outputs])


def called(
    workload: Workload, forward: Callable[..., Any], given: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[Any]]:
    """Call a reference's ``forward``, and return its results as arrays of the given shapes. Raises WorkloadError if
    ``forward`` raises an exception, or returns other shapes.
    """
    import numpy as np

    try:
        result = forward(*given)
    except WorkloadError:
        raise
    except Exception as error:  # a person's code may raise anything
        raise WorkloadError(
            f"{workload.reference}: forward raised {type(error).__name__}: {error}",
            hint="call forward yourself with the shapes of workload.toml, and correct forward",
        ) from error
    outputs = [np.asarray(one) for one in (result if isinstance(result, tuple | list) else (result,))]
    found, declared = [o.shape for o in outputs], list(shapes)
    if found != declared:
        raise WorkloadError(
            f"{workload.reference}: forward returned shapes {found}, [outputs] declares {declared}",
            hint="change forward or [outputs] in workload.toml, so that both agree",
        )
    return outputs


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
    """Return a kernel's outputs reshaped to the reference's shapes. Raises ValueError if an output does not fit."""
    if len(result) != len(workload.outputs):
        raise ValueError(f"there are {len(result)} outputs, and the workload declares {len(workload.outputs)}")
    return [one.reshape(output.shape) for output, one in zip(workload.outputs, result, strict=True)]
