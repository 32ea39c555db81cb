"""Find the functions of a kernel's file that do a part of the kernel's work, and what they are called with.

For example, the kernel may loop over tiles and call a function for each ::

    @nki.jit
    def kernel(x):                                   def _rows(x, out, r0, rows):
        out = nl.ndarray(x.shape, ...)                   tile = nl.ndarray((rows, x.shape[1]), ...)
        for t in range(8):                               nisa.dma_copy(dst=tile, src=x[r0:r0 + rows, :])
            _rows(x, out, 128 * t, 128)                  ...

Rules read such a function as they read a kernel, because its arguments are tensors in HBM, tiles on the chip, and
numbers.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Sequence

from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule, kernel_module
from acceld.nki.source.syntax import (
    Access,
    Returned,
    bindings,
    call_arguments,
    is_straight,
    names_in,
    root,
    value_of,
    walked,
)

Fact = tuple[tuple[int, ...] | int | None, str, str]
"""Shape, dtype and memory of a tensor or tile, or the value of a number (None if it is unknown or varies), "" and ""."""
_NUMBER: Fact = (None, "", "")
"""A number of which only that is known."""


def bodies(kernel: KernelModule) -> list[Launch]:
    """Return the functions that do a part of the kernel's work, as launches of their own, in the order of their first calls.

    These are the functions that ``kernel`` calls with tensors, tiles and numbers only, as statements or for their result.

    Every use of such a function in its file is such a call. No tensor or tile is passed to it twice, so each of its
    parameters is the only name of a tensor. The function returns nothing, or tiles in its last statement.
    """
    others = [one for one in kernel.module.body if isinstance(one, ast.FunctionDef) and one is not kernel.function]
    if not others or _keeps_values(kernel.module):
        return []
    once = bindings(kernel.module)
    used = Counter(
        one.id for one in walked(kernel.module) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )
    local = {one.arg for one in ast.walk(kernel.function) if isinstance(one, ast.arg)}
    plain = [
        one for one in others if used[one.name] and once[one.name] == 1 and one.name not in local and _is_plain(one)
    ]
    calls = {node: _calls(kernel.function, node.name) for node in plain}
    found = []
    for node in sorted((node for node in calls if calls[node]), key=lambda node: calls[node][0].lineno):
        if len(calls[node]) != used[node.name]:
            continue
        facts = functools.reduce(_common, (_facts(kernel, node, call) for call in calls[node]))
        if facts is not None:
            shapes, dtypes, memories = zip(*facts, strict=True) if facts else ((), (), ())
            found.append(Launch(kernel.api, shapes, dtypes, node.name, memories, kernel.programs))
            _complete(kernel, found[-1], calls[node])
    return found


def _keeps_values(module: ast.Module) -> bool:
    """Tell whether functions may keep a tile in a name of the file, such as a list, where other functions find it under a
    second name.
    """
    top = {
        target.id
        for one in module.body
        if isinstance(one, ast.Assign) and any(_is_container(part) for part in walked(one.value))
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for function in (one for one in module.body if isinstance(one, ast.FunctionDef)):
        for node in walked(function):
            match node:
                case ast.Global() | ast.Attribute(ctx=ast.Store()):
                    return True
                case ast.Subscript(ctx=ast.Store()) if root(node) in top:
                    return True
                case ast.Call(func=ast.Attribute() as called) if root(called) in top:
                    return True
                case ast.Call(func=ast.Name(), args=args, keywords=named):
                    given = [*args, *(one.value for one in named)]
                    if any(isinstance(one, ast.Name) and one.id in top for one in given):
                        return True
    return False


def _is_container(node: ast.AST) -> bool:
    """Tell whether an expression makes an object that can hold other objects."""
    made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return made or isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _is_plain(node: ast.FunctionDef) -> bool:
    """Tell whether a function has no decorator, takes a fixed number of arguments by name or position, branches and loops
    in no unusual way, and returns nothing before its end.
    """
    given = node.args
    several = given.vararg or given.kwarg or given.posonlyargs
    return not several and not node.decorator_list and is_straight(node) and not _returns_early(node)


def _complete(kernel: KernelModule, launch: Launch, calls: Sequence[ast.Call]) -> None:
    """Give ``kernel`` the shape and dtype of the tile that a function returns to each of ``calls``."""
    targets = [one.made.name for one in kernel.statements if value_of(one) in calls and one.target is not None]
    if kernel.returned.keys() & set(targets):
        function = kernel_module(kernel.source, launch)
        last = function.function.body[-1]
        tile = function.access(last.value) if isinstance(last, ast.Return) and last.value is not None else None
        if tile is not None and tile.name not in function.ambiguous:
            made = Returned(function.space_of(tile.name), function.extents(tile), function.dtype_of(tile.name))
            kernel.returned |= {name: made for name in targets if name in kernel.returned}


def _calls(function: ast.FunctionDef, name: str) -> list[ast.Call]:
    """Return the calls of the function ``name`` that are a statement, an assigned value or a returned value."""
    return [
        node.value
        for node in walked(function)
        if isinstance(node, ast.Expr | ast.Assign | ast.Return)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == name
    ]


def _returns_early(function: ast.FunctionDef) -> bool:
    """Tell whether a function has a return statement that is not its last statement, or that returns more than names."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    names = found[0].value if found else None
    several = names.elts if isinstance(names, ast.Tuple) else [names]
    return bool(found) and (found != function.body[-1:] or not all(isinstance(one, ast.Name) for one in several))


