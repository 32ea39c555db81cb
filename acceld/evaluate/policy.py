"""Refuse a source with forbidden constructs, by its syntax tree, before it runs.

The policy gives early and clear messages; it is not the only protection. The jail confines code that passes it,
and the judge does not trust what that code returns. Kernels from the user are not checked.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from typing import TypeGuard

from acceld.nki.frontend.permitted import HIDDEN_NAMES, METHODS, Permitted, as_imported, asks_if_main, bound_names
from acceld.parsing import parse
from acceld.statuses import Failure

MODULES = frozenset(
    "numpy ml_dtypes math functools itertools operator typing dataclasses enum collections collections.abc abc "
    "numbers warnings copy string textwrap __future__ neuronxcc neuronxcc.nki nki".split()
)
"""Modules that a candidate may import. A candidate may also import the submodules of neuronxcc.nki and nki."""
ROOTS = ("neuronxcc.nki.", "nki.")
MODULE_NAMES = {
    "dataclasses": "dataclass field replace asdict astuple fields KW_ONLY FrozenInstanceError",
    "functools": "partial reduce wraps lru_cache cache",
    "operator": "add sub mul truediv floordiv pow abs neg pos and_ or_ xor not_ invert lshift rshift eq ne lt le gt ge "
    "itemgetter contains getitem index",
    "typing": "Any Callable ClassVar Dict Final FrozenSet Generic Iterable Iterator List Literal Mapping NamedTuple Optional "
    "Protocol Self Sequence Set Tuple Type TypeAlias TypeVar Union cast TYPE_CHECKING",
    "enum": "Enum IntEnum StrEnum Flag IntFlag auto unique",
    "collections": "namedtuple defaultdict OrderedDict Counter deque abc",
    "collections.abc": "Callable Collection Container Generator Hashable Iterable Iterator Mapping MutableMapping MutableSequence "
    "MutableSet Reversible Sequence Set Sized",
    "abc": "ABC abstractmethod",
    "numbers": "Number Real Integral Rational Complex",
    "warnings": "warn",
    "copy": "copy deepcopy",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation",
    "textwrap": "dedent indent fill wrap shorten",
}
"""Names that a candidate may use of modules that have side effects. Of any other allowed module a candidate may use
every public name.
"""
NUMPY_NAMES = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ bool intp integer floating number generic "
    "single double half ndarray dtype zeros ones full zeros_like ones_like full_like arange linspace eye "
    "identity tri tril triu diag array asarray asanyarray ascontiguousarray mgrid ogrid s_ index_exp newaxis pi e inf nan finfo "
    "iinfo prod ceil floor sqrt log2 log log10 log1p exp exp2 expm1 power abs absolute fabs maximum minimum max min amax amin sum "
    "mean any all clip round rint trunc sign mod remainder floor_divide divide true_divide multiply add subtract negative square "
    "reciprocal sin cos tan tanh arctan cbrt hypot gcd lcm invert broadcast_to broadcast_shapes expand_dims reshape ravel "
    "transpose swapaxes moveaxis squeeze concatenate stack vstack hstack tile repeat split array_split flip roll where isnan isinf "
    "isfinite isclose allclose array_equal logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor "
    "left_shift right_shift equal not_equal less less_equal greater greater_equal argmax argmin sort argsort unique nonzero "
    "count_nonzero meshgrid indices ndindex ndenumerate unravel_index ravel_multi_index issubdtype isscalar shape ndim size copy "
    "promote_types result_type can_cast".split()
)
"""Names of numpy that a kernel may use while it is traced: types, shapes, and arithmetic on known values."""
TILE_NAMES = frozenset(
    "shape dtype ndim size itemsize buffer name T expand_dims broadcast_to reshape view astype assert_shape ap permute broadcast "
    "expand_dim squeeze_dim reshape_dim flatten_dims strides offset get_pattern is_indirect is_contiguous slice select "
    "vector_select rearrange indirect reinterpret_cast p x y z w start stop step with_schedule".split()
)
"""Documented attributes of tiles, tensors and grids, which a kernel may read."""
_PLAIN_WORDS = frozenset("label like space slot instruction".split())
"""Names in :data:`HIDDEN_NAMES` that a kernel's own classes may define.

