"""Control what a kernel's file imports while it is traced: the simulator's API modules, and stubs for missing modules."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType, ModuleType
from typing import Any, Self

from acceld.errors import did_you_mean
from acceld.nki.errors import LegalityError, UnsupportedCall
from acceld.nki.frontend.core.launch import Launcher
from acceld.nki.frontend.session import Session
from acceld.nki.frontend.versions import Lifetime

FRAMEWORKS = frozenset(
    "torch torch_xla torch_neuronx torchvision jax jaxlib flax transformers libneuronxla jax_neuronx".split()
)
"""Packages that are never loaded while tracing, even if they are installed, because no kernel needs them."""


PACKAGE = __name__.partition(".")[0]
STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
Rewriting = Callable[[str, str], CodeType | None]
"""A function that gives the code of a module from its text and its path, or None for code as it stands."""
WAYS = {
    "belongs": "name the kernel's API (--api), or import the other package",
    "can": "compute with nl and nisa functions, and with plain Python where a number is needed",
    "is not installed": "install it beside acceld, or put the package's folder into the kernel's folder",
}
"""Advice for the user about a module that a kernel can not import, by the first words of the problem."""


class Stub:
    """A substitute for an object of a missing module. A file may pass it around. A running kernel that uses it
    gets UnsupportedCall.
    """

    def __init__(self, session: Session, name: str, why: str) -> None:
        self.__dict__.update(_session=session, _name=name, _why=why)

    def _use(self) -> None:
        """Raise UnsupportedCall if the kernel is running. Do nothing while the file loads."""
        session: Session = self.__dict__["_session"]
        if session.running:
            why: str = self.__dict__["_why"]
            hint = next((way for problem, way in WAYS.items() if why.startswith(problem)), "")
            raise UnsupportedCall(f"{self.__dict__['_name']} {why}", line=session.line(), hint=hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        self._use()
        return Stub(self.__dict__["_session"], f"{self.__dict__['_name']}.{name}", self.__dict__["_why"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._use()
        if len(args) == 1 and callable(args[0]) and not kwargs and not isinstance(args[0], Stub):
            return args[0]  # a stub that is used as a decorator returns the function unchanged
        return Stub(self.__dict__["_session"], f"{self.__dict__['_name']}(...)", self.__dict__["_why"])

    def __getitem__(self, key: Any) -> Any:
        self._use()
        return self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __bool__(self) -> bool:
        self._use()
        return False

    def __iter__(self) -> Iterator[Any]:
        self._use()
        return iter(())

    def __len__(self) -> int:
        self._use()
        return 0

    def __contains__(self, item: object) -> bool:
        self._use()
        return False

    def __enter__(self) -> Self:
        self._use()
        return self

    def __exit__(self, *error: object) -> None: ...

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def _operator(self, *operands: Any) -> Any:
        """Return this stub as the result of an operation while the file loads."""
        self._use()
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operator
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _operator
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _operator


class StubModule(ModuleType):
    """A substitute for a missing module. It has a ``__version__``, because files compare versions when they
    load.
    """

    __version__ = "0"

    def __init__(self, name: str, session: Session, why: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._session = session
        self._why = why

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        stub = Stub(self._session, f"{self.__name__}.{name}", self._why)
        stub._use()
        return stub


class ApiModule(ModuleType):
    """A module of the API: it has the simulated names, and refuses any other name with a reason.

    - ``names``: the simulated functions and constants.
    - ``documented``: all functions of the API's module; None if unknown. A documented function that is not simulated is
      refused as a gap of the simulator, any other lower-case name as a mistake of the kernel.
    - ``instead``: what to use in place of names that only earlier APIs have, or that no engine has.
    - ``withheld``: names that the trace's version of ``nki`` lacks, with the versions that have them.
    """

    def __init__(
        self,
        name: str,
        session: Session,
        names: Mapping[str, object],
        documented: frozenset[str] | None = None,
        instead: Mapping[str, str] = MappingProxyType({}),
        withheld: Mapping[str, Lifetime] = MappingProxyType({}),
    ) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._session = session
        self._documented = documented
        self._replaced = instead
        self._withheld = withheld
        self.__dict__.update((key, value) for key, value in names.items() if key not in withheld)
        self.__dict__["_frozen"] = True

    def __setattr__(self, name: str, value: object) -> None:
        # Python's import system sets a submodule as an attribute of its package.
        own_part = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if "_frozen" in self.__dict__ and not own_part and not name.startswith("__"):
            raise LegalityError(
                f"the file assigns to {self.__name__}.{name}, and a kernel can not change the API: use a name of your own",
                rule="monkeypatch",
                line=self._session.line(),
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise LegalityError(
            f"the file deletes {self.__name__}.{name}, and a kernel can not change the API: leave that out",
            rule="monkeypatch",
            line=self._session.line(),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name in self._withheld:
            return self._of_other_version(name, self._withheld[name])
        known = [key for key in self.__dict__ if not key.startswith("_")]
        if self._documented is not None and name not in self._documented and name.islower():
            return self._invented(name, sorted({*known, *self._documented}))
        if self._session.running:
            raise UnsupportedCall(
                f"{self.__name__}.{name} is not simulated",
                line=self._session.line(),
                hint=self._instead(name, known),
            )
        launchers = [key for key in known if isinstance(self.__dict__[key], Launcher)]
        meant = get_close_matches(name.lower(), launchers, n=1)
        if meant:
            return _Misspelt(self._session, f"{self.__name__}.{name}", f"{self.__name__}.{meant[0]}")
        return Stub(self._session, f"{self.__name__}.{name}", f"is not simulated. {self._instead(name, known)}".strip())

    def _instead(self, name: str, known: Sequence[str]) -> str:
        """Return a hint for a name that is not simulated.

        If NKI has the name, the hint proposes no similar name, because a function with a similar name would do
        something else.
        """
        if self._documented is not None and name in self._documented:
            return "NKI has it; the simulator does not yet"
        return did_you_mean(name, known) or f"simulated: {', '.join(sorted(known))[:600]}"

    def _of_other_version(self, name: str, life: Lifetime) -> Stub:
        """Refuse a function that the trace's version of ``nki`` lacks.

        In a running kernel, raise LegalityError at once. While the file loads, return a stub that raises the
        error when the kernel uses it.
        """
        what = f"{self.__name__}.{name}"
        if self._session.running:
            self._session.need(what, life)
        return _Later(self._session, what, life)

    def _invented(self, name: str, known: Sequence[str]) -> Stub:
        """Refuse a name that NKI does not have. The error lists similar functions with their arguments.

        In a running kernel, raise LegalityError at once. While the file loads, return a stub that raises the
        error when the kernel uses it.
        """
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        offered = [one for one in near if one not in self._replaced]
        shown = [f"{one}({arguments_of(self.__dict__[one])})" if one in self.__dict__ else one for one in offered]
        message = f"{self.__name__}.{name} does not exist in NKI"
        hint = f"The nearest: {'; '.join(shown)}." if shown else f"it has {', '.join(known)[:600]}"
        if name in self._replaced:
            hint = self._replaced[name]
        elif near and near[0] in self._replaced:
            hint = f"{near[0]} is no operation of an engine either: {self._replaced[near[0]]}" + (
                f". {hint}" if shown else ""
            )
        if self._session.running:
            raise LegalityError(message, rule="unknown_call", line=self._session.line(), hint=hint)
        return _Invented(self._session, message, hint)


class _Invented(Stub):
    """A substitute for an imported name that NKI does not have. A running kernel that uses it gets
    LegalityError.
    """

    def _use(self) -> None:
        session: Session = self.__dict__["_session"]
        if session.running:
            hint: str = self.__dict__["_why"]
            raise LegalityError(self.__dict__["_name"], rule="unknown_call", line=session.line(), hint=hint)


class _Misspelt(Stub):
    """A substitute for a name that is almost that of a launcher, such as ``nki.jitt``. It raises LegalityError when
    it decorates a function, because the real package has no such name.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session: Session = self.__dict__["_session"]
        message = f"{self.__dict__['_name']} does not exist in NKI"
        raise LegalityError(
            message, rule="unknown_call", line=session.line(), hint=f"Did you mean {self.__dict__['_why']}?"
        )


