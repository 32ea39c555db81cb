"""Run a kernel's file as a subset of Python: only permitted statements, attributes, calls and built-in names.

The file's syntax tree is rewritten before it is compiled, so that each attribute access and each call first
checks the actual object. So a file is refused at the line that reaches something forbidden, even if its text
hides what a name stands for. A policy that reads only the text would have to guess.
"""

from __future__ import annotations

import ast
import builtins
import collections
import dataclasses
import enum
import functools
import itertools
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from acceld.nki.errors import LegalityError
from acceld.nki.frontend import repeatable
from acceld.nki.frontend.permitted import HIDDEN_NAMES, METHODS, RULE, Permitted, as_imported, asks_if_main, bound_names
from acceld.nki.frontend.session import Session
from acceld.nki.frontend.shims import ApiModule, Stub, StubModule

CALL = "acceld call"
"""The name by which a rewritten file finds the function that checks each call. It has a space, as the names below do, so
that no source can give it to something else.
"""
_READ, _OWN = "acceld read", "acceld own"
_SET, _SHOWN = "acceld set", "acceld shown"
_SIMULATOR = "acceld.nki."
_STATEMENTS = frozenset(
    "Module FunctionDef ClassDef Return Delete Assign AugAssign AnnAssign For While If With Raise Assert Import ImportFrom "
    "Global Nonlocal Expr Pass Break Continue Match".split()
)
_EXPRESSIONS = frozenset(
    "BoolOp NamedExpr BinOp UnaryOp Lambda IfExp Dict Set ListComp SetComp DictComp GeneratorExp Yield YieldFrom Compare Call "
    "FormattedValue JoinedStr Constant Attribute Subscript Starred Name List Tuple Slice Load Store Del And Or Add Sub Mult "
    "Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn "
    "comprehension arguments arg keyword alias withitem match_case MatchValue MatchSingleton MatchSequence MatchMapping "
    "MatchStar MatchAs MatchOr".split()
)
_BUILTINS = frozenset(
    "abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter float frozenset "
    "hex int isinstance issubclass iter len list map max min next object oct ord pow print property range repr reversed "
    "round set slice sorted staticmethod str sum super tuple zip True False None NotImplemented Ellipsis __build_class__".split()
)
_NAMES = frozenset({"__doc__", "__all__"})
_PLAIN = (
    str,
    bytes,
    bytearray,
    list,
    dict,
    set,
    frozenset,
    tuple,
    int,
    float,
    complex,
    range,
    slice,
    bool,
    type(None),
    repeatable.Set,
    repeatable.FrozenSet,
    repeatable.Keys,
    repeatable.Items,
)


_CALLERS: dict[int, tuple[tuple[int, ...], tuple[str, ...]]] = {
    id(function): (positions, names)
    for functions, positions, names in (
        ((filter, iter, map, functools.partial, functools.reduce, collections.defaultdict), (0,), ()),
        ((itertools.dropwhile, itertools.filterfalse, itertools.starmap, itertools.takewhile), (0,), ()),
        ((functools.cache, functools.lru_cache), (0,), ("user_function", "maxsize")),
        ((itertools.accumulate,), (1,), ("func",)),
        ((itertools.groupby,), (1,), ("key",)),
        ((property,), (0, 1, 2), ("fget", "fset", "fdel")),
        ([repeatable.BUILTINS[name] for name in ("sorted", "min", "max")], (), ("key",)),
        ((dataclasses.asdict, dataclasses.astuple), (), ("dict_factory", "tuple_factory")),
        ((dataclasses.field,), (), ("default_factory",)),
    )
    for function in functions
}
"""The arguments that a permitted function calls: their positions and their names, by the ``id()`` of the function."""
_BASES = (object, repeatable.Text, int, float)
_OF_MEMBERS = frozenset({"__init__", "name", "value"})
"""Attributes of the enumerations' bases that ``super()`` may read."""
_BASES_FROM = ("typing", "enum", "abc", "collections.abc")
"""Modules whose classes a kernel's class may extend. It may also extend :data:`_BASES`, exceptions and classes of its
own file.
"""