def _facts(kernel: KernelModule, function: ast.FunctionDef, call: ast.Call) -> list[Fact] | None:
    """Return a fact (see :func:`_fact`) about each argument of a call; None if one of them is not understood, or if a tensor
    or tile is passed twice.
    """
    found = call_arguments(function, call)
    if found is None:
        return None
    given, defaults = found[0] | found[1], list(found[1].values())
    tensors: list[str] = []
    facts: list[Fact] = []
    bound = Counter(
        one.id for one in ast.walk(kernel.function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    bound.update(one.arg for one in ast.walk(kernel.function) if isinstance(one, ast.arg))
    for one in (*function.args.args, *function.args.kwonlyargs):
        value = given[one.arg]
        if value in defaults and any(bound[name.id] for name in names_in(value)):
            return None  # a name of the module, and another one in the kernel
        if bound[root(value)] > 1 and not kernel.is_number(value):
            return None  # it may be another tensor in each call
        fact = _fact(kernel, value, tensors)
        if fact is None:
            return None
        facts.append(fact)
    return facts if len(set(tensors)) == len(tensors) else None


def _fact(kernel: KernelModule, value: ast.expr, tensors: list[str]) -> Fact | None:
    """Return (number or shape, dtype, memory) of an argument of a call; None if the argument is not understood.

    If the argument is a tensor or tile, append its name to ``tensors``.
    """
    match value:
        case ast.Constant(value=bool() as setting):
            return int(setting), "", ""
        case ast.Constant(value=None | str()):
            return _NUMBER
        case ast.Name(id=name) if name in kernel.other_shapes:
            return None  # a second name of a tensor
        case ast.Name(id=name) if kernel.shapes.get(name, ()) is None and kernel.constant(value) is None:
            return _NUMBER  # an argument of the kernel that is no array
    number = kernel.constant(value)
    if number is not None:
        return number, "", ""
    if kernel.affine(value) is not None or kernel.number(value) is not None or kernel.is_number(value):
        return _NUMBER
    access = kernel.access(value)
    if access is None or (access.dims is not None and kernel.is_tensor(access.name)):
        return None
    memory, shape = kernel.space_of(access.name), _shape(kernel, access)
    tensors.append(access.name)
    return (shape, _dtype(kernel, access.name), memory) if shape is not None and memory else None


def _shape(kernel: KernelModule, access: Access) -> tuple[int, ...] | None:
    """Return the shape of the tile or tensor of an access; None if the access lacks an index, or its first index is no
    slice of partitions.
    """
    whole = kernel.extents(Access(access.name, None, access.node))
    rows = access.dims[0] if access.dims else None
    if access.dims is not None and (rows is None or rows.is_point or whole is None or len(whole) != len(access.dims)):
        return None
    return kernel.extents(access)


def _dtype(kernel: KernelModule, name: str) -> str:
    """Return the dtype of an argument, or of a tensor or tile that is bound once; empty if it is not known."""
    if name in kernel.returned:
        return kernel.returned[name].dtype
    given = kernel.declared_dtype(name)
    owner = given.removesuffix(".dtype") if given else name
    return given.rpartition(".")[2] if owner == given else kernel.dtypes.get(owner, "") or kernel.dtype_of(owner)


def _common(one: list[Fact] | None, other: list[Fact] | None) -> list[Fact] | None:
    """Return what two calls have in common: a number that differs is unknown. None if their tensors differ in shape."""
    if one is None or other is None:
        return None
    found: list[Fact] = []
    for left, right in zip(one, other, strict=True):
        if left == right:
            found.append(left)
        elif isinstance(left[0], tuple) and isinstance(right[0], tuple) and left[0] == right[0] and left[2] == right[2]:
            found.append((left[0], "", left[2]))
        elif isinstance(left[0], tuple) or isinstance(right[0], tuple):
            return None
        else:
            found.append(_NUMBER)
    return found