class _Later(Stub):
    """A substitute for an imported name that the trace's version of NKI lacks. A running kernel that uses it
    gets LegalityError.
    """

    def __init__(self, session: Session, name: str, life: Lifetime) -> None:
        super().__init__(session, name, "")
        self.__dict__["_life"] = life

    def _use(self) -> None:
        session: Session = self.__dict__["_session"]
        if session.running:
            session.need(self.__dict__["_name"], self.__dict__["_life"])


def arguments_of(function: object) -> str:
    """Return a function's parameters as text, such as ``dst, src``; ``...`` if its signature is unknown."""
    try:
        return shown_arguments(inspect.signature(function)) if callable(function) else "..."
    except ValueError:
        return "..."


def shown_arguments(signature: inspect.Signature) -> str:
    """Return parameters as text: their names, ``*`` before keyword-only ones, and default values."""
    shown, star = [], False
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            shown.append(f"*{one.name}")
            star = True
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        default = one.default
        text = (
            f"{one.name}.{default.name}" if isinstance(default, Enum) else getattr(default, "__name__", repr(default))
        )
        shown.append(one.name if default is inspect.Parameter.empty else f"{one.name}={text}")
    return ", ".join(shown)


class _Loader(importlib.abc.Loader):
    """A loader for a module that exists already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, because the module is complete."""


