"""Stand in for Neuron's packages in other projects' tests: a kernel that is called on arrays is traced,
verified and executed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from acceld.chips import API_CHIPS
from acceld.nki.errors import KernelFailure, UnsupportedCall
from acceld.nki.execute.interpreter import execute
from acceld.nki.execute.ranks import execute_ranks
from acceld.nki.frontend.core import memory
from acceld.nki.frontend.core.memory import BufferKind
from acceld.nki.frontend.current.language import NKIObject
from acceld.nki.frontend.session import Session
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, _front_end, trace
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.verify.verifier import verify
from scripts.evidence.corpus.outcomes import State

Array = NDArray[Any]
LAUNCHERS = ("jit", "trace", "baremetal", "benchmark", "profile", "simulate_kernel", "simulate")
BUFFERS = {word: getattr(memory, word.upper()) for word in ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm")}
APIS = {"nki": "nki", "neuronxcc": "nki_legacy"}


class Stopped(Exception):
    """Raised when a kernel gives no results. It states the last stage that the kernel reached, and the reason."""

    def __init__(self, state: State, reason: str) -> None:
        super().__init__(reason)
        self.state, self.reason = state, reason


@dataclass
class Host:
    """Runner of the kernels of the checkout in ``root``. ``chips`` has the chip of each API."""

    root: Path
    chips: Mapping[str, str] = field(default_factory=lambda: {"nki": "trn2", "nki_legacy": "trn1"})
    deadline_s: float = 60.0
    stubs: tuple[str, ...] = ()
    """Packages to replace by objects that accept anything."""
    cores: int = 1
    ran: int = 0
    """Number of kernels that gave results."""
    stopped: Stopped | None = None
    """Failure of the first kernel that gave none."""

    def install(self) -> None:
        """Make imports of Neuron's packages give stand-ins, for the rest of this process, even where the
        packages are installed.
        """
        sys.meta_path.insert(0, _Finder(self))

    def run(
        self,
        function: Any,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        grid: tuple[int, ...] = (),
        api: str = "",
        chip: str = "",
    ) -> list[Array]:
        """Run a kernel on these arguments and return its results. Raise Stopped if it gives no results."""
        values = _values(inspect.unwrap(function), args, kwargs)
        return self.run_ranks(function, [values], grid, api, chip)[0]

    def run_ranks(
        self,
        function: Any,
        ranks: Sequence[Mapping[str, object]],
        grid: tuple[int, ...] = (),
        api: str = "",
        chip: str = "",
    ) -> list[list[Array]]:
        """Run a kernel on several ranks and return each rank's results. ``ranks`` has each rank's arguments by name."""
        try:
            return self._run(inspect.unwrap(function), ranks, grid, api, chip)
        except Stopped as stopped:
            self.stopped = self.stopped or stopped
            raise

    def _run(
        self, target: Any, ranks: Sequence[Mapping[str, object]], grid: tuple[int, ...], api: str, chip: str
    ) -> list[list[Array]]:
        path = Path(inspect.getsourcefile(target) or "")
        source = inspect.getsource(inspect.getmodule(target) or target)
        api = api or ("nki_legacy" if "neuronxcc" in source else "nki")
        arrays = [
            {name: array for name, value in one.items() if (array := as_array(value)) is not None} for one in ranks
        ]
        values, first = ranks[0], arrays[0]
        entry: str = target.__name__
        specs = {name: TensorSpec(array.shape, _dtype(array)) for name, array in first.items()}
        plain = all(name in first or _plain(value) for name, value in values.items())
        if plain and entry == target.__qualname__:
            arguments: dict[str, Any] = {name: specs.get(name, value) for name, value in values.items()}
        else:
            source, arguments = driver(target, values, specs, api), dict(specs)
            path, entry = path.with_name("acceld_driver.py"), "kernel"
        chip = chip or self.chips[api]
        cores = grid[0] if api == "nki" and grid else self.cores  # kernel[2] asks for two cores
        try:
            program = trace(
                source, arguments, filename=str(path), entry=entry, grid=grid, lnc=cores, api=api, chip=chip,
                options=TraceOptions(source_root=self.root, deadline_s=self.deadline_s),
            )  # fmt: skip
        except UnsupportedCall as failure:
            raise Stopped(State.REFUSED, failure.message) from failure
        except KernelFailure as failure:
            raise Stopped(State.UNTRACED, f"line {failure.line}: {failure.message} [{failure.rule}]") from failure
        for finding in verify(program):
            raise Stopped(State.ILLEGAL, f"line {finding.line}: {finding.message} [{finding.rule}]")
        inputs = [[one[name] for name in first] for one in arrays]
        try:
            results = execute_ranks(program, inputs) if len(inputs) > 1 else [execute(program, inputs[0])]
        except KernelFailure as failure:
            raise Stopped(State.FAILED, f"line {failure.line}: {failure.message} [{failure.rule}]") from failure
        self.ran += 1
        return [list(one) for one in results]


def _values(target: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call by name."""
    bound = inspect.signature(target).bind(*args, **kwargs)
    values: dict[str, object] = {}
    for name, value in bound.arguments.items():
        values |= value if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return values