class Guard:
    """Check one kernel's file: refuse forbidden syntax, and add checks that run with the file.

    Forbidden code raises LegalityError with the rule :data:`RULE`.
    """

    def __init__(self, permitted: Permitted, session: Session, own: str) -> None:
        """Prepare the checks. ``own`` is the name of the module that the file becomes.

        The API's modules must be in ``sys.modules`` already: everything in them is permitted.
        """
        self._permitted, self._session, self._own = permitted, session, own
        api = [module for module in sys.modules.values() if isinstance(module, ApiModule)]
        self._api = {id(value) for module in api for value in vars(module).values()}
        self._plain = {id(getattr(builtins, name)) for name in _BUILTINS} | {
            id(one) for one in vars(builtins).values() if isinstance(one, type) and issubclass(one, Exception)
        }

    def rewritten(self, tree: ast.Module) -> ast.Module:
        """Return the tree with checks added. Raise LegalityError for a statement or expression outside of the subset."""
        return ast.fix_missing_locations(_Checks(self._refused, self._permitted).visit(as_imported(tree)))  # type: ignore[no-any-return]  # a transformer returns Any

    def names(self) -> dict[str, Any]:
        """Return the global names that the rewritten file needs: its built-in names and the functions that do
        the checks.
        """
        allowed = {name: getattr(builtins, name) for name in _BUILTINS}
        allowed |= {
            one.__name__: one for one in vars(builtins).values() if id(one) in self._plain and isinstance(one, type)
        }
        allowed |= {"getattr": self._read, "hasattr": self._hasattr, "type": repeatable.type_of}
        allowed |= {"__import__": self._import, "__build_class__": self._class, **repeatable.BUILTINS}
        self._plain |= {id(one) for one in (*allowed.values(), repeatable.Keys, repeatable.Items)}
        checks = {_READ: self._read, CALL: self._call, _OWN: self._changed}
        return {"__builtins__": allowed, **checks, _SET: repeatable.Set.of, _SHOWN: repeatable.shown}

    def _refused(self, what: str, line: int = 0) -> LegalityError:
        """Return the LegalityError that refuses ``what`` because it is outside of the subset of Python that kernels
        may use.
        """
        return LegalityError(
            f"{what} is outside of the subset of Python that kernels are written in", rule=RULE,
            line=line or self._session.line(), hint="use documented functions and attributes by their names",
        )  # fmt: skip

    def _read(self, owner: Any, name: str, *default: Any) -> Any:
        """Return an attribute of ``owner``. Raise LegalityError if a kernel may not read it."""
        self._check_readable(owner, name)
        return repeatable.attribute(owner, name, *default)

    def _check_readable(self, owner: Any, name: str) -> None:
        if not self._readable(owner, name):
            raise self._refused(f"the attribute {name} of {_shown(owner)}")

    def _readable(self, owner: Any, name: str) -> bool:
        """Tell whether a kernel may read the attribute ``name`` of ``owner``."""
        if isinstance(owner, super):
            return (name in METHODS or not name.startswith("__")) and self._inherits(owner, name)
        if name.startswith("_"):
            return not name.startswith("__") and self._is_own(owner) and self._defines(owner, name)
        if isinstance(owner, ApiModule | StubModule | Stub) or id(owner) in self._api:
            return True
        if isinstance(owner, ModuleType):
            return self._permitted.of_module(owner.__name__, name)
        if isinstance(owner, str) and name == "format":
            return self._permitted.template(owner)
        return name in self._permitted.attributes or (self._is_own(owner) and self._defines(owner, name))

    def _is_own(self, value: Any) -> bool:
        """Tell whether ``value`` is a class defined in the kernel's file, or an instance of one."""
        kind = value if isinstance(value, type) else type(value)
        return bool(kind.__module__ == self._own)

    def _defines(self, owner: Any, name: str) -> bool:
        """Tell whether ``owner`` has the attribute ``name`` from a class of the kernel's file, and does not inherit it
        from another class.
        """
        classes: tuple[type, ...] = type(owner).__mro__
        kinds = (*owner.__mro__, *classes) if isinstance(owner, type) else classes
        return next((self._is_own(kind) for kind in kinds if name in vars(kind)), True)

    def _inherits(self, owner: super, name: str) -> bool:
        """Tell whether a kernel may read the attribute ``name`` of ``owner``, a ``super()`` object.

        The answer is True for an attribute of a class of the kernel's file or of ``nl.NKIObject``, for the
        ``__init__`` of ``object`` and of exceptions, and for the name and value of an enumeration's member.
        """
        after, kind = (object.__getattribute__(owner, key) for key in ("__thisclass__", "__self_class__"))
        classes = itertools.dropwhile(lambda one: one is not after, kind.__mro__)
        found = next((one for one in itertools.islice(classes, 1, None) if name in vars(one)), None)
        if found is None:
            return False
        if name == "__init__" and (found is object or issubclass(found, Exception)):
            return self._is_own(found) or id(found) in self._plain
        plain_member = name in _OF_MEMBERS and found.__module__ == enum.__name__ and issubclass(found, enum.Enum)
        return plain_member or self._is_own(found) or (self._is_base(found) and (name in METHODS or name[:1] != "_"))

    def _is_base(self, kind: Any) -> bool:
        """Tell whether ``kind`` is ``nl.NKIObject``, the API's base for a kernel's own classes."""
        return id(kind) in self._api and isinstance(kind, type) and kind.__name__ == "NKIObject"

    def _class(self, body: Any, name: str, *bases: Any, **options: Any) -> Any:
        """Make a class of the kernel's file, and return it. Raise LegalityError if a kernel may not extend one
        of its bases.
        """
        for base in bases:
            exception = isinstance(base, type) and issubclass(base, Exception) and id(base) in self._plain
            known = exception or any(base is one for one in _BASES)
            if not (
                known or isinstance(base, Stub) or self._is_base(base) or base.__module__ in (self._own, *_BASES_FROM)
            ):
                raise self._refused(f"the class {name} that extends {_shown(base)}")
        actual = (str if base is repeatable.Text else base for base in bases)
        return builtins.__build_class__(body, name, *actual, **options)

    def _changed(self, owner: Any) -> Any:
        """Return ``owner``, an object of which the kernel sets an attribute. Raise LegalityError unless the kernel's
        file defines the object's class.
        """
        if not self._is_own(owner):
            raise self._refused(f"an assignment to an attribute of {_shown(owner)}")
        return owner

    def _call(self, function: Any) -> Any:
        """Return ``function`` for the kernel to call, with checks of its arguments and result where they are
        needed.

        Raise LegalityError if the kernel may not call it.
        """
        if not self._callable(function):
            raise self._refused(f"a call of {_shown(function)}")
        if id(function) in _CALLERS:
            return self._calling(function, *_CALLERS[id(function)])
        if isinstance(function, BuiltinFunctionType | MethodDescriptorType) and function.__name__ == "sort":
            return self._calling(function, (), ("key",))
        if _makes_property(function):
            return self._calling(function, (0,), ())
        if isinstance(function, type) and issubclass(function, enum.Enum):
            return functools.partial(self._enum, function)
        return repeatable.called(function)

    def _enum(self, kind: type[enum.Enum], *values: Any, **options: Any) -> Any:
        """Return a member of the enumeration ``kind``, or a new enumeration of the kernel's file.

        Raise LegalityError for options that give the enumeration another type or module.
        """
        if "type" in options or "module" in options:
            raise self._refused("an enumeration that is no plain Enum or IntEnum of the kernel")
        if len(values) > 1 or "names" in options:
            options["module"] = self._own
        return kind(*values, **options)

    def _calling(self, function: Any, positions: Iterable[int], names: Iterable[str]) -> Any:
        """Return a wrapper of ``function`` that checks the functions among its arguments before ``function`` calls
        them.

        ``positions`` and ``names`` say which arguments can be such functions.
        """

        def checked(*values: Any, **options: Any) -> Any:
            given = [self._call(one) if at in positions and callable(one) else one for at, one in enumerate(values)]
            named = {key: self._call(one) if key in names and callable(one) else one for key, one in options.items()}
            return repeatable.called(function)(*given, **named)

        return checked

    def _callable(self, function: Any) -> bool:
        """Tell whether a kernel may call ``function``."""
        if id(function) in self._api or id(function) in self._plain or isinstance(function, Stub):
            return True
        if isinstance(function, MethodType):
            return self._callable(function.__func__) or self._is_own(function.__self__)
        if isinstance(function, functools.partial):
            return self._callable(function.func)
        if isinstance(function, FunctionType):
            code = function.__code__
            return code.co_filename == self._session.filename or self._from(function.__module__)
        if isinstance(function, type):
            return self._is_own(function) or (
                not (function.__module__.startswith(_SIMULATOR) or function is np.ndarray)
                and self._from(function.__module__)
            )
        if isinstance(function, MethodDescriptorType):
            return function.__objclass__ in _PLAIN
        if isinstance(function, MethodWrapperType):  # a kernel can get a method wrapper only from super()
            return function.__name__ == "__init__" and self._is_own(function.__self__)
        if _makes_property(function):
            return True
        if isinstance(function, BuiltinFunctionType):
            owner = function.__self__
            if owner is None or isinstance(owner, ModuleType):
                return self._from(function.__module__)
            kind = owner if isinstance(owner, type) else type(owner)
            return kind in _PLAIN or self._is_own(owner) or self._from(kind.__module__)
        kind = type(function)
        return self._is_own(function) or (kind.__module__ != "typing" and self._from(kind.__module__))

    def _from(self, module: str | None) -> bool:
        """Tell whether ``module`` belongs to the simulator, or is a module that a kernel may import."""
        name = (module or "").removeprefix("_")
        return name.startswith(_SIMULATOR) or self._permitted.module(name.partition(".")[0])

    def _import(
        self, name: str, names: Any = None, local: Any = None, fromlist: Iterable[str] = (), level: int = 0
    ) -> Any:
        """Import a module and return it. Raise LegalityError for one that is not loaded and that a kernel may not import.

        The kernel's own statements were checked before. Numpy also imports modules of its own when the kernel calls it, for
        example for the text of a dtype.
        """
        if level or not (name in sys.modules or self._permitted.module(name)):
            raise self._refused(f"the module {name}")
        return __import__(name, names, local, tuple(fromlist or ()))

    def _hasattr(self, owner: Any, name: str) -> bool:
        self._check_readable(owner, name)
        return hasattr(owner, name)


