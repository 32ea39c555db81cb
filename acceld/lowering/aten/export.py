"""Record a PyTorch module's operators with ``torch.export``, and write the module's reference in numpy.

``python -m acceld.lowering.aten.export`` reads one JSON request from each line of its standard input, and answers each
request with one line of JSON. It runs a user's code, so it always runs in a separate process.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import operator
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.export import ExportedProgram, default_decompositions, export
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from acceld.errors import nearest_of
from acceld.lowering.aten.division import Part, array_bytes, divided
from acceld.lowering.aten.operators import OPERATORS, RANDOM
from acceld.lowering.aten.program import Argument, Array, Call, Constant, Input, Named, Program
from acceld.lowering.aten.reference import argument_names, literal, needed_inputs, reference_text
from acceld.lowering.graph import Graph, NotLowered
from acceld.lowering.kernels import work
from acceld.lowering.loops import vectorized
from acceld.lowering.numpy_reference import traced
from acceld.parsing import parse

_BATCHES = frozenset({"batch_size", "batch", "B"})
_EXTENTS = frozenset(
    "depth height width depth_in height_in width_in H W D dim1 dim2 dim3 input_size length seq_len sequence_length "
    "input_length".split()
)
_SMALL = 24
"""Greatest extent of images and sequences at reduced sizes. With this extent, checking the reference takes only
seconds.
"""
_ON_CHIP = {"float64": "float32", "int64": "int32"}
"""The 32-bit dtype in which a chip holds an array of a 64-bit dtype, by the name of the 64-bit dtype."""
_WORDS = OPERATORS | RANDOM
_NOT_USERS = (os.path.dirname(torch.__file__), os.path.dirname(os.__file__), str(Path(__file__).parent), "<")
"""Beginnings of the names of files that are not a user's: PyTorch's, Python's and acceld's."""
_LONGEST_CONSTANT = 64
_CHECKED_ELEMENTS = 2**26
"""Greatest number of elements of arguments and weights together with which a module is run to check its reference."""


_COMMON = 9.0
"""Greatest value that is drawn for an argument of integers whose range nothing tells."""
_BAGS = ("_embedding_bag", "_embedding_bag_forward_only")
_ALONG = ("gather", "scatter", "scatter_add", "index_add", "index_copy")
"""Operators whose third operand has positions along the axis that the second one names."""
_VIEWS = frozenset(
    "view reshape _unsafe_view to _to_copy clone contiguous alias unsqueeze squeeze expand flatten select slice transpose "
    "permute t".split()
)
"""Operators whose result has the values of their first operand."""
_BY_STATISTICS = frozenset(
    "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm "
    "instance_norm".split()
)
"""Norms whose sixth operand is True if they take the statistics of their input: they then leave the fourth and fifth
operands, the running mean and variance, unread.
"""
_SELECTING = frozenset(
    "index index_put _unsafe_index _unsafe_index_put index_select index_add index_copy index_fill gather take scatter "
    "scatter_add scatter_reduce embedding _embedding_bag _embedding_bag_forward_only one_hot cross_entropy_loss "
    "nll_loss_forward nll_loss bitwise_left_shift bitwise_right_shift __lshift__ __rshift__".split()
)
"""Operators whose integers are valid in a range alone."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A PyTorch module and the arguments of its call.

    ``draw`` is the file's function ``get_inputs``, which returns the arguments; None if the arguments come from
    elsewhere.
    """

    title: str
    module: torch.nn.Module
    arguments: tuple[Any, ...]
    draw: Callable[[], Any] | None = None
    named: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are passed by name, because an earlier parameter keeps its default."""

    @property
    def places(self) -> list[tuple[tuple[str | int, ...], Any]]:
        """Return a pair (place, value) for every value in the arguments, in the order of ``torch.export``.

        A place is the name of the parameter of ``forward``, followed by the indices and keys that lead to the value in
        lists and dicts.
        """
        own = inspect.signature(self.module.forward).parameters.values()
        names = [one.name for one in own if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        rest = next((one.name for one in own if one.kind == one.VAR_POSITIONAL), "")
        tops: list[tuple[tuple[str | int, ...], Any]] = [
            ((name,), v) for name, v in zip(names, self.arguments, strict=False)
        ]
        tops += [((rest, at), value) for at, value in enumerate(self.arguments[len(names) :])]
        tops += [((name,), value) for name, value in self.named.items()]
        return [
            ((*top, *(_key(one) for one in path)), value)
            for top, held in tops
            for path, value in torch.utils._pytree.tree_flatten_with_path(held)[0]
        ]

    @property
    def others(self) -> dict[str, Any]:
        """Return the arguments of ``forward`` that are not arrays, as a dict by parameter name, with defaults filled
        in.

        In lists and dicts, ``...`` stands for an array. Raise NotLowered for an argument that can not be written as a
        Python literal.
        """
        signature = inspect.signature(self.module.forward)
        found = signature.bind(*self.arguments, **self.named)
        found.apply_defaults()
        others: dict[str, Any] = {}
        for name, value in found.arguments.items():
            if isinstance(value, torch.Tensor):
                continue
            value = torch.utils._pytree.tree_map(lambda one: ... if isinstance(one, torch.Tensor) else one, value)
            try:
                ast.literal_eval(literal(value))
            except (ValueError, SyntaxError) as error:
                raise NotLowered(
                    f"forward's argument {name} is a {type(value).__name__}, which is not lowered; pass arrays, numbers, "
                    "texts, or lists and dicts of these"
                ) from error
            others[name] = value
        return others


class _NotMade(NotLowered):
    """Raised if a module can not be constructed, or if ``torch.export`` can not record it.

    For an operator that acceld does not lower, NotLowered itself is raised instead.
    """


class _Untouched(torch.overrides.TorchFunctionMode):
    """Skip the random initialization of weights while a module is constructed.

    Drawing the weights of a large module takes minutes, and their values are not read.
    """

    _SKIPPED = frozenset(
        "normal_ uniform_ trunc_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ orthogonal_".split()
    )

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if getattr(function, "__name__", "") in self._SKIPPED:
            return args[0] if args else named["tensor"]
        return function(*args, **named)


def program_of(subject: Subject) -> Program:
    """Return a module as a Program, the record of its operators.

    Raise NotLowered if ``torch.export`` can not record the module, or if acceld does not lower some part of it.
    """
    return recorded(exported_of(subject), subject)


def exported_of(subject: Subject) -> ExportedProgram:
    """Return a module as ``torch.export`` records it. Raise NotLowered if ``torch.export`` refuses the module."""
    try:
        with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            # hide the warnings about deprecated functions of torch that torch.export itself calls
            warnings.simplefilter("ignore", FutureWarning)
            exported = export(subject.module, subject.arguments, dict(subject.named), strict=False)
            if subject.module.training or not _has_words(exported):
                table = {
                    operator: how for operator, how in default_decompositions().items() if _word(operator) not in _WORDS
                }
                exported = exported.run_decompositions(table)
                if table := _further_decompositions(exported):
                    further = exported.run_decompositions(table)
                    # A name that the module's author did not write tells less of what is not lowered.
                    exported = further if _has_words(further) else exported
    except Exception as error:  # torch.export runs the module's code, so any exception is possible
        words = [line for line in str(error).splitlines() if line.strip()]
        if isinstance(error, GuardOnDataDependentSymNode):
            place = _line("", error)
            raise _NotMade(
                f"forward branches on a value of an array{f' at {place}' if place else ''}: compute both branches, and "
                "choose by torch.where"
            ) from error
        line = _line("", error)
        what = words[0] if words else type(error).__name__
        raise _NotMade(f"torch.export refuses the module{f' at {line}' if line else ''}: {what}") from error
    return exported


def _line(text: str, error: BaseException | None = None) -> str:
    """Return FILE:LINE of the last frame of a traceback that is code of neither PyTorch nor Python; "" if there is none.

    ``text`` is the traceback as PyTorch writes it for a node of a graph. It is not read if there is an ``error``.
    """
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)] if error else []
    frames = frames or [(name, int(line)) for name, line in re.findall(r'File "([^"]+)", line (\d+)', text)]
    own = [(name, line) for name, line in frames if not name.startswith(_NOT_USERS)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def _further_decompositions(exported: ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of the operators of a recorded module that acceld does not lower.

    These are core operators, such as ``grid_sampler_2d``, which ``torch.export`` keeps.
    """
    called = {node.target for node in exported.graph.nodes if node.op == "call_function"}
    return {
        one: decomposition_table[one]
        for one in called
        if isinstance(one, torch._ops.OpOverload) and _word(one) not in _WORDS and one in decomposition_table
    }


def _word(operator: Any) -> str:
    """Return the name of an operator without namespace and overload: ``add`` for ``aten::add.Tensor``."""
    found: str = operator.name().split("::")[1].partition(".")[0]
    return found


def _has_words(exported: ExportedProgram) -> bool:
    """Tell whether acceld lowers every operator of a recorded module, and no operator writes to its operands.

    Only other modules have to be decomposed into simpler operators.
    """
    called = {node.target for node in exported.graph.nodes if node.op == "call_function"} - {operator.getitem}
    return all(
        isinstance(one, torch._ops.OpOverload) and not one._schema.is_mutable and _word(one) in _WORDS for one in called
    )


def recorded(exported: ExportedProgram, subject: Subject, *, values: bool = True) -> Program:
    """Return the Program of a module that ``torch.export`` recorded.

    With ``values=False``, the module's buffers become inputs instead of constants, because their values are not read.
    Raise NotLowered for a module that writes its arguments or buffers, returns no arrays, or runs a nested graph.
    """
    kinds = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    inputs: list[Input] = []
    constants: list[Constant] = []
    calls: list[Call] = []
    user = iter(subject.places)
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            spec = kinds[node.name]
            value = node.meta.get("val")
            if spec.kind == InputKind.USER_INPUT:
                place, given = next(user)
                if isinstance(value, torch.Tensor):
                    # The values of an argument that was made from a shape say nothing about real data.
                    low, high = (None, None) if subject.draw is None else _bounds(given)
                    path = ".".join(map(str, place))
                    inputs.append(Input(node.name, _array(value), "argument", path, low, high, place))
                continue
            if spec.kind in (InputKind.TOKEN, InputKind.CUSTOM_OBJ):
                continue  # marks the order of checks; what uses one is refused by its own name
            held = _held(exported, spec)
            role: Any = "parameter" if spec.kind == InputKind.PARAMETER else "buffer"
            low = high = None
            if held.is_complex():
                raise NotLowered(
                    f"{spec.target} has complex numbers, which are not lowered: keep real and imaginary parts in two "
                    "buffers, such as cosines and sines"
                )
            known = values and role == "buffer"
            if known and (found := _described(node.name, held, spec)) is not None:
                constants.append(found)
                continue
            if known and held.numel():
                low, high = float(held.min()), float(held.max())
            inputs.append(Input(node.name, _array(value), role, spec.target, low, high))
        elif node.op == "call_function":
            calls.append(_call(node))
        elif node.op == "get_attr":
            held = getattr(exported.graph_module, node.target)
            if not isinstance(held, torch.Tensor):
                raise NotLowered(
                    f"forward runs a graph inside of its graph ({node.target}), as torch.cond, torch.while_loop and "
                    "flex_attention do, which is not lowered: compute all branches and choose by torch.where, loop a fixed "
                    "number of times, or write attention as products, a mask and softmax"
                )
            constants.append(_constant(node.name, held))
    arrays = {one.name: one.array for one in inputs} | {one.name: one.results[0] for one in calls if one.results}
    sought = {one for call in calls for one in _sought(call)}
    inputs = [_reaching(replace(one, ordered=one.name in sought), calls, arrays) for one in inputs]
    if complexes := [one.path for one in inputs if one.array.dtype.startswith("complex")]:
        raise NotLowered(
            f"forward's argument {complexes[0]} has complex numbers, which are not lowered: take real and imaginary parts "
            "as one array, and call torch.view_as_complex"
        )
    # The reference takes forward's arguments first, and then the weights.
    inputs.sort(key=lambda one: one.role != "argument")
    specs = exported.graph_signature.output_specs
    paths = {one.name: one.path for one in inputs}
    if written := [paths.get(str(one.target)) for one in specs if one.kind == OutputKind.USER_INPUT_MUTATION]:
        raise NotLowered(f"forward writes its argument {written[0]}: return a new array")
    state = [one.target for one in specs if one.kind == OutputKind.BUFFER_MUTATION]
    # running statistics may be written, because norms update them in training
    if state and not subject.module.training:
        raise NotLowered(f"forward writes its buffer {state[0]}: take it as an argument, and return the new array")
    returned = [one.arg for one in specs if one.kind == OutputKind.USER_OUTPUT]
    for one in returned:
        if not isinstance(one, TensorArgument):
            what = repr(one.value) if isinstance(one, ConstantArgument) else type(one).__name__
            raise NotLowered(f"the module returns {what} beside arrays: return the arrays alone")
    outputs = tuple(one.name for one in returned)
    if not outputs:
        raise NotLowered("the module returns no array: let forward return one")
    if empty := [place for place, one in enumerate(outputs, 1) if one in arrays and 0 in arrays[one].shape]:
        raise NotLowered(f"output {empty[0]} of the module has no elements: leave it out")
    if any(one in arrays and arrays[one].dtype.startswith("complex") for one in outputs):
        raise NotLowered("the module returns complex numbers, which are not lowered: return torch.view_as_real of them")
    program = Program(subject.title, tuple(inputs), tuple(constants), tuple(calls), outputs)
    needed = needed_inputs(program)
    read = {one.place[0] for one in needed if one.place}
    unread = {str(one.place[0]): ... for one in inputs if one.place and one.place[0] not in read}
    return replace(
        program,
        inputs=needed,
        others=tuple((subject.others | unread).items()),
        results=_structure(exported),
        training=subject.module.training,
    )


def _sought(call: Call) -> list[str]:
    """Return the name of the operand that the operator ``call`` expects to be sorted; None for an operator without
    such an operand.
    """
    at = {"searchsorted": 0, "bucketize": 1}.get(call.operator)
    found = call.args[at] if at is not None and at < len(call.args) else None
    return [found.of] if isinstance(found, Named) else []


def _reaching(one: Input, calls: Sequence[Call], arrays: Mapping[str, Array]) -> Input:
    """Return an input of indices with its valid range: from 0 to the smallest extent that the indices select from.

    ``calls`` are the operators of the module, and ``arrays`` the shapes of their operands by name. Any other input is
    returned unchanged.
    """
    if one.high is not None or not one.array.dtype.startswith("int"):
        return one
    own = {Named(one.name)}
    extents = []
    for call in calls:
        args = call.args
        if call.operator in _VIEWS and args and args[0] in own:
            own.add(Named(call.name))
            continue
        table = arrays.get(args[0].of) if args and isinstance(args[0], Named) else None
        indices = args[1] if len(args) > 1 and isinstance(args[1], list) else [*args]
        if table is None or not any(index in own for index in indices if isinstance(index, Named)):
            continue
        if call.operator in ("index", "index_put"):
            extents += [
                table.shape[axis] for axis, index in enumerate(indices) if isinstance(index, Named) and index in own
            ]
            continue
        if call.operator in _BAGS and args[2] in own:  # the starts of bags: the last bag has all rows
            return replace(one, low=0.0, high=0.0)
        named = args[1] if call.operator in _ALONG and len(args) > 2 and args[2] in own else None
        if call.operator == "index_select":
            named = args[1]
        at = {"cross_entropy_loss": 1, **dict.fromkeys(("embedding", *_BAGS), 0)}.get(call.operator, named)
        if isinstance(at, int):
            extents.append(table.shape[min(at, len(table.shape) - 1)])  # logits of one element have classes alone
    if extents:
        return replace(one, low=0.0, high=float(min(extents) - 1))
    return replace(one, low=0.0, high=_COMMON) if one.role == "argument" and _is_number(one.name, calls) else one


def _is_number(name: str, calls: Sequence[Call]) -> bool:
    """Tell whether every number is a valid element of an integer argument.

    This is so if neither the argument nor a value computed from it selects elements or is a number of bits to shift
    by.
    """
    reached = {name}
    for call in calls:
        if not reached.isdisjoint(call.reads):
            if call.operator in _SELECTING:
                return False
            reached.add(call.name)
    return True


def _bounds(value: torch.Tensor) -> tuple[float | None, float | None]:
    """Return the least and the greatest value of an integer array. For any other array, return (None, None)."""
    if value.dtype.is_floating_point or not value.numel() or isinstance(value, FakeTensor):
        return None, None
    return float(value.min()), float(value.max())


def _key(one: Any) -> str | int:
    """Return the index or key in one element of a PyTorch path to a value in lists and dicts.

    Raise NotLowered if the element leads into any other object.
    """
    found = getattr(one, "idx", getattr(one, "key", None))
    if not isinstance(found, str | int):
        raise NotLowered(
            f"forward's argument {one} is part of an object that is not lowered: give arrays in lists or dicts"
        )
    return found


def _structure(exported: ExportedProgram) -> Any:
    """Return the structure that ``forward`` returns, with the number of an output in place of each array.

    If the structure can not be written as a Python literal, return the name of the result's type.
    """
    spec = exported.call_spec.out_spec
    assert spec is not None
    found = torch.utils._pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    try:
        return found if ast.literal_eval(repr(found)) == found else type(found).__name__
    except (ValueError, SyntaxError):
        return type(found).__name__


def _held(exported: ExportedProgram, spec: Any) -> torch.Tensor:
    """Return the value of a parameter, a buffer or a constant of a recorded module."""
    found = exported.state_dict.get(spec.target)
    held: torch.Tensor = exported.constants[spec.target] if found is None else found
    return held


def _array(value: torch.Tensor) -> Array:
    """Return the shape and dtype of an array. Raise NotLowered if the shape depends on values."""
    if any(not isinstance(extent, int) for extent in value.shape):
        hint = "keep all rows, and choose by torch.where or by a weight of 0"
        raise NotLowered(f"a shape that depends on values is not lowered; {hint}")
    return Array(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def _described(name: str, held: torch.Tensor, spec: Any) -> Constant | None:
    """Return a buffer of the module as a constant, if it has few values or a short numpy expression gives it.

    Return None if the buffer's values have to come from a checkpoint.
    """
    array = _array(held)
    kept = spec.kind == InputKind.BUFFER and spec.persistent
    if not kept and held.numel() <= _LONGEST_CONSTANT and not _are_positions(held):
        return _constant(name, held)
    words = _words(held, array, state=kept)
    return None if words is None else Constant(name, array, words=words)


def _constant(name: str, held: torch.Tensor) -> Constant:
    """Return a tensor as a constant with values if it is short, else as a constant with a numpy expression.

    Raise NotLowered if no short expression makes the tensor.
    """
    array = _array(held)
    if held.numel() <= _LONGEST_CONSTANT and not _are_positions(held):
        return Constant(name, array, tuple(float(one) for one in held.reshape(-1).to(torch.float64)))
    words = _words(held, array, state=False)
    if words is None:
        raise NotLowered(
            f"a constant of {held.numel()} values is not lowered: no short numpy expression makes it; pass it as an "
            "argument of forward"
        )
    return Constant(name, array, words=words)


def _are_positions(held: torch.Tensor) -> bool:
    """Tell whether a tensor is a row of floats 0, 1, 2 ... Numpy can count such a row, and a kernel then computes
    functions of positions instead of loading values.
    """
    return (
        held.ndim == 1
        and held.numel() > 2
        and _floats(held)
        and torch.equal(held.double(), torch.arange(len(held)).double())
    )


def _words(held: torch.Tensor, array: Array, *, state: bool) -> str | None:
    """Return a numpy expression for a triangle, an array of equal values, or an array of equally spaced values.

    Return None for any other array. If ``state`` is True, a checkpoint has the array, and only a triangle gets an
    expression.
    """
    flat = held.reshape(-1).to(torch.float64)
    rows, columns = array.shape[-2:] if len(array.shape) > 1 else (1, 0)
    if rows > 1 and held.numel() == rows * columns:
        square = held.reshape(rows, columns).to(torch.float64)
        below = torch.tril(torch.ones(rows, columns, dtype=torch.float64))
        for words, pattern in (("<=", below), (">", 1.0 - below)):
            if torch.equal(square, pattern):
                mask = f"(np.arange({columns})[None, :] {words} np.arange({rows})[:, None])"
                return f'{mask}.reshape({array.shape!r}).astype("{array.dtype}")'
    if state:
        return None
    if flat.numel() and bool((flat == flat[0]).all()):
        return f'np.full({array.shape!r}, {_number(float(flat[0]))}, "{array.dtype}")'
    if len(array.shape) == 1 and torch.equal(flat, flat[0] + (flat[1] - flat[0]) * torch.arange(flat.numel()).double()):
        return (
            f'(np.arange({flat.numel()}) * {float(flat[1] - flat[0])!r} + {float(flat[0])!r}).astype("{array.dtype}")'
        )
    return None


def _number(value: float) -> str:
    """Return a number as Python source. Infinities and NaN become calls of ``float``."""
    return f"{value!r}" if np.isfinite(value) else f"float({str(value)!r})"


def _call(node: Any) -> Call:
    """Return an operator node of PyTorch's graph as a Call. Raise NotLowered for a node that calls no operator."""
    if node.target.__name__ == "getitem":
        return Call(node.name, "getitem", tuple(map(_argument, node.args)), {}, (), "")
    if node.target.__name__ == "with_effects":
        what = next((one for one in node.args if isinstance(one, str)), str(node.args[1]))
        raise NotLowered(
            f"torch.{what.removeprefix('torch.')} is not lowered; pass its result as an argument of forward"
        )
    if not hasattr(node.target, "_schema"):
        raise NotLowered(f"{node.target.__name__} is not lowered; call functions of torch on arrays instead")
    value = node.meta.get("val")  # None for a node that only checks metadata
    every = list(value) if isinstance(value, tuple | list) else [value]
    packet, _, overload = node.target.name().split("::")[1].partition(".")
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    where = f"{path} ({kind.rsplit('.', 1)[-1]})" if path else ""
    try:
        results = tuple(_array(one) if isinstance(one, torch.Tensor) else Array((), "float32") for one in every)
    except NotLowered as error:
        place = f" ({where})" if where else ""
        what, _, hint = str(error).partition("; ")
        raise NotLowered(f"aten.{packet}: {what}{place}; {hint}") from error
    skipped = ("device", "layout", "pin_memory", "memory_format", "generator", "non_blocking", "copy", "out_dtype")
    named = {key: _argument(one) for key, one in node.kwargs.items() if key not in skipped}
    line = _line(node.meta.get("stack_trace") or "")
    arguments = tuple(map(_argument, node.args))
    if packet in _BY_STATISTICS and arguments[5] is True:
        arguments = (*arguments[:3], None, None, *arguments[5:])
    return Call(node.name, packet, arguments, named, results, where, overload or "default", line)


def _argument(value: Any) -> Argument:
    """Return an operand in PyTorch's graph as an Argument of a Call. Raise NotLowered for any other type of operand."""
    if isinstance(value, torch.fx.Node):
        return Named(value.name)
    if isinstance(value, list | tuple):
        return [_argument(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    raise NotLowered(f"an operand of type {type(value).__name__} is not lowered; use arrays and numbers")


# modules of requests


def subject_of(request: Mapping[str, Any], least: int = _SMALL, *, numbers: bool = True) -> Subject:
    """Construct the module that a request names, and the arguments of its call. Raise NotLowered if that fails.

    ``least`` and ``numbers`` are parameters of :func:`reduced`, if the request asks for reduced sizes: the greatest
    extent of images and sequences, and whether integers of at least 128 become smaller.
    """
    where, _, name = request["module"].rpartition(":")
    if not where:
        where, name = name, "Model"
    if where.endswith(".py") and not Path(where).is_file():
        raise NotLowered(f"there is no file {Path(where).absolute()}")
    text = Path(where).read_text("utf-8") if where.endswith(".py") else ""
    try:
        if request.get("reduced"):
            text = reduced(text, least, numbers=numbers)
        module = _loaded(where, text) if text else importlib.import_module(where)
        if not hasattr(module, name):
            classes = [
                key for key, one in vars(module).items() if isinstance(one, type) and one.__module__ == module.__name__
            ]
            raise NotLowered(f"{where} has no class {name}; {nearest_of(name, classes)}")
        made = getattr(module, name)
        draw = getattr(module, "get_inputs", None)
        initial = getattr(module, "get_init_inputs", None)
        settings = dict(request.get("init") or {})
        values = list(initial()) if initial is not None and not settings else []
        with _Untouched():
            found = made(*values, **settings) if not isinstance(made, torch.nn.Module) else made
        if not isinstance(found, torch.nn.Module):
            raise NotLowered(f"{where}: {name} makes no torch.nn.Module: name a class that derives from it")
        found.train(bool(request.get("training")))
        if dtype := request.get("dtype"):
            _convert(found, getattr(torch, dtype))
        given = request.get("arguments") or []
        named: Mapping[str, Any] = {}
        if given:
            arguments, named = _placed(found, given)
            draw = None
        elif draw is not None:
            with torch.no_grad():
                arguments = tuple(draw())
        else:
            raise NotLowered("the shapes of the arguments of forward are not known: give --arg for each array")
    except NotLowered:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise _not_made(where, error) from error
        raise NotLowered(
            f"there is no Python module {error.name}: name a file as FILE.py:CLASS, or run acceld in the folder that has it"
        ) from error
    except Exception as error:  # a user's module may raise anything, and the command reports it
        raise _not_made(where, error) from error
    return Subject(f"forward of {request['module']}", found, arguments, draw, named)


def _not_made(where: str, error: Exception) -> NotLowered:
    """Return the error for a module whose file ``where`` raised ``error``, with the line of the file."""
    own = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == where]
    said: object = error
    if isinstance(error, SyntaxError) and error.filename in (where, "<unknown>"):
        own, said = [error.lineno], error.msg
    place = f"{where}:{own[-1]}" if own else where
    return _NotMade(f"{place}: the module can not be made: {type(error).__name__}: {said}")


def _convert(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert a module's floating-point weights and buffers to another dtype.

    Unlike ``Module.to``, this works for fake tensors, which have no memory.
    """
    made: dict[int, torch.nn.Parameter] = {}
    for one in module.modules():
        for name, value in list(one.named_parameters(recurse=False)):
            if _floats(value):
                setattr(one, name, made.setdefault(id(value), torch.nn.Parameter(value.detach().to(dtype))))
        for name, buffer in list(one.named_buffers(recurse=False)):
            if _floats(buffer):
                setattr(one, name, buffer.to(dtype))


def _placed(module: torch.nn.Module, given: Sequence[Mapping[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of ``forward``: a tuple of positional arguments and a dict of named arguments.

    A generated name, such as ``arg0``, stands for the parameter at that position. Raise NotLowered for a name that
    ``forward`` does not have.
    """
    signature = inspect.signature(module.forward)
    if any(one.kind == one.VAR_POSITIONAL for one in signature.parameters.values()):
        return tuple(map(_example, given)), {}
    parameters = tuple(signature.parameters)
    values: dict[str, Any] = {}
    for place, one in enumerate(given):
        name = one["name"]
        if name not in parameters and name == f"arg{place}" and place < len(parameters):
            name = parameters[place]
        if name not in parameters or name in values:
            why = "two arguments are named" if name in values else "forward has no argument"
            raise NotLowered(f"{why} {name!r} by --arg or --scalar; forward takes {', '.join(parameters)}")
        values[name] = _example(one)
    bound = signature.bind(**values)
    return bound.args, dict(bound.kwargs)


def _example(one: Mapping[str, Any]) -> Any:
    """Return the value of an argument of a request. An array is all zeros, because only its shape and dtype are given."""
    if one.get("value") is not None:
        return one["value"]
    dtype = getattr(torch, one["dtype"])
    return torch.zeros(tuple(one["shape"]), dtype=dtype)


def _loaded(where: str, text: str) -> Any:
    """Run the source ``text`` as the Python file ``where``, and return it as a Python module."""
    import types

    module = types.ModuleType("subject")
    module.__file__ = where
    sys.modules["subject"] = module
    exec(compile(text, where, "exec"), module.__dict__)  # noqa: S102  a person's module, in a process of its own
    return module


def reduced(text: str, least: int = _SMALL, *, numbers: bool = True) -> str:
    """Return the source of a module with its sizes reduced. The rule is the same for all files.

    An integer of at least 128 that is assigned at the top of the file becomes 128 plus its remainder by 128: 1000 becomes
    232. Smaller integers stay, because layers depend on them. There are two exceptions: smaller extents of images and
    sequences become at most ``least``, and a batch of images becomes at most 2. With ``numbers=False``, integers of at
    least 128 stay, except for batches of images.
    """
    tree = parse(text)
    assigned = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    images = bool(assigned & _EXTENTS) or any(map(_makes_images, ast.walk(tree)))
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        names: list[str] = []
        for target in statement.targets:
            names += [one.id for one in ast.walk(target) if isinstance(one, ast.Name)]
        values = statement.value
        every = values.elts if isinstance(values, ast.Tuple) else [values]
        parallel = len(names) == len(every)
        for place, value in enumerate(every):
            number = _whole(value)
            if number is not None:
                name = names[place] if parallel else names[0]
                smaller = ast.copy_location(ast.Constant(_smaller(name, number, images, least, numbers=numbers)), value)
                if isinstance(values, ast.Tuple):
                    values.elts[place] = smaller
                else:
                    statement.value = smaller
    return ast.unparse(tree)


def _makes_images(node: ast.AST) -> bool:
    """Tell whether an expression is a shape of images: a batch by its name, channels, and extents as numbers."""
    sizes = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
    batch = sizes[0] if len(sizes) in (4, 5) else None
    return isinstance(batch, ast.Name) and batch.id in _BATCHES and all(_whole(one) for one in sizes[2:])


def _whole(value: ast.expr) -> int | None:
    """Return the value of an expression of integer constants, such as ``4 * 256``; None for any other expression."""
    try:
        found = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}})
    except (NameError, TypeError, ValueError, ZeroDivisionError):
        return None
    return found if type(found) is int else None


def _smaller(name: str, number: int, images: bool, least: int, *, numbers: bool) -> int:
    """Return the reduced size for the variable ``name``, whose size is ``number``.

    ``images`` is True if the file has extents of images or sequences. ``numbers`` is False if integers of at least
    128 stay.
    """
    if name in _BATCHES and images:
        return min(number, 2)
    if number < 128:
        return min(number, least) if name in _EXTENTS else number
    return 128 + number % 128 if numbers else number


# answers


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request: the module's reference with its arguments, or the reason for a refusal.

    The answer has ``reference``, ``arguments`` and ``difference``, or else ``refused``. ``difference`` is the greatest
    relative error of the reference against the module, or None if the module could not be run to compare them.
    """
    try:
        subject, program = _recording(request)
        if not program.inputs:
            raise NotLowered("the module's results depend on no array: let forward read one of its arguments")
        inputs = _inputs_program(subject, program) if subject.draw is not None else None
        text = reference_text(program, inputs)
    except NotLowered as error:
        return {"refused": str(error)}
    arguments = [
        {"name": name, "shape": one.array.shape, "dtype": one.array.dtype, "absolute": one.variance}
        for name, one in zip(argument_names(program), program.inputs, strict=True)
    ]
    found: dict[str, Any] = {"reference": text, "arguments": arguments}
    try:
        found["difference"] = difference(subject, program, text)
    except NotLowered as error:
        return {"refused": str(error)}
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        found["difference"] = None  # torch raises RuntimeError if memory is short
    return found


def _recording(request: Mapping[str, Any]) -> tuple[Subject, Program]:
    """Return the module that a request names, and its Program. Raise NotLowered if that fails.

    If reduced sizes fail, try images and sequences with extents up to 127. If the module still can not be made, for
    example because groups do not divide the reduced channels, keep integers of at least 128.
    """
    try:
        subject = subject_of(request)
        return subject, program_of(subject)
    except NotLowered:
        if not request.get("reduced"):
            raise
    try:
        subject = subject_of(request, least=127)
        return subject, program_of(subject)
    except _NotMade:
        subject = subject_of(request, least=127, numbers=False)
        return subject, program_of(subject)


def divided_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for a module's regions: a list of regions, or the reason for a refusal.

    Each region has a reference and its work. The module is constructed with fake tensors, so that its weights take no
    memory. A module whose class reads values of tensors is constructed with its weights.
    """

    def made() -> Program:
        subject = subject_of(request)
        return recorded(exported_of(subject), subject, values=False)

    try:
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                program = made()
        except _NotMade as error:
            if not isinstance(error.__cause__, DataDependentOutputException):
                raise
            program = made()
    except NotLowered as error:
        return {"refused": str(error)}
    return {"regions": [_region(part) for part in divided(program)]}


def _region(part: Part) -> dict[str, Any]:
    """Return a region of a module as a dict for JSON.

    The dict has the region's name, its number of runs, its arguments, and its reference with the work. For a region that
    is not lowered, it has the reason and the bytes that are moved instead of the reference.
    """
    program = part.program
    found: dict[str, Any] = {"name": part.name, "count": part.count, "dtype": part.product_dtype}
    found["arguments"] = [
        {
            "name": name,
            "shape": one.array.shape,
            "dtype": _ON_CHIP.get(one.array.dtype, one.array.dtype),
            "absolute": one.variance,
        }
        for name, one in zip(argument_names(program), program.inputs, strict=True)
    ]
    try:
        text = (
            reference_text(program)
            + f'\nREGION = "{part.signature}"\n"""A digest that is equal for all runs of the region."""\n'
        )
        graph = _traced(text, [(one["name"], (one["shape"], one["dtype"])) for one in found["arguments"]])
    except NotLowered as error:
        results = {one.name: one.results for one in program.calls}
        ends = [*(one.array for one in program.inputs), *(each for name in program.outputs for each in results[name])]
        return found | {"refused": str(error), "bytes": sum(map(array_bytes, ends)) - part.unread_bytes}
    products, others, moved = work(graph)
    outputs = [{"shape": view.shape, "dtype": view.dtype} for view in graph.outputs]
    held = {"reference": text, "outputs": outputs, "products": products, "others": others}
    return found | held | {"bytes": moved - part.unread_bytes}


def _traced(text: str, given: Sequence[tuple[str, Any]]) -> Graph:
    """Return the graph of the reference with the source ``text``. Raise NotLowered if it can not be traced.

    ``given`` has (name, (shape, dtype)) of each argument.
    """
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "reference.py"
        path.write_text(text, encoding="utf-8")
        space: dict[str, Any] = {"__name__": "reference"}
        exec(compile(text, str(path), "exec"), space)  # noqa: S102  the text that was just written
        try:
            return vectorized(traced(space["forward"], path, given))
        except (TypeError, ValueError, IndexError) as error:
            raise NotLowered(f"the reference that was written for the module can not be traced: {error}") from error


class _Drawn(torch.nn.Module):
    """A module without arguments whose results are the arguments that a function draws, so that ``torch.export`` can
    record the function.
    """

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self) -> Any:
        return tuple(one for one in torch.utils._pytree.tree_leaves(self.draw()) if isinstance(one, torch.Tensor))