If a kernel reads an attribute of such a name from a tile, the policy does not notice it. The second trace then refuses
the read, because it checks the object itself.
"""
_ARRAY_NAMES = frozenset(
    "astype reshape ravel flatten transpose swapaxes squeeze sum mean max min prod any all argmax argmin sort argsort tolist item "
    "repeat take clip round nbytes flat diagonal std var kind type name value bits eps tiny cumsum cumprod dot trace partition "
    "nonzero real imag from_iterable setter getter deleter".split()
)
_PLAIN_NAMES = frozenset(
    name
    for kind in (str, list, dict, set, frozenset, tuple, int, float, range, slice, deque, Counter, OrderedDict)
    for name in dir(kind)
    if not name.startswith("_")
) - {"format", "format_map", "encode", "to_bytes", "from_bytes", "fromhex"}
_OF_NAMED_TUPLES = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Documented attributes of named tuples."""
BUILTINS = frozenset(
    "exec eval compile __import__ open input globals locals vars setattr delattr breakpoint dir help memoryview "
    "exit quit hash id".split()
)
"""Builtins that no kernel needs, or that differ between processes. getattr is allowed with a literal public name."""
_CALLED = frozenset({"getattr", "hasattr", "type"})
"""Functions that may be called, but not assigned or passed on."""
NUMPY_COMPUTE = frozenset(
    "matmul dot vdot inner outer einsum einsum_path tensordot kron convolve correlate linalg fft cumsum cumprod "
    "load save savez savez_compressed loadtxt savetxt genfromtxt fromfile tofile memmap frombuffer fromstring "
    "random testing ctypeslib lib distutils f2py core show_config DataSource apply_along_axis vectorize "
    "frompyfunc nditer".split()
)
"""Names of numpy with which a kernel would compute, read or hide its answer instead of letting the chip compute it."""
NUMPY_REACH = NUMPY_COMPUTE - frozenset(
    "matmul dot vdot inner outer einsum einsum_path tensordot kron convolve correlate linalg fft cumsum cumprod".split()
)
"""Names of numpy that reach beyond arrays, such as files. These names are forbidden even in kernels written in numpy.
"""
FRAMES = frozenset(
    "f_locals f_globals f_back f_code f_builtins gi_frame cr_frame ag_frame tb_frame tb_next func_globals mro ctypes "
    "modules meta_path path_hooks settrace setprofile".split()
)
_HIDDEN_NAME = re.compile(
    r"__(class|base|bases|mro|subclasses|globals|builtins|import|code|dict|loader|spec|reduce|getattribute)__"
)
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"})
_GENERIC = frozenset({"Generic", "Protocol"})
"""Names of the base classes that may have type variables, as in ``Generic[T]``."""
_BASES = _ENUMS | _GENERIC | {"NamedTuple", "object", "ABC", "NKIObject"}
_BASES |= set(
    "Exception ValueError TypeError IndexError KeyError RuntimeError AssertionError NotImplementedError".split()
)
_MEMBERS = frozenset({"str", "int"})
"""Names of the types that an enumeration's members may have."""
MAX_CHARACTERS = 1_000_000