class _First(importlib.abc.MetaPathFinder):
    """The first of Python's import finders. It finds the simulator's modules of the API, even if packages of the same
    name are installed, and stubs for frameworks.
    """

    def __init__(self, session: Session, modules: Mapping[str, ModuleType], roots: tuple[str, ...]) -> None:
        self.session, self.modules, self.roots = session, modules, roots

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        module = self.modules.get(fullname)
        if module is None and top in self.roots:
            module = StubModule(fullname, self.session, self._why(top))
        elif module is None and top in FRAMEWORKS and _asked_by_kernel(self.session):
            module = StubModule(fullname, self.session, "can not be used in a traced kernel")
            self.session.missing.add(top)
        if module is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(module), is_package=True)

    def _why(self, top: str) -> str:
        """Return why this API does not have the module ``top``. The text ends a sentence that begins with the
        module's name.
        """
        other = {"nki": "nki", "neuronxcc": "nki_legacy"}.get(top, self.session.api)
        if other != self.session.api:
            return f"belongs to API {other}; the kernel is traced as one of {self.session.api}"
        return "is not simulated"


class _RewritingLoader(importlib.machinery.SourceFileLoader):
    """A loader that rewrites a module's statements as the kernel's file is rewritten. The rewritten code is not kept on
    disk.
    """

    def __init__(self, name: str, path: str, rewritten: Rewriting, names: Mapping[str, object]) -> None:
        super().__init__(name, path)
        self._rewritten, self._names = rewritten, names

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code, rewritten if it has a statement to rewrite."""
        made = self._rewritten(importlib.util.decode_source(self.get_data(self.path)), self.path)
        return super().get_code(fullname) if made is None else made

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, with the functions that rewritten statements call."""
        module.__dict__.update(self._names)
        super().exec_module(module)


class _OfKernel(importlib.abc.MetaPathFinder):
    """Python's finder of source files, for the kernel's own modules: files below ``root``."""

    def __init__(self, root: Path, rewritten: Rewriting, names: Mapping[str, object]) -> None:
        self.root, self.rewritten, self.names = root, rewritten, names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        place = None if spec is None else spec.origin
        if spec is None or place is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return None
        if not _inside(place, self.root):
            return None
        spec.loader = _RewritingLoader(fullname, place, self.rewritten, self.names)
        return spec


class _Last(importlib.abc.MetaPathFinder):
    """The last of Python's import finders. It finds a stub for a missing module that a file of the kernel imports."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _asked_by_kernel(self.session):
            return None
        module = StubModule(fullname, self.session, "is not installed")
        self.session.missing.add(fullname.partition(".")[0])
        return importlib.machinery.ModuleSpec(fullname, _Loader(module), is_package=True)


def _asked_by_kernel(session: Session) -> bool:
    """Tell whether the running import statement is in the kernel's file or below its source root.

    The answer is False for ``importlib.util.find_spec``, so that a kernel can find out whether a module is really
    installed.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        if frame.f_code is importlib.util.find_spec.__code__:
            return False
        frame = frame.f_back
    if frame is None:
        return False
    name, root = frame.f_code.co_filename, session.options.source_root
    return name == session.filename or (root is not None and _inside(name, root))


