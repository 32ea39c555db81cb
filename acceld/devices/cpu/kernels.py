"""Build and call kernels for the host's processor. This runs in jailed child processes; see
:mod:`acceld.evaluate.hosted.driver`.
"""

from __future__ import annotations

import ast
import ctypes
import gc
import importlib
import re
import subprocess
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from acceld.devices.cpu.objects import complaint, misdirected, static_bytes
from acceld.devices.cpu.signature import ENTRY, converted, prototype
from acceld.evaluate.hosted.driver import STATIC_BYTES, BuildRefused, Built, Call, Job
from acceld.evaluate.sandbox import linux
from acceld.parsing import parse

IMPORTABLE = (
    "math functools itertools operator typing dataclasses enum collections.abc numbers ml_dtypes numpy.fft "
    "numpy.lib.stride_tricks numpy.linalg numpy.ma numpy.polynomial"
).split()
"""Modules that a numpy kernel may import besides numpy. acceld imports them before the jail closes, when files
can be read.
"""
for _name in IMPORTABLE:
    importlib.import_module(_name)

_MESSAGE = re.compile(r"^kernel\.c:(\d+):(?:\d+:)? (fatal error|error): (.*)$", re.MULTILINE)
_LINKER = re.compile(r"(undefined reference to .*|undefined symbol:? .*|required symbol .*)")
_VECTORIZED = re.compile(r"^kernel\.c:(\d+):\d+: optimized: (.*)$", re.MULTILINE)
_MOST_BYTES = 16 << 20
_MOST_LOG = 4000
_ALLOCATORS = "malloc calloc realloc aligned_alloc posix_memalign free".split()
_LIVE = "acceld_live_blocks"
_COUNTED = """
#include <stddef.h>
void *__real_malloc(size_t), *__real_calloc(size_t, size_t), *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
void __real_free(void *);
int __real_posix_memalign(void **, size_t, size_t);
long acceld_live_blocks;
static void *counted(void *made) { acceld_live_blocks += made != NULL; return made; }
void *__wrap_malloc(size_t size) { return counted(__real_malloc(size)); }
void *__wrap_calloc(size_t count, size_t size) { return counted(__real_calloc(count, size)); }
void *__wrap_aligned_alloc(size_t to, size_t size) { return counted(__real_aligned_alloc(to, size)); }
int __wrap_posix_memalign(void **place, size_t to, size_t size) {
    int failed = __real_posix_memalign(place, to, size);
    acceld_live_blocks += !failed;
    return failed;
}
void __wrap_free(void *block) { acceld_live_blocks -= block != NULL; __real_free(block); }
void *__wrap_realloc(void *block, size_t size) {
    void *made = __real_realloc(block, size);
    if (block == NULL) return counted(made);
    acceld_live_blocks -= made == NULL && size == 0;
    return made;
}
"""
"""C functions that replace the C library's allocators for a kernel and count the blocks that it does not free."""
_GROWING_CALLS = 6
"""Number of calls after each of which a numpy kernel must hold more memory than before, to be refused because its
memory grows.
"""
_MOST_OBJECTS = 50_000
_CONTAINERS = (list, dict, set, deque, bytearray)


def build(job: Job) -> Built:
    """Return what a worker loads: the shared object of a C kernel, or the text of a numpy kernel that defines the
    kernel's function.
    """
    return _build_c(job) if job["api"] == "c" else _build_numpy(job)


def prepare(job: Job, artefact: str) -> Call:
    """Return a function that calls the built kernel with arrays."""
    return _prepare_c(job, artefact) if job["api"] == "c" else _prepare_numpy(job, artefact)


