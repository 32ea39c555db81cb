"""Put kernels into a PyTorch model: submodules, or regions of the model, become operators.

An operator runs its kernel where there is one for this machine, else the reference. Needs PyTorch. Import this
module where the model is built.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acceld.errors import UsageError
from acceld.production import Best, best
from acceld.workloads import Workload, load_workload
from acceld.workloads.oracle import reference_module

if TYPE_CHECKING:
    from acceld.lowering.aten.program import Program

_NUMBERS = itertools.count()
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Operator:
    """A PyTorch operator that computes a workload. ``parameters`` has, by name, the path in the submodule of each
    argument that is a parameter or buffer.
    """

    workload: Workload
    call: Callable[..., list[torch.Tensor]]
    parameters: Mapping[str, str]
    others: Mapping[str, Any]
    """Other arguments of the module's forward, with the only values for which the operator is valid; ``...`` for an
    array that is not read, or that a list or dict holds.
    """
    places: Mapping[str, tuple[str | int, ...]]
    """Places of arguments that are parts of a list or dict: the argument of the forward, then the places in it."""
    results: Any
    """Structure of what the forward returns, with the numbers of outputs in place of arrays."""


class Replaced(torch.nn.Module):
    """Module that calls an operator in place of the module that it replaces.

    The replaced module itself is called in training mode, and for shapes, types or other arguments that differ from
    those that the operator was made for.
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
                hint="give the folder that acceld init --module wrote for this class",
            )

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return what the replaced module would return, in the same structure."""
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        given = bound.arguments
        arrays = [self._array(name, given) for name in self._arguments]
        recorded = not self.module.training and self._as_recorded(given)
        if not recorded or [_kind(one) for one in arrays] != self._kinds:
            return self.module(*args, **named)
        return _filled(self.operator.results, self.operator.call(*(one.contiguous() for one in arrays)))

    def _as_recorded(self, given: Mapping[str, Any]) -> bool:
        """Tell whether all arguments that are not arrays of the workload have the values with which the operator was
        made.
        """
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
    """Return the value to which the indices and keys ``places`` lead in nested lists and dicts; None if there is no
    such value.
    """
    for place in places:
        try:
            held = held[place]
        except (KeyError, IndexError, TypeError):
            return None
    return held


def _alike(value: Any, recorded: Any) -> bool:
    """Tell whether a value equals the recorded one. In the recorded lists and dicts ``...`` stands for any
    array.
    """
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
    """Return the structure ``results`` with an array of ``arrays`` in place of each number, which is the
    array's index.
    """
    if isinstance(results, int):
        return arrays[results]
    if isinstance(results, dict):
        return {key: _filled(one, arrays) for key, one in results.items()}
    return type(results)(_filled(one, arrays) for one in results)


def _kind(array: Any) -> tuple[Any, ...]:
    """Return the shape and the type of an array; an empty tuple for any other value. A 64-bit type counts as the 32-bit
    type, because chips have no 64-bit types.
    """
    if not isinstance(array, torch.Tensor):
        return ()
    dtype = {torch.float64: torch.float32, torch.int64: torch.int32}.get(array.dtype, array.dtype)
    return tuple(array.shape), dtype


def put_back(model: torch.nn.Module, kind: str, folder: str | Path, *, home: str | None = None) -> int:
    """Replace each submodule of the class ``kind`` by the operator of a workload. Return the number of replaced
    submodules.

    ``folder`` is the workload's folder, which ``acceld init --module`` wrote for that class. On a chip the operator
    runs the best kernel of the history (``acceld.best``), elsewhere the workload's reference. If the operator is called
    with other shapes, types, numbers or switches than those of the folder, or in training mode, the operator calls the
    submodule that it replaced. Use operators for inference only: they have no gradient.

    A submodule that the model uses in several places is replaced in each and counted once. A submodule inside another
    submodule of the class stays, because the operator of the outer submodule contains it.

    Raise UsageError if the model has no such submodule or is in training mode, or if the folder was not made from a
    module of this class in evaluation mode.
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


def put_regions(
    model: torch.nn.Module,
    folder: str | Path,
    arguments: Sequence[Any],
    regions: Sequence[str] = (),
    *,
    home: str | None = None,
) -> torch.nn.Module:
    """Return a copy of a model that computes regions of its forward by operators.

    ``folder`` is what ``acceld model -o`` wrote for the model's class. ``regions`` names the regions to
    replace; without names, all regions of the folder are replaced. The model is recorded with ``arguments``,
    whose shapes are those of the folder, and the result takes no other shapes. Operators are those of
    :func:`put_back`.

    Raise UsageError if the model is in training mode, can not be recorded, or lacks one of the regions.
    """
    from acceld.lowering.aten.division import divided
    from acceld.lowering.aten.export import Subject, exported_of, recorded
    from acceld.lowering.graph import NotLowered

    if model.training:
        raise UsageError(
            "the model is in training mode, and operators have no gradient", hint="call model.eval() first"
        )
    wanted = {}
    for place in sorted(Path(folder).glob("*/workload.toml")):
        if not regions or place.parent.name in regions:
            workload = load_workload(place.parent)
            wanted[getattr(_reference(workload), "REGION", "")] = workload
    try:
        subject = Subject(type(model).__name__, model, tuple(arguments))
        exported = exported_of(subject)
        parts = [one for one in divided(recorded(exported, subject, values=False)) if one.signature in wanted]
    except NotLowered as error:
        raise UsageError(
            f"the model can not be recorded: {error}", hint="docs/pytorch.md says what can be recorded"
        ) from error
    absent = sorted({one.name for one in wanted.values()} - {wanted[part.signature].name for part in parts})
    if absent or not wanted:
        raise UsageError(
            f"the model has no region {', '.join(absent) or 'of this folder'}",
            hint="write the folder again: acceld model, with the shapes and types that the model is called with",
        )
    made = exported.module()
    for node in list(made.graph.nodes):
        if node.op == "call_function" and "assert" in str(node.target):
            made.graph.erase_node(node)  # an assertion would keep nodes alive that a region replaces
    nodes = {node.name: node for node in made.graph.nodes}
    gone = {nodes[name] for part in parts for _, calls in part.places for name in calls}
    for part in parts:
        operator = _operator(wanted[part.signature], home)
        for program, calls in part.places:
            _replace(made.graph, nodes, program, calls, operator)
    for node in reversed(list(made.graph.nodes)):
        if node in gone and not node.users:
            made.graph.erase_node(node)  # eliminate_dead_code keeps an unused attention, which may draw random numbers
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