def _inputs_program(subject: Subject, program: Program) -> Program | None:
    """Return a Program that draws the arguments that ``program`` reads, as ``get_inputs`` of the module's file does.

    Return None if acceld does not lower ``get_inputs``. Arguments are then drawn by their shapes alone.
    """
    assert subject.draw is not None
    try:
        drawing = program_of(Subject("inputs", _Drawn(subject.draw), ()))
    except NotLowered:
        return None
    read = {one.place for one in program.inputs}
    arrays = [place for place, value in subject.places if isinstance(value, torch.Tensor)]
    outputs = zip(arrays, drawing.outputs, strict=True)
    return replace(drawing, outputs=tuple(name for place, name in outputs if place in read))


def difference(subject: Subject, program: Program, text: str) -> float | None:
    """Return the greatest relative L2 distance between an output of the reference and the module's output.

    Both run in float64 with the data that the reference ``text`` draws. Return None if the module has too many elements
    to be run. Return infinity if the numbers or shapes of the outputs differ. Raise NotLowered if the module can not run
    in float64.
    """
    sizes = sum(int(np.prod(one.array.shape)) for one in program.inputs)
    if sizes > _CHECKED_ELEMENTS:
        return None
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(text, "reference.py", "exec"), space)  # noqa: S102  the text that was just written
    np.random.seed(0)
    drawn = space["get_inputs"]()
    with torch.no_grad(), _wide():
        module = subject.module.to(torch.float64)
        state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
        given = {one.place: value for one, value in zip(program.inputs, drawn, strict=True) if one.role == "argument"}
        for one, value in zip(program.inputs, drawn, strict=True):
            if one.role != "argument":
                state[one.path].copy_(_tensor(value))
        called = [
            _tensor(given[place]) if place in given else (value.double() if _floats(value) else value)
            for place, value in subject.places
        ]
        whole = torch.utils._pytree.tree_structure((subject.arguments, dict(subject.named)))
        by_place, by_name = torch.utils._pytree.tree_unflatten(called, whole)
        try:
            with _Wide():
                result = module(*by_place, **by_name)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            if "can't allocate memory" in str(error):
                raise
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise NotLowered(
                f"the module can not be called with float64, so its reference can not be checked: {words[0]}; let forward "
                "take its types from its arguments"
            ) from error
    wide = [
        np.asarray(v, np.float64) if np.asarray(v).dtype.name in ("float32", "bfloat16", "float16") else v
        for v in drawn
    ]
    found = space["forward"](*wide)
    ours = list(found) if isinstance(found, tuple) else [found]
    theirs = [one for one in torch.utils._pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
    if len(ours) != len(theirs):
        return float("inf")
    return max(_distance(a, b) for a, b in zip(ours, theirs, strict=True))


class _Wide(torch.overrides.TorchFunctionMode):
    """Let a module compute in float64 even where it names a narrower float dtype or holds a tensor of such a dtype.

    The module's reference computes in float64, too. An RMS norm without ``eps`` keeps the default ``eps`` of float32.
    """

    _NARROW = frozenset({torch.float32, torch.bfloat16, torch.float16})
    _CASTS = frozenset({torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16})

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, named = torch.utils._pytree.tree_map(self._wider, (args, dict(kwargs or {})))
        if function in self._CASTS:
            return args[0].double()
        if function in (torch.rms_norm, torch.nn.functional.rms_norm):
            bound = dict(zip(("input", "normalized_shape", "weight", "eps"), args, strict=False)) | named
            eps = bound.pop("eps", None)
            return function(**bound, eps=torch.finfo(torch.float32).eps if eps is None else eps)
        return function(*args, **named)

    def _wider(self, one: Any) -> Any:
        if isinstance(one, torch.dtype):
            return torch.float64 if one in self._NARROW else one
        # A tensor that is neither a parameter nor a buffer does not follow its module to float64.
        return one.double() if isinstance(one, torch.Tensor) and one.dtype in self._NARROW else one


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    """Make float64 the default dtype of PyTorch in the ``with`` block, because a module may create arrays without a
    dtype.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _floats(value: Any) -> bool:
    """Tell whether a value is a PyTorch tensor of floats."""
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _tensor(value: Any) -> torch.Tensor:
    """Return a numpy array as a PyTorch tensor. Floats of any width become float64."""
    array = np.asarray(value)
    return torch.from_numpy(
        array.astype(np.float64) if array.dtype.name in ("float32", "bfloat16", "float16") else array
    )


def _distance(ours: Any, theirs: torch.Tensor) -> float:
    """Return the relative L2 distance of an output from the expected output. Return infinity if the sizes differ."""
    expected = theirs.detach().to(torch.float64).numpy().reshape(-1)
    found = np.asarray(ours, np.float64).reshape(-1)
    if found.shape != expected.shape:
        return float("inf")
    return float(np.linalg.norm(found - expected) / max(float(np.linalg.norm(expected)), 1e-30))


def _requests(lines: Sequence[str] | Any) -> Iterator[dict[str, Any]]:
    """Yield the JSON request of each line that is not empty."""
    for line in lines:
        if line.strip():
            yield json.loads(line)


def main() -> None:
    """Answer each request on the standard input with a line on the standard output."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a module's extensions must not mix with the answers
    for folder in sys.argv[1:]:
        # append the folder last, so that a file in it does not hide a module of Python or of a package
        sys.path.append(folder)
    torch.set_num_threads(1)
    for request in _requests(sys.stdin):
        with contextlib.redirect_stdout(sys.stderr):
            try:
                found = divided_answer(request) if request.get("divide") else answer(request)
            except Exception as error:  # noqa: BLE001  one module that breaks must not end the answers to the others
                found = {"refused": f"{type(error).__name__}: {error}"}
        own.write(json.dumps(found) + "\n")
        own.flush()


if __name__ == "__main__":
    main()