def _makes_property(function: Any) -> bool:
    """Tell whether ``function`` is a method of a property, such as ``width.setter``, which returns another property."""
    return isinstance(function, BuiltinFunctionType) and isinstance(function.__self__, property)


def _shown(value: Any) -> str:
    """Return the name of a function, module or class for a message. For any other value, return the name of its
    class.
    """
    kind = value if isinstance(value, type) else type(value)
    name = getattr(value, "__name__", "") if isinstance(value, FunctionType | BuiltinFunctionType | ModuleType) else ""
    return f"{name or kind.__name__}"[:80]


class _Checks(ast.NodeTransformer):
    """Adds a check to each attribute access, call, set and formatted string of a syntax tree. It refuses all
    other syntax outside of the subset.
    """

    def __init__(self, refused: Callable[[str, int], LegalityError], permitted: Permitted) -> None:
        self._refused, self._permitted = refused, permitted
        self._line = 0

    def visit(self, node: ast.AST) -> Any:
        self._line = getattr(node, "lineno", self._line)
        name = type(node).__name__
        if name not in _STATEMENTS and name not in _EXPRESSIONS:
            raise self._refused(f"{name}", self._line)
        hidden = next((bound for bound in bound_names(node) if bound.startswith("__")), "")
        if hidden:
            raise self._refused(f"the name {hidden}", self._line)
        return super().visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # ast's name
        value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            return ast.copy_location(_asked(_READ, value, ast.Constant(node.attr)), node)
        if node.attr.startswith("__"):
            raise self._refused(f"an assignment to {node.attr}", node.lineno)
        return ast.copy_location(ast.Attribute(_asked(_OWN, value), node.attr, node.ctx), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.func = ast.copy_location(_asked(CALL, node.func), node.func)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:  # ast's name
        if not asks_if_main(node):
            self.generic_visit(node)
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:  # ast's name
        self.generic_visit(node)
        return ast.copy_location(_asked(_SET, node), node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:  # ast's name
        self.generic_visit(node)
        return ast.copy_location(_asked(_SET, node), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:  # ast's name
        self._fields(node)
        return ast.copy_location(_asked(_SHOWN, node), node)

    def _fields(self, node: ast.expr) -> None:
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
                if part.format_spec is not None:
                    self._fields(part.format_spec)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:  # ast's name
        self.generic_visit(node)
        return ast.copy_location(_asked(_SHOWN, node), node) if isinstance(node.op, ast.Mod) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:  # ast's name
        self.generic_visit(node)
        if not isinstance(node.op, ast.Mod):
            return node
        if not isinstance(node.target, ast.Name):
            raise self._refused("%= on something other than a variable", node.lineno)
        return [node, ast.copy_location(ast.Expr(_asked(_SHOWN, ast.Name(node.target.id, ast.Load()))), node)]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        if node.name.startswith("__") and node.name not in METHODS:
            raise self._refused(f"a definition of {node.name}", node.lineno)
        self.generic_visit(node)
        node.decorator_list = [ast.copy_location(_asked(CALL, one), one) for one in node.decorator_list]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        if node.keywords:
            raise self._refused(f"the class {node.name} with arguments", node.lineno)
        self.generic_visit(node)
        node.decorator_list = [ast.copy_location(_asked(CALL, one), one) for one in node.decorator_list]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id.startswith("__") and node.id not in _NAMES:
            raise self._refused(f"the name {node.id}", node.lineno)
        return node

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.pattern:
        self._public(node.value)  # the pattern is not rewritten, so it may not call anything
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        self._public(node.annotation)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self._public(node.annotation)
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Import(self, node: ast.Import) -> ast.stmt:  # ast's name
        for one in node.names:
            if not self._permitted.module(one.name):
                raise self._refused(f"the module {one.name}", node.lineno)
        self.generic_visit(node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        for one in node.names:
            if node.module != "__future__" and (
                node.level or one.name.startswith("_") or not self._permitted.of_module(node.module or "", one.name)
            ):
                raise self._refused(f"{node.module}.{one.name}", node.lineno)
        self.generic_visit(node)
        return node

    def _public(self, node: ast.expr | None) -> None:
        """Raise LegalityError if an annotation or a pattern calls something, or uses a name that begins with an
        underscore or that only the simulator's tiles have.
        """
        for inner in ast.walk(node) if node is not None else ():
            named = getattr(inner, "attr", getattr(inner, "id", ""))
            hidden = named.startswith("_") or (isinstance(inner, ast.Attribute) and named in HIDDEN_NAMES)
            if isinstance(inner, ast.Call | ast.Lambda | ast.NamedExpr) or hidden:
                raise self._refused(f"{ast.unparse(inner)[:80]} in an annotation or a pattern", self._line)


def _asked(name: str, *arguments: ast.expr) -> ast.Call:
    """Return the syntax tree of a call of the checking function ``name`` with ``arguments``."""
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