class HostKernel:
    """Stand-in for a kernel function in a test. Called with arrays, it returns arrays."""

    def __init__(self, host: Host, function: Callable[..., Any], grid: tuple[int, ...] = ()) -> None:
        self.host, self.function, self.grid = host, function, grid
        functools.update_wrapper(self, function)

    def __getitem__(self, grid: object) -> HostKernel:
        sizes = grid if isinstance(grid, tuple) else (grid,)
        return HostKernel(self.host, self.function, tuple(int(size) for size in sizes))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        results = self.host.run(self.function, args, kwargs, self.grid)
        if any(type(value).__module__ == "torch" for value in (*args, *kwargs.values())):
            results = [_as_tensor(result) for result in results]
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def benchmark_result(self) -> MagicMock:
        """Return a stand-in for measurements on a chip, in which every latency is 0."""
        result = MagicMock()
        result.nc_latency.get_latency_percentile.return_value = 0.0
        return result


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that gives the stand-ins for Neuron's packages."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.made: dict[str, ModuleType] = {}
        for api in API_CHIPS:
            if api in self.host.chips:
                session = Session(
                    "host.py", api, self.host.chips[api], (), 1, TraceOptions(), "kernel", time.monotonic()
                )
                for name, module in _front_end(api, session).modules().items():
                    self.made[name] = _stand_in(name, module, host)
                    if name == "nki.language":
                        self.made["nki.dtype"] = self.made["neuron_dtypes"] = _stand_in("nki.dtype", module, host)
        for name, module in self.made.items():
            parent, _, leaf = name.rpartition(".")
            if parent in self.made:
                setattr(self.made[parent], leaf, module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        stub = any(fullname == one or fullname.startswith(f"{one}.") for one in self.host.stubs)
        if fullname not in self.made and top not in APIS and not stub:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.made.setdefault(spec.name, _anything(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is complete already."""


def _stand_in(name: str, module: ModuleType, host: Host) -> ModuleType:
    made = _anything(name)
    public = {k: v for k, v in vars(module).items() if not k.startswith("_") and not isinstance(v, ModuleType)}
    made.__dict__.update({k: ApiName(name, k) if inspect.isroutine(v) else v for k, v in public.items()})
    if name in ("nki", "neuronxcc.nki"):
        made.__dict__.update({key: functools.partial(_decorate, host) for key in LAUNCHERS})
    return made


@dataclass(frozen=True, slots=True)
class ApiName:
    """Stand-in for a function of the API that code outside of a kernel names, and never calls."""

    module: str
    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> MagicMock:
        return MagicMock(name=self.name)


def _decorate(host: Host, function: Any = None, *args: Any, **kwargs: Any) -> Any:
    if function is None:
        return functools.partial(_decorate, host)
    kernel = function if isinstance(function, HostKernel) else HostKernel(host, function)
    return kernel(*args) if args else kernel


def _anything(name: str) -> ModuleType:
    made = ModuleType(name)
    made.__path__ = []
    made.__getattr__ = lambda key: _missing(name, key)  # type: ignore[method-assign]
    return made


def _missing(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "xla_model":
        return importlib.import_module(f"{module}.{name}")
    if name == "xla_device":
        return lambda: "cpu"
    if name == "static_cast":
        return lambda array, dtype: np.asarray(array).astype(_numpy_dtype(dtype))
    if name == "sizeinbytes":
        return lambda kind: _numpy_dtype(kind).itemsize
    if name == "finfo":
        return lambda kind: ml_dtypes.finfo(_numpy_dtype(kind))  # type: ignore[no-untyped-call]
    if name[:1].isupper():
        return type(name, (), {})
    return MagicMock(name=f"{module}.{name}")


def _numpy_dtype(kind: object) -> np.dtype[Any]:
    name = str(getattr(kind, "name", None) or getattr(kind, "__name__", kind))
    narrow: Any = getattr(ml_dtypes, name, None)
    return np.dtype(name if narrow is None else narrow)


def as_array(value: object) -> Array | None:
    """Return an array or a torch tensor as a numpy array; None for any other value."""
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__ != "torch" or not hasattr(value, "numpy"):
        return None
    tensor: Any = value.detach().cpu().contiguous()  # type: ignore[attr-defined]
    name = str(tensor.dtype).removeprefix("torch.")
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import torch

        narrow = torch.int16 if name == "bfloat16" else torch.int8
        raw: Array = np.asarray(tensor.view(narrow).numpy())
        return np.asarray(raw.view(getattr(ml_dtypes, name)))
    return np.asarray(tensor.numpy())


def _as_tensor(array: Array) -> Any:
    import torch

    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        narrow = np.int16 if array.dtype.itemsize == 2 else np.int8
        return torch.from_numpy(np.array(array).view(narrow)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(np.array(array))


def _dtype(array: Array) -> str:
    return {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype.name)


def _plain(value: object) -> bool:
    return value is None or type(value) in (int, float, bool, str)


def driver(target: Any, values: Mapping[str, object], specs: Mapping[str, TensorSpec], api: str) -> str:
    """Return the text of a file with a function ``kernel`` that takes only arrays, and calls ``target`` with
    them and with all other arguments written as literals.
    """
    if "<locals>" in target.__qualname__:
        raise Stopped(State.UNTRIED, "a function inside of a function")
    imported: dict[str, str] = {}
    written = [f"{name}={name if name in specs else literal(value, imported, specs)}" for name, value in values.items()]
    called = f"{_named(target.__module__, imported)}.{target.__qualname__}"
    package = "nki" if api == "nki" else "neuronxcc.nki"
    lines = ["import importlib", f"import {package} as nki", f"import {package}.language"]
    lines += [f"{short} = importlib.import_module({name!r})" for name, short in imported.items()]
    return "\n".join([*lines, f"def kernel({', '.join(specs)}):", f"    return {called}({', '.join(written)})", ""])


def literal(value: object, imported: dict[str, str], specs: Mapping[str, TensorSpec]) -> str:
    """Return the Python expression of a value that configures a kernel. Raise Stopped if the value has no such
    expression.
    """
    if _plain(value):
        return f"float('{value}')" if isinstance(value, float) else repr(value)
    if isinstance(value, ApiName):
        return f"{_named(value.module, imported)}.{value.name}"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Enum):
        return f"{_class(value, imported)}.{value.name}"
    if isinstance(value, list | tuple):
        inside = [literal(one, imported, specs) for one in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{_class(value, imported)}({', '.join(inside)})"
        return f"[{', '.join(inside)}]" if isinstance(value, list) else f"({''.join(f'{one}, ' for one in inside)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k, imported, specs)}: {literal(v, imported, specs)}' for k, v in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type):
        given = [
            f"{one.name}={literal(getattr(value, one.name), imported, specs)}" for one in fields(value) if one.init
        ]
        return f"{_class(value, imported)}({', '.join(given)})"
    if isinstance(value, BufferKind):
        word = next(word for word in ("sbuf", "psum", "shared_hbm", "private_hbm", "hbm") if BUFFERS[word] == value)
        return f"nki.language.{word}"
    if isinstance(value, NKIObject):
        given = [f"{name}={literal(one, imported, specs)}" for name, one in vars(value).items()]
        return f"{_class(value, imported)}({', '.join(given)})"
    name = value.name if isinstance(value, np.dtype) else getattr(value, "__name__", getattr(value, "name", ""))
    if name in DTYPE_BYTES:
        return f"nki.language.{'bool_' if name == 'bool' else name}"
    raise Stopped(State.UNTRIED, f"an argument of type {type(value).__name__} can not be passed on")


def _named(module: str, imported: dict[str, str]) -> str:
    """Return a short name for an imported module. Some packages have a function of the same name as a module."""
    return imported.setdefault(module, f"_module{len(imported)}")


def _class(value: object, imported: dict[str, str]) -> str:
    return f"{_named(type(value).__module__, imported)}.{type(value).__qualname__}"


__all__ = ["Host", "HostKernel", "Stopped", "as_array", "driver", "literal"]
