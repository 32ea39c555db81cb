"""Find, in the syntax tree of a kernel's file, constructs that some versions of the package ``nki`` refuse. No code is
executed.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches

from acceld import parsing
from acceld.chips import TRACER_SINCE
from acceld.nki.entry import entries_in, has_kernel, is_kernel
from acceld.nki.frontend.current.lifetimes import (
    JIT_OPTIONS,
    KEYWORD_ONLY,
    LEGACY_IMPORT,
    LOOP_CONTINUE,
    PLAIN_CLASS,
    PLAIN_DECORATOR,
    UNTIL,
    lifetime,
    options_of,
    tile_size,
)
from acceld.nki.frontend.versions import BEFORE_ALL, Lifetime, Need

_MODULES = {"nki.isa": "nisa", "nki.language": "nl", "nki.collectives": "ncc"}
"""Modules whose functions differ between versions, each with its short name for messages."""


def _python(instead: str) -> Lifetime:
    """Return the versions of NKI that run kernels as Python, for a construct that only these versions accept.

    Earlier versions parsed the text of kernels. ``instead`` says what to write for the earlier versions.
    """
    return Lifetime(
        TRACER_SINCE,
        instead=f"{instead}, or let Python run the kernel: NKI {TRACER_SINCE}, or 0.6 with NKI_COMPILER_FRONTEND=tracer",
    )


_FORMS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try in a kernel", "test with if"),
    ast.Raise: ("raise in a kernel", "use assert"),
    ast.Delete: ("del in a kernel", "leave it out"),
    ast.Match: ("match in a kernel", "use if and elif"),
    ast.Global: ("global in a kernel", "pass it as an argument"),
    ast.Nonlocal: ("nonlocal in a kernel", "pass it as an argument"),
    ast.Import: ("import in a kernel's body", "import at the top of the file"),
    ast.ImportFrom: ("import in a kernel's body", "import at the top of the file"),
    ast.ClassDef: ("a class in a kernel", "define it at the top of the file"),
    ast.Lambda: ("lambda in a kernel", "define a function at the top of the file"),
    ast.ListComp: ("a comprehension in a kernel", "append in a loop"),
    ast.SetComp: ("a comprehension in a kernel", "append in a loop"),
    ast.DictComp: ("a comprehension in a kernel", "assign in a loop"),
    ast.GeneratorExp: ("a generator in a kernel", "append in a loop"),
    ast.Yield: ("a generator in a kernel", "return a list"),
    ast.YieldFrom: ("a generator in a kernel", "return a list"),
    ast.Await: ("async in a kernel", "use plain functions"),
    ast.AsyncFor: ("async in a kernel", "use plain loops"),
    ast.AsyncWith: ("async in a kernel", "use plain with"),
    ast.AsyncFunctionDef: ("async in a kernel", "use plain functions"),
    ast.Starred: ("*values in a kernel", "name each value"),
    ast.Set: ("a set in a kernel", "use a tuple"),
    ast.NamedExpr: (":= in a kernel", "assign in a statement of its own"),
}
"""The statements and expressions that the parser of earlier versions refuses, each with its name and with what to write
instead.