def _build_c(job: Job) -> Built:
    scratch, settings = Path(job["scratch"]), job["settings"]
    entry = job["entry"] or ENTRY
    (scratch / "kernel.c").write_text(job["text"], encoding="utf-8")
    declared = prototype(job["arguments"], job["outputs"], entry)
    (scratch / "counted.c").write_text(_COUNTED, encoding="utf-8")
    (scratch / "prototype.h").write_text(f"#include <stdint.h>\n{declared}\n", encoding="utf-8")
    environment = {"PATH": settings["path"], "LC_ALL": "C", "TMPDIR": str(scratch)}
    said = ""
    for words in (
        ["-include", "prototype.h", "-save-temps", "-c", "kernel.c", "-o", "kernel.o"],
        [
            "kernel.o",
            "counted.c",
            "-fno-builtin",
            "-o",
            "kernel.so",
            f"-Wl,--require-defined={entry}",
            *(f"-Wl,--wrap={name}" for name in _ALLOCATORS),
            "-lm",
        ],
    ):
        command = [settings["compiler"], *settings["flags"], *words]
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, check=False)
        said += done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise _complaint(said, declared)
        look = complaint if words[-1] == "kernel.o" else misdirected
        rule, message = look(scratch / words[words.index("-o") + 1], settings["path"])
        if rule:
            raise BuildRefused(message, rule=rule)
    artefact = (scratch / "kernel.so").read_bytes()
    if len(artefact) > _MOST_BYTES:
        raise BuildRefused(
            f"the compiled kernel has {len(artefact)} bytes, and {_MOST_BYTES} are allowed",
            rule="size",
            hint="Unroll less.",
        )
    kept = static_bytes(scratch / "kernel.o")
    vectorized = [f"line {line}: {what}" for line, what in _VECTORIZED.findall(said)]
    return Built(artefact, "\n".join(vectorized)[:_MOST_LOG], {STATIC_BYTES: float(kept)} if kept else {})


def _complaint(said: str, declared: str) -> BuildRefused:
    """Return a BuildRefused with the first error message of the compiler or the linker.

    If the message names a line of the kernel, the BuildRefused has that line.
    """
    found = _MESSAGE.search(said)
    if found:
        text = found.group(3)
        hint = (
            f"the kernel must define {declared}" if "conflicting types" in text or "static declaration" in text else ""
        )
        return BuildRefused(text, line=int(found.group(1)), hint=hint)
    linker = _LINKER.search(said)
    if linker:
        return BuildRefused(linker.group(1), rule="link", hint=f"Define {declared}.")
    lines = [line for line in said.splitlines() if line.strip()]
    return BuildRefused(lines[-1] if lines else "the compiler failed without a message")


def _build_numpy(job: Job) -> Built:
    text, entry = job["text"], job["entry"] or ENTRY
    try:
        tree = parse(text, job["filename"])
    except SyntaxError as error:
        raise BuildRefused(f"SyntaxError: {error.msg}", rule="syntax", line=error.lineno or 0) from error
    except (ValueError, RecursionError) as error:
        raise BuildRefused(
            f"the source can not be parsed: {error}", rule="syntax", hint="write plain Python of this version"
        ) from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == entry for node in tree.body):
        raise BuildRefused(f"there is no function {entry}", rule="entry", hint=f"Define {entry}({_names(job)}).")
    return Built(text.encode())


def _names(job: Job) -> str:
    return ", ".join(one["name"] for one in job["arguments"])


