"""Put kernels back into a PyTorch model: submodules become operators that run the kernel where there is one.

Needs PyTorch. Import it where the model is built.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acceld.errors import UsageError
from acceld.production import Best, best
from acceld.workloads import Workload, load_workload

_NUMBERS = itertools.count()
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Operator:
    """A workload's operator, and where its arguments come from: in order, a submodule's path or an argument's name."""

    workload: Workload
    call: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    parameters: Mapping[str, str]
    others: Mapping[str, Any]
    """Other arguments of the module's forward, for whose values alone the operator holds; ``...`` for an array that is
    not read.
    """


class Replaced(torch.nn.Module):
    """Calls the operator in place of a module. The module itself is called where shapes, types or other arguments are not
    those for which the operator was made.
    """

    def __init__(self, module: torch.nn.Module, operator: Operator) -> None:
        super().__init__()
        self.module = module
        self.operator = operator
        self._signature = inspect.signature(module.forward)
        arrays = [one for one in operator.workload.arguments if not one.is_scalar]
        self._arguments = [one.name for one in arrays]
        self._kinds = [(one.shape, getattr(torch, one.dtype, None)) for one in arrays]
        unknown = [one for one in self._arguments if not self._has(one)]
        if unknown:
            raise UsageError(
                f"{type(module).__name__} has no {', '.join(unknown)}, which {operator.workload.name} takes",
                hint="name the class's own folder; acceld init --module writes it",
            )

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return what the module returns."""
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        given = bound.arguments
        arrays = [self._array(name, given) for name in self._arguments]
        if not self._as_recorded(given) or [_kind(one) for one in arrays] != self._kinds:
            return self.module(*args, **named)
        found = self.operator.call([one.contiguous() for one in arrays])
        return found[0] if len(found) == 1 else tuple(found)

    def _as_recorded(self, given: Mapping[str, Any]) -> bool:
        """Return True if the arguments that are no array of the workload have the values for which it was made."""
        for name, value in given.items():
            if name in self._arguments:
                continue
            recorded = self.operator.others.get(name, inspect.Parameter.empty)
            if recorded is ...:
                continue
            if isinstance(value, torch.Tensor) or type(value) is not type(recorded) or value != recorded:
                return False
        return True

    def _has(self, name: str) -> bool:
        if name not in self.operator.parameters:
            return name in self._signature.parameters
        try:
            return self._array(name, {}) is not None
        except AttributeError:
            return False

    def _array(self, name: str, given: Mapping[str, Any]) -> Any:
        path = self.operator.parameters.get(name)
        if path is None:
            return given.get(name)
        try:
            return self.module.get_parameter(path)
        except AttributeError:
            return self.module.get_buffer(path)


def _kind(array: Any) -> tuple[Any, ...]:
    """Return shape and type of an array; nothing for what is none. Types of 64 bits count as those of 32, which a chip has."""
    if not isinstance(array, torch.Tensor):
        return ()
    dtype = {torch.float64: torch.float32, torch.int64: torch.int32}.get(array.dtype, array.dtype)
    return tuple(array.shape), dtype


def put_back(model: torch.nn.Module, kind: str, folder: str | Path, *, home: str | None = None) -> int:
    """Replace each submodule of the class ``kind`` by the operator of a workload, and return how many there were.

    ``folder`` is what ``acceld init --module`` wrote for the class. On a chip the operator runs the best kernel of the
    history (``acceld.best``), elsewhere the workload's reference. Called with other shapes, types, numbers or switches than
    the folder was made with, the submodule itself runs. Inference only: operators have no gradient.

    :raises UsageError: the model has no such submodule, or the folder was not made from a module of this class.
    """
    operator = _operator(load_workload(Path(folder)), home)
    found = [path for path, one in model.named_modules() if type(one).__name__ == kind and path]
    if not found:
        raise UsageError(f"the model has no submodule of the class {kind!r}", hint="print(model) lists its classes")
    made = {path: Replaced(model.get_submodule(path), operator) for path in found}
    for path, replaced in made.items():
        model.set_submodule(path, replaced)
    return len(found)


def _operator(workload: Workload, home: str | None) -> Operator:
    if workload.reference is None:
        raise UsageError(f"{workload.name} has no reference")
    spec = importlib.util.spec_from_file_location("reference", workload.reference)
    assert spec is not None and spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    parameters = getattr(reference, "PARAMETERS", None)
    if not isinstance(parameters, dict):
        raise UsageError(
            f"{workload.reference} does not say which arguments are parameters",
            hint="acceld init --module writes a reference that does",
        )

    def plain(arrays: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run the reference, in the arrays' own type or in float32."""
        given = [one.detach().cpu() for one in arrays]
        result = reference.forward(*((one.float() if one.dtype in _HALVES else one).numpy() for one in given))
        every = result if isinstance(result, tuple) else (result,)
        kinds = [getattr(torch, output.dtype) for output in workload.outputs]
        return [torch.from_numpy(np.ascontiguousarray(one)).to(k) for one, k in zip(every, kinds, strict=True)]

    kernels: list[Best] = []

    def called(arrays: list[torch.Tensor]) -> list[torch.Tensor]:
        if arrays[0].device.type == "cpu":
            return plain(arrays)
        if not kernels:  # chosen once: the history is read and the kernel compiled
            shapes = [tuple(one.shape) for one in arrays]
            kernels.append(best(workload.name, *shapes, fallback=lambda *given: plain(list(given)), home=home))
        found = kernels[0](*arrays)
        every = list(found) if isinstance(found, list | tuple) else [found]
        return [one.to(arrays[0].device) for one in every]

    def shaped(arrays: list[torch.Tensor]) -> list[torch.Tensor]:
        made = ((output.shape, getattr(torch, output.dtype)) for output in workload.outputs)
        return [arrays[0].new_empty(shape, dtype=dtype) for shape, dtype in made]

    name = f"acceld::{re.sub(r'[^A-Za-z0-9_]', '_', workload.name)}_{next(_NUMBERS)}"
    operator = torch.library.custom_op(name, called, mutates_args=(), schema="(Tensor[] arrays) -> Tensor[]")
    operator.register_fake(shaped)
    return Operator(workload, operator, parameters, getattr(reference, "OTHERS", {}))