They are from the public source of the parser and AWS's language guide. A function inside of a kernel is not among them,
because AWS's own samples have some, and later versions take them as bodies of loops.
"""


_OTHER_KEYS, _TEXT_KEYS = "a dict whose keys are not strings", _python("use strings as keys")
_NUMPY_TYPE = re.compile(r"(np|numpy)\.(dtype\(.*\)|float\d+|u?int\d+|bool_)")
"""Matches the text of a numpy dtype. The parser refuses such a dtype if a kernel uses it through a name that is defined
outside of the kernel.
"""


def functions_for_nki(tree: ast.Module) -> list[str]:
    """Return the names of a file's kernels; in a file without a kernel, those of the functions that call NKI's API.

    Kernels of other files may call these functions. The other functions of a file without a kernel, such as references
    and tests, are ordinary Python.
    """
    found = entries_in(tree)
    if has_kernel(tree):
        return found
    modules, names = _aliases(tree)
    functions = parsing.functions_of(tree.body)

    def is_of_api(call: ast.AST) -> bool:
        if not isinstance(call, ast.Call):
            return False
        called = ast.unparse(call.func)
        return called in names or called.rpartition(".")[0] in modules

    return [name for name in found if any(map(is_of_api, ast.walk(functions[name])))]


def file_needs(tree: ast.Module, entry: str) -> list[Need]:
    """Return, by line, the constructs that only some versions of ``nki`` accept, in the kernel ``entry`` and in the
    functions of its file that it calls.

    Names of the API are left out: a trace meets the names that the kernel uses, and :func:`names_needed` finds all
    names in the file.
    """
    reached = _reached(tree, entry)
    found = [need for function in reached for need in _syntax(function)]
    found += [
        Need(one.lineno, "keyword-only arguments of a kernel", KEYWORD_ONLY)
        for one in reached
        if one.args.kwonlyargs and is_kernel(one)
    ]
    used = {node.id for function in reached for node in ast.walk(function) if isinstance(node, ast.Name)}
    found += [need for node in parsing.module_statements(tree.body) for need in _captured(node, used)]
    statements = [*tree.body, *(node for function in reached for node in function.body)]
    imports = (node for node in statements if isinstance(node, ast.Import | ast.ImportFrom))
    # An import inside of a try or an if may be one of several choices, so only imports beside other
    # statements of the file or of the kernel count.
    legacy = (node for node in imports if any(name.partition(".")[0] == "neuronxcc" for name in _imported(node)))
    return _sorted([*found, *(Need(node.lineno, "import neuronxcc", LEGACY_IMPORT) for node in legacy)])


def names_needed(tree: ast.Module) -> list[Need]:
    """Return, by line, all uses in a file of API names and options that some versions of ``nki`` lack."""
    modules, names = _aliases(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner, _, inner = ast.unparse(node.value).rpartition(".")
            short = modules.get(ast.unparse(node.value))
            if short is not None:
                found.append(Need(node.lineno, f"{short}.{node.attr}", lifetime(node.attr)))
            elif inner == "tile_size" and modules.get(owner) == "nl":
                found.append(Need(node.lineno, f"nl.tile_size.{node.attr}", tile_size(node.attr)))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            found.append(Need(node.lineno, node.id, lifetime(names[node.id])))
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            owner, _, function = called.rpartition(".")
            if called in names or owner in modules:
                late = options_of(names.get(called, function))
                found += [
                    Need(node.lineno, f"{one.arg} of {called}", late[one.arg])
                    for one in node.keywords
                    if one.arg in late
                ]
            if function == "jit":
                found += [
                    Need(node.lineno, f"nki.jit({one.arg}=...)", JIT_OPTIONS[one.arg])
                    for one in node.keywords
                    if one.arg in JIT_OPTIONS
                ]
    return _sorted(need for need in found if need.life != Lifetime())


def absent_names(tree: ast.Module, entry: str) -> list[Need]:
    """Return the names and options in the kernel ``entry`` and in the functions it calls that no version of ``nki``
    has, sorted by line.
    """
    from acceld.nki.frontend.current import isa, language
    from acceld.nki.frontend.current.surface import LANGUAGE_FUNCTIONS, REPLACED

    offered = {"nisa": isa.namespace(), "nl": {**dict.fromkeys(LANGUAGE_FUNCTIONS), **language.namespace()}}
    modules, _ = _aliases(tree)
    found = list(_misspelt_launchers(tree))
    reached = _reached(tree, entry)
    branches = [one for function in reached for one in ast.walk(function) if isinstance(one, ast.If)]
    chosen = {id(node) for one in branches for part in (*one.body, *one.orelse) for node in ast.walk(part)}
    for node in (node for function in reached for node in ast.walk(function)):
        certain = id(node) not in chosen
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            short = modules.get(ast.unparse(node.value))
            known = offered.get(short or "")
            if known is None or node.attr in UNTIL:
                continue
            if node.attr in REPLACED or node.attr not in known:
                near = [f"{one}.{node.attr}" for one, names in offered.items() if node.attr in names and one != short]
                alike = get_close_matches(node.attr, known, n=2)
                near = near or [f"{short}.{one}" for one in alike if one not in REPLACED]
                remedy = REPLACED.get(node.attr) or (f"did you mean {' or '.join(near)}?" if near else "")
                if not remedy and alike and alike[0] in REPLACED:
                    remedy = f"{short}.{alike[0]} is no operation of an engine either: {REPLACED[alike[0]]}"
                life = Lifetime(until=BEFORE_ALL, instead=remedy, certain=certain)
                found.append(Need(node.lineno, f"{short}.{node.attr}", life))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            known = offered.get(modules.get(ast.unparse(node.func.value), ""), {})
            found += _absent_options(node, known.get(node.func.attr), certain)
    return _sorted(found)


def _misspelt_launchers(tree: ast.Module) -> Iterator[Need]:
    """Yield each decorator that is almost ``nki.jit``, such as ``nki.jitt``."""
    imports = [one for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    packages = {one.asname or one.name for one in imports if one.name == "nki"}
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for decorator in (one for function in functions for one in function.decorator_list):
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not isinstance(target, ast.Attribute) or ast.unparse(target.value) not in packages or target.attr == "jit":
            continue
        if get_close_matches(target.attr.lower(), ["jit"]):
            life = Lifetime(until=BEFORE_ALL, instead="did you mean nki.jit?")
            yield Need(target.lineno, f"nki.{target.attr}", life)


def _absent_options(call: ast.Call, function: object, certain: bool) -> Iterator[Need]:
    """Yield each option of a call that ``function`` does not have. Yield nothing if ``function`` can not be called.
    ``certain`` tells whether every trace reaches the call.
    """
    if not inspect.isroutine(function):
        return
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    for one in call.keywords:
        if one.arg is not None and one.arg not in parameters:
            remedy = f"the options are {', '.join(parameters)}"
            yield Need(
                call.lineno,
                f"{one.arg} of {ast.unparse(call.func)}",
                Lifetime(until=BEFORE_ALL, instead=remedy, certain=certain),
            )


def _sorted(needs: Iterable[Need]) -> list[Need]:
    """Return ``needs`` sorted by line, each once."""
    return sorted(dict.fromkeys(needs), key=lambda need: (need.line, need.what))


def _reached(tree: ast.Module, entry: str) -> list[ast.FunctionDef]:
    """Return the kernel's function and the functions of the file that it calls by name, directly or indirectly.

    If a function returns the kernel, only the kernels inside that function count: its other statements run as ordinary
    Python.
    """
    functions = parsing.functions_of(tree.body)
    waiting = [functions[entry]] if entry in functions else _behind(tree, entry, functions)
    reached: dict[int, ast.FunctionDef] = {}
    while waiting:
        function = waiting.pop()
        if id(function) in reached:
            continue
        reached[id(function)] = function
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        waiting += [functions[name] for name in used & functions.keys()]
    return list(reached.values())


def _behind(tree: ast.Module, name: str, functions: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Return the functions behind a name to which the file assigns a kernel: the function that is passed to
    ``nki.jit``, or the kernels inside a factory.
    """
    found = []
    for node in parsing.module_statements(tree.body):
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            named = [functions[one] for one in map(ast.unparse, ast.walk(node.value)) if one in functions]
            for function in named:
                found += [one for one in ast.walk(function) if is_kernel(one)] or [function]
    return found