def _inside(name: str, root: Path) -> bool:
    try:
        return Path(name).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):  # the name of the code's file is not a path
        return False


@contextmanager
def imports(
    session: Session,
    modules: Mapping[str, ModuleType],
    roots: tuple[str, ...],
    rewritten: Rewriting | None = None,
    names: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[None]:
    """Let imports in a ``with`` block find the API's modules and the stubs.

    ``rewritten`` gives the code of each of the kernel's own modules from its text and its path, or None for code as it
    stands. The code may use ``names``. After the block, ``sys.modules``, ``sys.path`` and the finders are as before.
    """
    had, disabled = hasattr(logging, "OFF"), logging.root.manager.disable
    if not had:
        # the Neuron packages add OFF to logging, and kernels use it
        logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]  # a name that logging lacks
    before, path, finders = dict(sys.modules), list(sys.path), list(sys.meta_path)
    root = session.options.source_root
    hidden = _stale(roots, root)
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(modules)
    sys.meta_path.insert(0, _First(session, modules, roots))
    if session.options.module_stubs:
        sys.meta_path.append(_Last(session))
    if root is not None:
        sys.path.insert(0, str(root))
    if root is not None and rewritten is not None:
        sys.meta_path.insert(1, _OfKernel(root, rewritten, names))
    try:
        yield
    finally:
        if not had:
            del logging.OFF  # type: ignore[attr-defined]  # added above
        logging.disable(disabled)
        sys.meta_path[:] = finders
        sys.path[:] = path
        made = [(name, module) for name, module in sys.modules.items() if name not in before]
        for name in [name for name, module in made if _belongs_to_trace(name, module, roots, root)]:
            del sys.modules[name]
        sys.modules.update(before)


_KEPT: dict[str, ModuleType] = {}
"""Imported modules that are known to stay loaded from trace to trace, by name. They are remembered because a program
has thousands.
"""


def _stale(roots: tuple[str, ...], root: Path | None) -> list[str]:
    """Return the names of imported modules that a trace must load again.

    They are the API, the kernel's own modules, and packages that refer to another trace's ``nl`` or ``nisa``.
    """
    others = {
        name: one
        for name, one in sys.modules.items()
        if one is not None and _KEPT.get(name) is not one and not _kept(name, one)
    }
    holding = {name.partition(".")[0] for name, one in others.items() if _holds_api(one, roots)}
    return [
        name
        for name, one in others.items()
        if name.partition(".")[0] in holding or _belongs_to_trace(name, one, roots, root)
    ]


def _kept(name: str, module: ModuleType) -> bool:
    """Tell whether ``module`` stays loaded from trace to trace: it belongs to the running program, acceld, Python's
    library or an installed package.
    """
    file = vars(module).get("__file__") or ""
    kept = (
        name == "__main__"
        or name.partition(".")[0] == PACKAGE
        or name in sys.builtin_module_names
        or f"{os.sep}site-packages{os.sep}" in file
        or file.startswith(STANDARD_LIBRARY)
    )
    if kept:
        _KEPT[name] = module
    return kept


def _holds_api(module: ModuleType, roots: tuple[str, ...]) -> bool:
    """Tell whether a global name of ``module`` refers to a module of the API."""
    held = [one for one in list(vars(module).values()) if isinstance(one, ModuleType)]
    return any(isinstance(one, ApiModule) or one.__name__.partition(".")[0] in roots for one in held)


def _belongs_to_trace(name: str, module: ModuleType, roots: tuple[str, ...], root: Path | None) -> bool:
    """Tell whether ``module`` must not outlive this trace: it is an API module, a stub, or a module below the source
    root.
    """
    if isinstance(module, StubModule | ApiModule) or name.partition(".")[0] in roots:
        return True
    if root is None:
        return False
    places = [vars(module).get("__file__"), *vars(module).get("__path__", ())]
    return any(isinstance(place, str) and _inside(place, root) for place in places)