def check(text: str, filename: str = "kernel.py", *, library: frozenset[str] = NUMPY_COMPUTE) -> Failure | None:
    """Return a failure for the first forbidden construct in a source; None if the source has none.

    The failure's rule is ``syntax`` if the source is not valid Python. ``library`` has the forbidden names of
    numpy.
    """
    if len(text) > MAX_CHARACTERS:
        return Failure(
            "source_size",
            f"the source has {len(text)} characters; {MAX_CHARACTERS} are allowed",
            hint="write loops in place of repeated statements",
        )
    try:
        tree = parse(text, filename)
    except SyntaxError as error:
        return Failure("syntax", f"SyntaxError: {error.msg}", error.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as error:
        return Failure("syntax", f"the source can not be parsed: {error}")
    try:
        return min(_Reader(as_imported(tree), library).findings(), key=lambda failure: failure.line, default=None)
    except RecursionError:
        return Failure("syntax", "the source is nested too deep", hint="move inner parts to functions of their own")


def canonical(text: str) -> str:
    """Return a text that is equal for all sources that differ only in comments, formatting and line numbers.

    Raise ValueError if the source is not valid Python.
    """
    try:
        return ast.dump(parse(text), include_attributes=False)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the source is not valid Python: {error}") from error


class _Reader:
    """The forbidden constructs of one syntax tree, and the modules that its names stand for."""

    def __init__(self, tree: ast.Module, library: frozenset[str]) -> None:
        self.tree = tree
        self.library = library
        self.modules = {"np": "numpy", "numpy": "numpy"}
        """The module to which each name in the source refers."""
        self.functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        self.owners = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self.owners |= {id(node.args[0]) for node in ast.walk(tree) if _reads(node)}
        self.defined = frozenset(_defined(tree))
        # Names of built-in classes are left out. Otherwise a kernel could define such a class in a function that is never
        # called, and then extend the built-in class of that name.
        named = (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        self.classes = frozenset(named) - frozenset(dir(builtins))
        self.unused = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        """Expressions whose value is not used, such as docstrings."""
        self.mains = {id(inner) for node in ast.walk(tree) if asks_if_main(node) for inner in ast.walk(node)}

    def findings(self) -> Iterator[Failure]:
        """Yield every forbidden construct, in no particular order."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._bind(node)
        for node in ast.walk(self.tree):
            found = self._finding(node) or next(filter(None, map(_bound, bound_names(node))), None)
            if found is not None:
                rule, message, hint = found
                yield Failure(rule, message, getattr(node, "lineno", 0), hint)

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        """Record the module that each name of an import statement stands for."""
        for alias in node.names:
            if isinstance(node, ast.Import):
                top = alias.name.partition(".")[0]
                self.modules[alias.asname or top] = alias.name if alias.asname else top
            elif node.module in ("neuronxcc", "neuronxcc.nki", "nki") and alias.name in ("nki", "language", "isa"):
                self.modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def _finding(self, node: ast.AST) -> tuple[str, str, str] | None:
        """Return (rule, message, hint) if a node of the syntax tree is forbidden; None if the node is allowed."""
        match node:
            case ast.Import():
                return next(filter(None, (_module(alias.name) for alias in node.names)), None)
            case ast.ImportFrom():
                return self._import_from(node)
            case ast.Try() | ast.TryStar():
                return (
                    "try",
                    "try/except is not allowed, because it would hide a kernel's failure",
                    "remove the fallback",
                )
            case ast.Name():
                return None if id(node) in self.mains else _name(node.id) or self._bare(node)
            case ast.MatchClass():
                return "match", "a class pattern reads attributes by name", "compare with == and isinstance"
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.Constant(value=str(text)) if _HIDDEN_NAME.search(text) and id(node) not in self.unused:
                return "dunder", f"the text {text[:60]!r} names an internal of Python", ""
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if "matmul" in self.library:
                return "library", "the @ operator computes on the host, not on the chip", "use nisa.nc_matmul"
            case ast.ClassDef():
                return _class(node, self.classes)
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                return "async", "a kernel is not a coroutine", ""
        return None

    def _import_from(self, node: ast.ImportFrom) -> tuple[str, str, str] | None:
        """Return (rule, message, hint) if a ``from`` import is forbidden; None if the import is allowed."""
        if node.level:
            return "import", "relative imports are not allowed: a candidate is a single file", ""
        found = _module(node.module or "")
        if found is not None:
            return found
        for alias in node.names:
            refused = _of_module(node.module or "", alias.name, self.library)
            if refused is not None:
                return refused
            hidden = _name(alias.name) or (
                ("dunder", f"a candidate may not import {alias.name}, which is private", "use the public API")
                if alias.name[:1] == "_"
                else None
            )
            if hidden and node.module != "__future__":
                return hidden
        return None

    def _attribute(self, node: ast.Attribute) -> tuple[str, str, str] | None:
        """Return (rule, message, hint) if an attribute is forbidden; None if the attribute is allowed."""
        if node.attr in METHODS and _is_super(node.value):
            return None
        if node.attr.startswith("_") and not self._is_private(node):
            return (
                "dunder",
                f"a candidate may not use the attribute {node.attr}, which is internal",
                "use the public API",
            )
        if node.attr in FRAMES:
            return (
                "frames",
                f"the attribute {node.attr} reaches outside of the kernel",
                "use arguments and local variables",
            )
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(node.ctx, ast.Load) and isinstance(root, ast.Name) and root.id in self.modules:
            return (
                "monkeypatch",
                f"a candidate may not assign to {ast.unparse(node)}, because that changes a module",
                "assign to a variable of the kernel",
            )
        owner = self._module_of(node.value)
        if owner is not None:
            return _of_module(owner, node.attr, self.library)
        if isinstance(node.value, ast.Attribute) and self._attribute(node.value) is not None:
            return None  # the owner of the attribute is refused already, with a more precise message
        return self._of_value(node)

    def _is_private(self, node: ast.Attribute) -> bool:
        """Tell whether an attribute is a private one of the source's own classes, such as ``self._width``, or one of
        named tuples, such as ``box._replace``.

        The second trace checks that its owner is an object of the kernel's own.
        """
        known = node.attr in self.defined or node.attr in _OF_NAMED_TUPLES
        return known and not node.attr.startswith("__") and self._module_of(node.value) is None

    def _module_of(self, node: ast.expr) -> str | None:
        """Return the dotted name of the module, or of the member of a module, that an expression stands for;
        else None.
        """
        if isinstance(node, ast.Name):
            return self.modules.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self._module_of(node.value)) is not None:
            return f"{owner}.{node.attr}" if _is_api(owner) or f"{owner}.{node.attr}" in MODULES else None
        return None

    def _of_value(self, node: ast.Attribute) -> tuple[str, str, str] | None:
        """Return (rule, message, hint) if an attribute may not be read from an object that is not a module; None if
        it may be read.
        """
        name = node.attr
        if name == "format" and isinstance(node.value, ast.Constant) and _plain_template(node.value.value):
            return None
        known = name in self.defined or name in TILE_NAMES or name in _PLAIN_NAMES or name in _ARRAY_NAMES
        known = known or name in _OF_NAMED_TUPLES
        if known and (name not in HIDDEN_NAMES or (name in self.defined and name in _PLAIN_WORDS)):
            return None
        return _taken(name) if name in self.defined else _surface(name)

    def _call(self, node: ast.Call) -> tuple[str, str, str] | None:
        """Return (rule, message, hint) if a call is forbidden; None if the call is allowed."""
        if not isinstance(node.func, ast.Name):
            return None
        if node.func.id in ("getattr", "hasattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                return (
                    "getattr",
                    f"{node.func.id} needs the attribute's name as a literal text",
                    "write the attribute itself",
                )
            return self._attribute(ast.copy_location(ast.Attribute(node.args[0], name.value, ast.Load()), node))
        if node.func.id == "type" and len(node.args) != 1:
            return "builtin", "a candidate may not make types by calling type", "write a class"
        return None

    def _bare(self, node: ast.Name) -> tuple[str, str, str] | None:
        """Return (rule, message, hint) if a name is used as a value and so gets an alias; None if that is allowed.

        A module, or a function such as getattr, may get no alias, because the policy would not recognize the module or the
        function under the alias.
        """
        if node.id in self.modules and id(node) not in self.owners and isinstance(node.ctx, ast.Load):
            return "alias", f"a candidate may not use the module {node.id} as a value", f"write {node.id}.NAME"
        if node.id in _CALLED and id(node) not in self.functions and isinstance(node.ctx, ast.Load):
            return "alias", f"a candidate may not use {node.id} as a value", f"call {node.id} where it is needed"
        return None


def _module(name: str) -> tuple[str, str, str] | None:
    """Return (rule, message, hint) if a module may not be imported; None if the module may be imported."""
    if name in MODULES or name.startswith(ROOTS):
        return None
    return "import", f"a candidate may not import {name}", f"allowed: {', '.join(sorted(MODULES - {'__future__'}))}"


def _of_module(module: str, name: str, library: frozenset[str]) -> tuple[str, str, str] | None:
    """Return (rule, message, hint) if the member ``name`` of a module may not be used; None if the member may be used."""
    if module.partition(".")[0] == "numpy":
        if name in library:
            return _library(f"numpy.{name}")
        return None if name in NUMPY_NAMES or "matmul" not in library else _beyond(module, name)
    allowed = MODULE_NAMES.get(module)
    return _beyond(module, name) if allowed is not None and name not in allowed.split() else None


def _plain_template(text: object) -> bool:
    """Tell whether a format string reads no attribute and no item of its arguments."""
    if _HIDDEN_NAME.search(str(text)):
        return True  # this text is refused already, with a more precise message
    try:
        fields = [field for _, field, spec, _ in string.Formatter().parse(str(text)) for field in (field, spec)]
    except ValueError:
        return False
    return not any("[" in field or "{" in field or re.search(r"\.\D", field) for field in fields if field)


def _is_api(module: str) -> bool:
    """Tell whether ``module`` belongs to an API of NKI."""
    return module in ("neuronxcc", "nki") or module.startswith(ROOTS) or module == "neuronxcc.nki"


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names of all attributes that the source's own classes define."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                yield inner.name
            elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                yield inner.attr
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "namedtuple":
            for constant in ast.walk(node):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield from constant.value.replace(",", " ").split()


def _beyond(module: str, name: str) -> tuple[str, str, str]:
    return "module", f"a candidate may not use {module}.{name}", "use the operations of nl and nisa"


def _surface(name: str) -> tuple[str, str, str]:
    return (
        "attribute",
        f"{name} is no documented attribute of a tile, an array or a plain value",
        "use an attribute that the API documents",
    )


def _taken(name: str) -> tuple[str, str, str]:
    return (
        "attribute",
        f"the attribute {name} of this class is also an internal attribute of the simulator's tiles",
        f"rename the kernel's own attribute, for example to {name}_",
    )


def _library(name: str) -> tuple[str, str, str]:
    return "library", f"{name} computes on the host, not on the chip", "use the operations of nl and nisa"


def _name(name: str) -> tuple[str, str, str] | None:
    if name in BUILTINS:
        return "builtin", f"a candidate may not use {name}", "compute with tiles and numbers alone"
    if name.startswith("__") and name not in ("__doc__", "__all__"):
        return "dunder", f"a candidate may not use the name {name}, which is internal", "use the public API"
    return None


def _bound(name: str) -> tuple[str, str, str] | None:
    """Return (rule, message, hint) if a source may not give a value to ``name``; None if it may."""
    if name.startswith("__"):
        return "dunder", f"a candidate may not give a value to {name}, which is internal", "choose another name"
    return None


def _reads(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell whether a node is ``getattr(owner, name)`` without a default. Such a call can not test whether a
    name exists.
    """
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and len(node.args) == 2
    )


def _is_super(node: ast.expr) -> bool:
    """Tell whether an expression is ``super()``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args


def _class(node: ast.ClassDef, own: frozenset[str]) -> tuple[str, str, str] | None:
    """Return (rule, message, hint) if a class is forbidden; None if the class is allowed.

    A class may extend the classes ``own``, which the same file defines.
    """
    names = [_base(base) for base in node.bases]
    allowed = _BASES | _MEMBERS if _ENUMS.intersection(names) else _BASES
    for name, base in zip(names, node.bases, strict=True):
        if name not in allowed | own:
            return "class", f"a candidate may not inherit from {ast.unparse(base)}", "write the class without that base"
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("__") and statement.name not in METHODS:
            return "dunder", f"a candidate may not define {statement.name}", "give the method another name"
    return None


def _base(node: ast.expr) -> str:
    """Return the name of a class's base class, without type variables in brackets; empty if the base is any other
    expression.
    """
    name = getattr(node, "id", getattr(node, "attr", ""))
    if isinstance(node, ast.Subscript):
        inner = _base(node.value)
        name = inner if inner in _GENERIC else ""
    return str(name)


PERMITTED = Permitted(
    module=lambda name: _module(name) is None,
    of_module=lambda module, name: _module(module) is None and _of_module(module, name, NUMPY_COMPUTE) is None,
    attributes=frozenset((TILE_NAMES | _PLAIN_NAMES | _ARRAY_NAMES) - HIDDEN_NAMES - FRAMES),
    template=_plain_template,
)
"""The rules of this policy, as :mod:`acceld.nki.frontend.guarded` applies them to objects while a kernel runs."""
