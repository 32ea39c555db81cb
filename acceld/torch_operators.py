"""Put kernels back into a PyTorch model: submodules become operators that run the kernel where there is one.

Needs PyTorch. Import it where the model is built.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
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
    not read, or that a list or dict holds.
    """
    places: Mapping[str, tuple[str | int, ...]]
    """Where arguments are that are parts of a list or dict: the argument of the forward, then the places in it."""
    results: Any
    """What the forward returns, with the numbers of outputs in place of arrays."""


class Replaced(torch.nn.Module):
    """Calls the operator in place of a module. The module itself is called in training mode, and where shapes, types or
    other arguments are not those for which the operator was made.
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
        recorded = not self.module.training and self._as_recorded(given)
        if not recorded or [_kind(one) for one in arrays] != self._kinds:
            return self.module(*args, **named)
        return _filled(self.operator.results, self.operator.call([one.contiguous() for one in arrays]))

    def _as_recorded(self, given: Mapping[str, Any]) -> bool:
        """Return True if the arguments that are no array of the workload have the values for which it was made."""
        recorded = self.operator.others
        names = [name for name in given if name in recorded or name not in self._arguments]
        return all(_alike(given[name], recorded.get(name, inspect.Parameter.empty)) for name in names)

    def _has(self, name: str) -> bool:
        if name not in self.operator.parameters:
            return self.operator.places.get(name, (name,))[0] in self._signature.parameters
        try:
            return self._array(name, {}) is not None
        except AttributeError:
            return False

    def _array(self, name: str, given: Mapping[str, Any]) -> Any:
        path = self.operator.parameters.get(name)
        if path is None:
            return _part(given, self.operator.places.get(name, (name,)))
        try:
            return self.module.get_parameter(path)
        except AttributeError:
            return self.module.get_buffer(path)


def _part(held: Any, places: Sequence[str | int]) -> Any:
    """Return what is at a place of lists and dicts; None if nothing is."""
    for place in places:
        try:
            held = held[place]
        except (KeyError, IndexError, TypeError):
            return None
    return held


def _alike(value: Any, recorded: Any) -> bool:
    """Return True if a value is the recorded one; ``...`` in lists and dicts stands for any array."""
    if recorded is ...:
        return True
    if type(value) is not type(recorded):
        return False
    if isinstance(value, dict):
        return value.keys() == recorded.keys() and all(_alike(one, recorded[key]) for key, one in value.items())
    if isinstance(value, list | tuple):
        return len(value) == len(recorded) and all(map(_alike, value, recorded))
    return bool(value == recorded)


def _filled(results: Any, arrays: Sequence[torch.Tensor]) -> Any:
    """Return lists and dicts of numbers with arrays in place of the numbers."""
    if isinstance(results, int):
        return arrays[results]
    if isinstance(results, dict):
        return {key: _filled(one, arrays) for key, one in results.items()}
    return type(results)(_filled(one, arrays) for one in results)


def _kind(array: Any) -> tuple[Any, ...]:
    """Return shape and type of an array; nothing for what is none. Types of 64 bits count as those of 32, which a chip has."""
    if not isinstance(array, torch.Tensor):
        return ()
    dtype = {torch.float64: torch.float32, torch.int64: torch.int32}.get(array.dtype, array.dtype)
    return tuple(array.shape), dtype


def put_back(model: torch.nn.Module, kind: str, folder: str | Path, *, home: str | None = None) -> int:
    """Replace each submodule of the class ``kind`` by the operator of a workload, and return how many there were.

    A submodule in several places is replaced in all of them and counts once; one inside of another of the class stays,
    because it is a part of the other's operator. ``folder`` is what ``acceld init --module`` wrote for the class. On a chip
    the operator runs the best kernel of the history (``acceld.best``), elsewhere the workload's reference. Called with
    other shapes, types, numbers or switches than the folder was made with, or in training mode, the submodule itself runs.
    Inference only: operators have no gradient.

    :raises UsageError: the model has no such submodule or is in training mode, or the folder was not made from a module of
        this class in evaluation mode.
    """
    operator = _operator(load_workload(Path(folder)), home)
    places: dict[str, torch.nn.Module] = {}
    for path, one in model.named_modules(remove_duplicate=False):
        inside = any(path.startswith(f"{outer}.") for outer in places)
        if path and type(one).__name__ == kind and not inside:
            places[path] = one
    if not places:
        raise UsageError(f"the model has no submodule of the class {kind!r}", hint="print(model) lists its classes")
    training = [path for path, one in places.items() if one.training]
    if training:
        raise UsageError(
            f"{training[0]} is in training mode, and operators have no gradient", hint="call model.eval() first"
        )
    made = {id(one): Replaced(one, operator) for one in places.values()}
    for path, one in places.items():
        model.set_submodule(path, made[id(one)])
    return len(made)


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
    results = getattr(reference, "RESULTS", 0 if len(workload.outputs) == 1 else tuple(range(len(workload.outputs))))
    if isinstance(results, str):
        raise UsageError(f"a {results} can not be put back", hint="return arrays in a tuple, list or dict from forward")
    if getattr(reference, "TRAINING", False):
        raise UsageError(
            f"{workload.reference} was recorded in training mode",
            hint="acceld init --module records in evaluation mode",
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
    others, places = getattr(reference, "OTHERS", {}), getattr(reference, "PLACES", {})
    return Operator(workload, operator, parameters, others, places, results)
