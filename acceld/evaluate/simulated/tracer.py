"""Run a candidate's Python once, from shapes, in the tracer's child process, and answer with an encoded
Program.

The child holds no data, no seed and no reference. It shares its process with hostile code, so its answer is not
trusted. The daemon limits the answer's size, and the judge decodes and verifies the Program again.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import secrets
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from acceld.errors import UsageError
from acceld.evaluate.policy import PERMITTED
from acceld.evaluate.sandbox.messages import failure_record, send
from acceld.nki.errors import KernelCrash, KernelFailure
from acceld.nki.frontend import tracing
from acceld.nki.frontend.session import SAMPLE_AFTER, TraceOptions
from acceld.nki.frontend.tracing import Argument, TensorSpec, trace
from acceld.nki.ir.codec import encode

_MAKES_CODE = frozenset({"exec", "compile", "code.__new__", "function.__new__"})
_COLLECTED = 100_000
"""Number of new objects after which garbage is collected. The number is high because a trace keeps nearly all objects
to its end.
"""
_IN_FULL = 100_000
"""Number of instructions up to which the second trace runs every iteration of a loop."""
_ROOT = Path("/closure")
"""The folder in which a kernel's own modules seem to be. No such folder exists."""


def run(request: bytes, reply: int) -> None:
    """Trace the kernel of a request.

    The answer is a failure, or ``{}`` followed by the Program (with ``observe``, by observations of
    expressions).
    """
    raw = json.loads(request)
    gc.set_threshold(_COLLECTED)
    taken = _shift_addresses() if raw["guarded"] else []
    broken = _watch()
    try:
        program = _observed(raw) if raw.get("observe") else encode(_trace(raw))
        if broken:
            raise KernelCrash(broken[0], rule="audit")
    except KernelFailure as error:
        send(reply, failure_record(error))
    except UsageError as error:
        # The file has no entry, or other arguments than the workload's: the kernel is at fault.
        send(reply, failure_record(KernelCrash(error.message, rule="entry", hint=error.hint)))
    # evaluated code may raise anything, and its leftovers may raise later
    except BaseException as error:  # noqa: BLE001  # evaluated code may raise anything
        send(reply, failure_record(KernelCrash(f"{type(error).__name__}: {error}"[:2000], rule="exception")))
    else:
        send(reply, {}, program)
    taken.clear()


def _shift_addresses() -> list[bytearray]:
    """Return memory blocks of all small sizes, a random number of each size.

    While the blocks exist, a kernel's objects have other addresses than in another trace, so a kernel can not use an
    address to tell traces apart.
    """
    return [bytearray(size) for size in range(16, 512, 16) for _ in range(secrets.randbelow(64))]


def _observed(raw: dict[str, Any]) -> bytes:
    """Return kind, shape, dtype and memory of each expression in a legacy kernel's source, as JSON."""
    from acceld.nki.port.facts import observe

    facts = _trace(raw, lambda source, arguments, *, api, **kwargs: observe(source, arguments, **kwargs))
    return json.dumps(facts.encode()).encode()


def _watch() -> list[str]:
    """Forbid code that the kernel makes from text or code objects. Return a list to which each attempt is
    added.

    The evaluated program must follow from the source alone. Two callers are excepted: the standard library,
    which makes code for data classes and named tuples, and the front end, which runs the kernel itself and its
    modules. ``typing`` compiles the annotations of a named tuple, but does not run them.
    """
    trusted = {sys._getframe().f_code.co_filename, tracing.__file__, dataclasses.__file__, collections.__file__}
    trusted |= {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", ast.__file__}
    broken: list[str] = []
    frame_of = sys._getframe

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _MAKES_CODE:
            return
        maker = frame_of(1).f_code.co_filename
        if maker not in trusted and (event, maker) != ("compile", typing.__file__):
            broken.append(f"the kernel creates code while it is traced ({event})")
            raise KernelCrash(
                broken[0], rule="audit", line=frame_of(1).f_lineno, hint="write the code out in the kernel's source"
            )

    sys.addaudithook(hook)
    return broken


def _trace(raw: dict[str, Any], traced: Callable[..., Any] = trace) -> Any:
    """Trace the kernel of a request with the function ``traced``, and return what that function returns."""
    if raw["closure"]:
        sys.meta_path.insert(0, _Closure(raw["closure"]))
    options = TraceOptions(
        max_instructions=raw["max_instructions"],
        deadline_s=raw["deadline_s"],
        strict_block_dims=raw["strict_legality"],
        source_root=_ROOT if raw["closure"] else None,
        permitted=PERMITTED if raw["guarded"] else None,
        nki=raw["nki"],
        sample_after=_IN_FULL if raw["guarded"] else SAMPLE_AFTER,
        sample_closely=raw["guarded"],
    )
    return traced(
        raw["source"],
        [_argument(one) for one in raw["arguments"]],
        filename=str(_ROOT / raw["filename"]) if raw["closure"] else raw["filename"],
        entry=raw["entry"] or None,
        grid=tuple(raw["grid"]),
        lnc=raw["lnc"],
        api=raw["api"],
        chip=raw["chip"],
        options=options,
    )


def _argument(one: dict[str, Any]) -> Argument:
    """Return one argument of a request as an Argument: a tensor's shape and dtype, or a value."""
    if "value" in one:
        value: Argument = one["value"]
        return value
    return TensorSpec(tuple(one["shape"]), one["dtype"])


class _Closure(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An importer of the modules that came with a user's kernel. Their texts are in memory, because the jail
    has no files.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        # The files seem to be below the source root, so that the tracer treats them as the kernel's own.
        self._modules: dict[str, tuple[str, str, bool]] = {}
        for name, text in files.items():
            path = PurePosixPath(name)
            package = path.stem == "__init__"
            parts = path.parent.parts if package else (*path.parent.parts, path.stem)
            self._modules[".".join(parts)] = (str(_ROOT / name), text, package)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = self._modules.get(fullname)
        if found is None:
            prefix = fullname + "."
            if not any(name.startswith(prefix) for name in self._modules):
                return None
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return importlib.machinery.ModuleSpec(fullname, self, origin=found[0], is_package=found[2])

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the text of a module. A folder without ``__init__.py`` has no text, so nothing runs for it."""
        found = self._modules.get(module.__name__)
        if found is not None:
            exec(compile(found[1], found[0], "exec"), module.__dict__)  # noqa: S102  # this is what the jail is for