def _prepare_c(job: Job, artefact: str) -> Call:
    bound: dict[int, list[Any]] = {}
    library = ctypes.CDLL(artefact)
    function, live = getattr(library, job["entry"] or ENTRY), ctypes.c_long.in_dll(library, _LIVE)
    function.restype = None

    def call(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        # The arrays of all calls lie in at most two places, so pointers are made once for each place.
        pointers = bound.get(id(outputs))
        if pointers is None:
            first = not bound
            pointers = bound[id(outputs)] = [_passed(one) for one in (*inputs, *outputs)]
            if first:
                # forbidden just before the kernel runs: Python reads this counter, which serves as a clock, to take a lock
                linux.forbid_counter()
        function(*pointers)
        if live.value:
            raise LeftBehind(
                "kept_memory",
                f"the kernel returns without freeing {live.value} of the blocks that it allocated: free each of them",
            )

    return call


def _passed(value: Any) -> Any:
    return ctypes.c_void_p(value.__array_interface__["data"][0]) if isinstance(value, np.ndarray) else converted(value)


class LeftBehind(Exception):
    """Raised if a kernel leaves something behind when it returns, such as memory or changed settings. ``rule`` names
    the kind of thing.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class WrongOutput(Exception):
    """Raised if a numpy kernel's result does not fit the workload's outputs. ``rule`` names the kind of difference."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def _prepare_numpy(job: Job, artefact: str) -> Call:
    text = Path(artefact).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": _NAME}
    watch = _Watch(namespace) if job.get("checked") else None
    exec(compile(text, job["filename"], "exec"), namespace)  # noqa: S102  # this is what the jail is for
    function, wanted = namespace[job["entry"] or ENTRY], job["outputs"]

    def call(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        returned = function(*inputs)
        results = returned if type(returned) is tuple else (returned,)
        if len(results) != len(outputs):
            raise WrongOutput("output_count", f"the kernel returns {len(results)} arrays instead of {len(outputs)}")
        for result, output, described in zip(results, outputs, wanted, strict=True):
            _check(result, output, described)
            np.copyto(output, result)
        owners = _owners(inputs, results)
        del returned, results, result
        _check_released(owners)
        if watch is not None:
            watch.after_call()

    return call


_NAME = "kernel"
"""The name of the module that a numpy kernel's file becomes."""


class _Watch:
    """Check after each call that a numpy kernel leaves nothing behind: numpy's settings are as before, and the memory
    that the kernel holds does not grow.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._settings = _numpy_settings()
        self._sizes: list[int] = []

    def after_call(self) -> None:
        """Check the state after a call. Raise LeftBehind if the kernel left something."""
        if _numpy_settings() != self._settings:
            message = "the kernel leaves numpy's settings changed (errors, buffer size, printing): use np.errstate"
            raise LeftBehind("kept_settings", message)
        self._sizes.append(_held_bytes(self._namespace))
        last = self._sizes[-_GROWING_CALLS - 1 :]
        if len(last) > _GROWING_CALLS and all(one < other for one, other in pairwise(last)):
            message = "what the kernel holds in variables grows with every call: keep nothing of a call"
            raise LeftBehind("kept_memory", message)


def _owners(inputs: Sequence[Any], results: Sequence[np.ndarray[Any, Any]]) -> list[weakref.ref[Any]]:
    """Return weak references to the arrays that own the memory of the results, except results in the memory of an
    input.

    Raise LeftBehind for a result in the memory of another kind of object, because it can not be found out who holds
    that object.
    """
    arrays = [one for one in inputs if isinstance(one, np.ndarray)]
    found: list[weakref.ref[Any]] = []
    for result in results:
        if not any(np.may_share_memory(result, array) for array in arrays):
            while isinstance(result.base, np.ndarray):
                result = result.base
            if result.base is not None:
                raise LeftBehind("kept_result", "a result lies in memory that no array owns: return a new array")
            found.append(weakref.ref(result))
    return found


def _check_released(owners: Sequence[weakref.ref[Any]]) -> None:
    """Raise LeftBehind if the kernel still holds the memory of a result that its caller has dropped."""
    if any(owner() is not None for owner in owners):
        gc.collect()  # collect garbage first, because a cycle of objects may hold the memory until then
        if any(owner() is not None for owner in owners):
            message = "the kernel keeps the memory of its result, so a later call may overwrite it: return a new array"
            raise LeftBehind("kept_result", message)


def _numpy_settings() -> tuple[Any, ...]:
    return np.geterr(), np.geterrcall(), np.getbufsize(), np.get_printoptions()


def _held_bytes(namespace: dict[str, Any]) -> int:
    """Return the bytes of all objects that a kernel's file holds in variables; 0 if there are too many objects to
    count.
    """
    seen: dict[int, Any] = {}
    waiting: list[Any] = [value for name, value in namespace.items() if name != "__builtins__"]
    total = 0
    while waiting:
        value = waiting.pop()
        library = callable(value) and getattr(value, "__module__", None) != _NAME
        if id(value) in seen or library or isinstance(value, ModuleType):
            continue
        seen[id(value)] = value
        if len(seen) > _MOST_OBJECTS:
            return 0
        total += value.nbytes if isinstance(value, np.ndarray) else value.__sizeof__()
        # only the elements count, because containers reserve room for further elements
        total += len(value) if isinstance(value, _CONTAINERS) else 0
        waiting += gc.get_referents(value)
    return total


def _check(result: Any, output: Any, described: Mapping[str, Any]) -> None:
    if type(result) is not np.ndarray:
        raise WrongOutput("output_type", f"output {described['name']} is {type(result).__name__}, not a numpy array")
    if result.shape != output.shape:
        message = f"output {described['name']} has shape {result.shape}, expected {output.shape}"
        raise WrongOutput("output_shape", message)
    if result.dtype != output.dtype:
        message = f"output {described['name']} is {result.dtype.name}, expected {described['dtype']}"
        raise WrongOutput("output_dtype", message)