def _syntax(function: ast.FunctionDef) -> Iterator[Need]:
    """Yield each piece of syntax in ``function`` that some versions of ``nki`` refuse."""
    if function.args.vararg is not None:
        yield Need(function.lineno, "*arguments of a kernel's function", _python("name each argument"))
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    for node in nodes:
        if type(node) in _FORMS:
            what, instead = _FORMS[type(node)]
            yield Need(node.lineno, what, _python(instead))  # type: ignore[attr-defined]  # nodes of _FORMS have lines
            continue
        if type(node) not in _MAYBE:  # a fast exit, because most nodes are names
            continue
        if isinstance(node, ast.For) and not isinstance(node.target, ast.Name):
            life = _python("loop over one name, and take its parts by index")
            yield Need(node.lineno, "a loop over several names", life)
        match node:
            case ast.For(orelse=[_, *_]) | ast.While(orelse=[_, *_]):
                yield Need(node.lineno, "else of a loop", _python("set a flag in the loop"))
            case ast.For(iter=ast.Call(func=called)) if ast.unparse(called).endswith("dynamic_range"):
                for one in ast.walk(node):
                    if isinstance(one, ast.Continue):
                        yield Need(one.lineno, "continue in a run-time loop", LOOP_CONTINUE)
            case ast.With(items=items) if not all(map(_keeps_order, items)):
                yield Need(node.lineno, "with in a kernel", _python("keep with for nl.no_reorder()"))
            case ast.BinOp(op=ast.MatMult()):
                yield Need(node.lineno, "@", _python("use nisa.nc_matmul"))
            case ast.FormattedValue(format_spec=ast.expr()):
                yield Need(node.lineno, "a format such as {x:3d}", _python("leave the format out"))
            case ast.Call(keywords=keywords) if any(one.arg is None for one in keywords):
                yield Need(node.lineno, "**values in a call", _python("name each argument"))
            case ast.Dict(keys=keys) if not all(_is_text(key) for key in keys):
                yield Need(node.lineno, _OTHER_KEYS, _TEXT_KEYS)
    yield from (Need(line, _OTHER_KEYS, _TEXT_KEYS) for line in _numbered_entries(nodes))