def _replace(
    graph: torch.fx.Graph, nodes: dict[str, torch.fx.Node], program: Program, calls: Sequence[str], operator: Operator
) -> None:
    """Replace the calls of a region in the graph by one call of an operator. ``nodes`` has each value's node by
    the value's name in the recording.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    last = max((nodes[name] for name in calls), key=lambda node: order[node])
    with graph.inserting_before(last.next):
        given = [nodes[one.name] if one.role == "argument" else graph.get_attr(one.path) for one in program.inputs]
        called = graph.call_function(operator.call, tuple(graph.call_method("contiguous", (one,)) for one in given))
        for place, name in enumerate(program.outputs):
            result = graph.call_function(getitem, (called, place))
            # Only later nodes read the result. Earlier readers are parts of replaced regions, which are removed.
            nodes[name].replace_all_uses_with(result, delete_user_cb=lambda user: order.get(user, -1) > order[last])
            nodes[name] = result


def _reference(workload: Workload) -> Any:
    """Return the Python module of a workload's reference. Raise UsageError if the reference was not made from
    a PyTorch module.
    """
    if workload.reference is None:
        raise UsageError(f"workload {workload.name} has no reference", hint="acceld init --module writes one")
    reference = reference_module(workload.reference)
    if not isinstance(getattr(reference, "PARAMETERS", None), dict):
        raise UsageError(
            f"{workload.reference} does not say which arguments are parameters",
            hint="acceld init --module writes a reference that does",
        )
    return reference


def _operator(workload: Workload, home: str | None) -> Operator:
    reference = _reference(workload)
    results = getattr(reference, "RESULTS", 0 if len(workload.outputs) == 1 else tuple(range(len(workload.outputs))))
    if isinstance(results, str):
        raise UsageError(
            f"forward returns a {results}, which an operator can not return",
            hint="return arrays in a tuple, list or dict from forward",
        )
    if getattr(reference, "TRAINING", False):
        raise UsageError(
            f"{workload.reference} was recorded in training mode",
            hint="write the folder again: acceld init --module records in evaluation mode",
        )

    def plain(arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the reference's outputs for the arrays, computed in the arrays' own type or in float32."""
        given = [one.detach().cpu() for one in arrays]
        with np.errstate(all="ignore"):  # torch is silent too, such as about the logarithm of 0
            result = reference.forward(*((one.float() if one.dtype in _HALVES else one).numpy() for one in given))
        every = result if isinstance(result, tuple) else (result,)
        kinds = [getattr(torch, output.dtype) for output in workload.outputs]
        return [torch.from_numpy(np.ascontiguousarray(one)).to(k) for one, k in zip(every, kinds, strict=True)]

    kernels: list[Best] = []

    def called(*arrays: torch.Tensor) -> list[torch.Tensor]:
        if arrays[0].device.type == "cpu":
            return plain(arrays)
        if not kernels:  # chosen at the first call, because the history has to be read and the kernel compiled
            shapes = [tuple(one.shape) for one in arrays]
            kernels.append(best(workload.name, *shapes, fallback=lambda *given: plain(given), home=home))
        found = kernels[0](*arrays)
        every = list(found) if isinstance(found, list | tuple) else [found]
        return [one.to(arrays[0].device) for one in every]

    def shaped(*arrays: torch.Tensor) -> list[torch.Tensor]:
        made = ((output.shape, getattr(torch, output.dtype)) for output in workload.outputs)
        return [arrays[0].new_empty(shape, dtype=dtype) for shape, dtype in made]

    own = [one.name for one in workload.arguments if not one.is_scalar]
    name = f"{re.sub(r'[^A-Za-z0-9_]', '_', workload.name)}_{next(_NUMBERS)}"
    _registered(f"acceld::{name}", called, own, shaped)
    others, places = getattr(reference, "OTHERS", {}), getattr(reference, "PLACES", {})
    overload = getattr(torch.ops.acceld, name).default
    return Operator(workload, overload, reference.PARAMETERS, others, places, results)


def _registered(
    name: str, called: Callable[..., list[torch.Tensor]], arguments: Sequence[str], shaped: Callable[..., Any]
) -> None:
    """Register a function as a PyTorch operator.

    If torch-neuronx is installed, the function is registered with ``nki_op``, so that Neuron's compiler sees the
    kernel. Otherwise the function becomes a custom operator of PyTorch.
    """
    parameters = [
        inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=torch.Tensor) for one in arguments
    ]
    signature = inspect.Signature(parameters, return_annotation=list[torch.Tensor])
    called.__signature__ = signature  # type: ignore[attr-defined]  # operators take their types from it
    neuron = importlib.import_module("torch_neuronx") if importlib.util.find_spec("torch_neuronx") else None
    if neuron is not None and hasattr(neuron, "nki_op"):
        made = neuron.nki_op(name, mutates_args={})(called)
    else:
        made = torch.library.custom_op(name, called, mutates_args=())
    if hasattr(made, "register_fake"):
        made.register_fake(shaped)
