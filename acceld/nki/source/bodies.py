"""Find the functions of a kernel's file that do a part of the kernel's work, and what they are called with.

For example, the kernel may loop over tiles and call a function for each ::

    @nki.jit
    def kernel(x):                                   def _rows(x, out, r0, rows):
        out = nl.ndarray(x.shape, ...)                   tile = nl.ndarray((rows, x.shape[1]), ...)
        for t in range(8):                               nisa.dma_copy(dst=tile, src=x[r0:r0 + rows, :])
            _rows(x, out, 128 * t, 128)                  ...

Rules read such a function as they read a kernel, because its arguments are tensors in HBM and numbers.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from dataclasses import replace

from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import bindings, is_straight, names_in, walked

Fact = tuple[tuple[int, ...] | int | None, str]
"""Shape and dtype of a tensor, or the value of a number (None if it is unknown or varies) and no dtype."""


def bodies(kernel: KernelModule) -> list[Launch]:
    """Return the functions that do a part of the kernel's work, as launches of their own, in the order of the file.

    These are the functions that ``kernel`` calls as statements with tensors of HBM and numbers only.

    Every use of such a function in its file is such a call. The function returns nothing, and no tensor is passed to it
    twice, so each of its parameters is the only name of a tensor.
    """
    others = [one for one in kernel.module.body if isinstance(one, ast.FunctionDef) and one is not kernel.function]
    if not others:
        return []
    once = bindings(kernel.module)
    used = Counter(
        one.id for one in walked(kernel.module) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )
    found = []
    for node in others:
        given = node.args
        plain = not (given.vararg or given.kwarg or given.posonlyargs or given.kwonlyargs or node.decorator_list)
        calls = _calls(kernel.function, node.name) if plain and once[node.name] == 1 else []
        if not calls or len(calls) != used[node.name] or not is_straight(node) or _returns(node):
            continue
        merged = functools.reduce(_common, (_facts(kernel, node, call) for call in calls))
        if merged is not None:
            shapes, dtypes = tuple(one for one, _ in merged), tuple(dtype for _, dtype in merged)
            found.append(replace(kernel.launch, entry=node.name, shapes=shapes, dtypes=dtypes))
    return found


def _calls(function: ast.FunctionDef, name: str) -> list[ast.Call]:
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == name
    ]


def _returns(function: ast.FunctionDef) -> bool:
    """Tell whether a function has a return statement."""
    return any(isinstance(node, ast.Return) for node in ast.walk(function))


def _facts(kernel: KernelModule, function: ast.FunctionDef, call: ast.Call) -> list[Fact] | None:
    """Return what a call passes for each parameter; None unless it passes tensors of HBM, each once, and numbers."""
    parameters = [one.arg for one in function.args.args]
    defaults = function.args.defaults
    given: dict[str, ast.expr] = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
    if len(call.args) > len(parameters) or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    given |= dict(zip(parameters, call.args, strict=False))
    for one in call.keywords:
        if one.arg not in parameters[len(call.args) :]:
            return None
        given[one.arg or ""] = one.value
    if given.keys() != set(parameters):
        return None
    tensors: list[str] = []
    facts: list[Fact] = []
    bound = Counter(
        one.id for one in ast.walk(kernel.function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    bound.update(kernel.parameters)
    for name in parameters:
        value = given[name]
        if value in defaults and any(bound[one.id] for one in names_in(value)):
            return None  # a name of the module, and another one in the kernel
        if isinstance(value, ast.Name) and bound[value.id] > 1 and not kernel.is_number(value):
            return None  # it may be another tensor in each call
        fact = _fact(kernel, value, tensors)
        if fact is None:
            return None
        facts.append(fact)
    return facts if len(set(tensors)) == len(tensors) else None


def _fact(kernel: KernelModule, value: ast.expr, tensors: list[str]) -> Fact | None:
    """Return what an argument is, and add the name of a tensor to ``tensors``; None for a tile, or for what is not
    understood.
    """
    match value:
        case ast.Constant(value=bool() as setting):
            return int(setting), ""
        case ast.Constant(value=None | str()):
            return None, ""
        case ast.Name(id=name) if name in kernel.other_shapes:
            return None  # a second name of a tensor
        case ast.Name(id=name) if isinstance(kernel.shapes.get(name), tuple):
            tensors.append(name)
            shape = kernel.shapes[name]
            assert shape is not None, "the case above"
            return shape, kernel.dtypes.get(name, "")
        case ast.Name(id=name) if name in kernel.buffers and kernel.space_of(name) == "hbm":
            tensors.append(name)
            extents = kernel.buffers[name].shape
            known = tuple(extent for extent in extents if extent is not None)
            return (known, _declared(kernel, name)) if len(known) == len(extents) else None
        case ast.Name(id=name) if name in kernel.shapes and kernel.constant(value) is None:
            return None, ""  # an argument of the kernel that is no array
    number = kernel.constant(value)
    if number is not None:
        return number, ""
    if kernel.affine(value) is not None or kernel.number(value) is not None or kernel.is_number(value):
        return None, ""
    return None


def _declared(kernel: KernelModule, name: str) -> str:
    """Return the dtype of a declared tensor without its module; empty if it is not known."""
    given = kernel.declared_dtype(name)
    owner = given.removesuffix(".dtype")
    return given.rpartition(".")[2] if owner == given else kernel.dtypes.get(owner, "")


def _common(one: list[Fact] | None, other: list[Fact] | None) -> list[Fact] | None:
    """Return what two calls have in common: a number that differs is unknown. None if their tensors differ in shape."""
    if one is None or other is None:
        return None
    found: list[Fact] = []
    for left, right in zip(one, other, strict=True):
        if left == right:
            found.append(left)
        elif isinstance(left[0], tuple) or isinstance(right[0], tuple):
            return None
        else:
            found.append((None, ""))
    return found