_MAYBE = frozenset({ast.For, ast.While, ast.With, ast.BinOp, ast.FormattedValue, ast.Call, ast.Dict})
"""Kinds of nodes that :func:`_syntax` looks at more closely."""


def _keeps_order(item: ast.withitem) -> bool:
    """Tell whether an item of a ``with`` statement is ``nl.no_reorder()``, the only one that earlier versions have."""
    return isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func).endswith("no_reorder")


def _numbered_entries(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """Yield the line of each assignment of a dict's entry, such as ``tiles[m] = t``, if the key is known to be a
    number or a tuple. ``nodes`` are all nodes of the statements in a kernel.
    """
    dicts: set[str] = set()
    numbers: set[str] = set()
    entries: list[ast.Subscript] = []
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() | ast.Call(func=ast.Name(id="dict"))):
                dicts.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int())):
                numbers.add(name)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=called)) if ast.unparse(called).endswith("range"):
                numbers.add(name)
            case ast.Subscript(value=ast.Name(), ctx=ast.Store()):
                entries.append(node)

    def is_number(key: ast.expr) -> bool:
        match key:
            case ast.Constant(value=int() | float()) | ast.Tuple():
                return True
            case ast.BinOp(left=left, right=right):
                return is_number(left) or (is_number(right) and not isinstance(left, ast.Constant | ast.JoinedStr))
        return isinstance(key, ast.Name) and key.id in numbers

    for entry in entries:
        if isinstance(entry.value, ast.Name) and entry.value.id in dicts and is_number(entry.slice):
            yield entry.lineno


def _captured(node: ast.stmt, used: Collection[str]) -> Iterator[Need]:
    """Yield the class or value that ``node`` defines outside of a kernel and the kernel uses, if the parser of earlier
    versions does not read it.

    ``used`` has the names that the kernel uses.
    """
    match node:
        case ast.ClassDef(name=name, bases=[]) if name in used:
            yield Need(node.lineno, "a kernel's class without a base", PLAIN_CLASS)
        case ast.ClassDef(name=name, bases=bases) if name in used:
            for method in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                for decorator in map(ast.unparse, method.decorator_list):
                    if decorator in ("property", "classmethod"):
                        yield Need(method.lineno, f"{decorator} in a kernel's class", PLAIN_DECORATOR)
            for base in map(ast.unparse, bases):
                if not any(allowed in base.rpartition(".")[2] for allowed in ("NKIObject", "Enum")):
                    yield Need(
                        node.lineno, f"a kernel's class with the base {base}", _python("use nl.NKIObject or Enum")
                    )
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in used:
            if _NUMPY_TYPE.fullmatch(ast.unparse(value)):
                yield Need(node.lineno, f"a numpy dtype that a kernel uses as {name}", _python("use one of nl"))


def _is_text(node: ast.expr | None) -> bool:
    """Tell whether ``node`` is a string constant."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _aliases(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names under which the file knows modules of the API, and those under which it knows functions, each
    with the API's short name.
    """
    modules = dict(_MODULES)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name in _MODULES:
                    modules[one.asname or one.name] = _MODULES[one.name]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for one in node.names:
                full = f"{node.module}.{one.name}"
                if full in _MODULES:
                    modules[one.asname or one.name] = _MODULES[full]
                elif node.module in _MODULES:
                    names[one.asname or one.name] = one.name
    return modules, names


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the names of the modules that a statement imports."""
    return [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
