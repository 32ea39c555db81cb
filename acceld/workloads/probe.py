"""Call a person's reference in a process of its own, and print its arguments and outputs.

``python -m acceld.workloads.probe REF.py ARGUMENTS SHOWN`` answers with one line of JSON. ``ARGUMENTS`` is a JSON list of
the arguments that a person described, each with ``shape``, ``dtype`` and ``value``. ``SHOWN`` is the file as that person
wrote it. A reference that no kernel can be checked
against is answered with ``refused``: the line, the fault and the remedy.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import io
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from acceld.errors import WorkloadError
from acceld.parsing import parse
from acceld.workloads.oracle import as_list, outputs_of

Json = dict[str, Any]
_ALIKE = 1e-5
"""Greatest relative difference of two calls that count as equal."""
_DRAWING = frozenset({"random", "default_rng", "rng", "time", "uuid", "urandom", "secrets"})
"""Names in a line that may make a reference's outputs differ from call to call."""
REMEDY_OF_CHANCE = "Draw random numbers in get_inputs, and give them to forward as an argument."
"""Remedy for a reference that gives other outputs for equal inputs."""
_MOST_SHOWN = 60
"""Most characters of a text that the answer repeats."""


class _RefusedError(Exception):
    """A fault of a reference, with its line (0 if unknown) and the remedy."""

    def __init__(self, line: int, fault: str, remedy: str) -> None:
        super().__init__(fault)
        self.line, self.fault, self.remedy = line, fault, remedy


def answer(path: Path, given: Sequence[Json], shown: str) -> Json:
    """Return the facts of the reference in ``path``: its arguments, its outputs, and what its author may not expect.

    Messages call the file ``shown``.
    """
    module = _module(path, shown)
    names = _names(module.forward)
    drawn = not callable(getattr(module, "get_inputs", None))
    inputs = _inputs(path, module, names, given)
    before = list(map(_digest, inputs))
    outputs = _outputs(module.forward(*inputs))
    changed = [place for place, value in enumerate(inputs) if _digest(value) != before[place]]
    if changed:
        name = names[changed[0]] if changed[0] < len(names) else f"arg{changed[0]}"
        _refuse_changed(path, module.forward, name, _inputs(path, module, names, given))
    _refuse_unlike(path, outputs, _outputs(module.forward(*inputs)))
    to_kernel = getattr(module, "transform_to_nki_inputs", None)
    wide = _widened(module.forward, inputs)
    return {
        "names": names,
        "narrow": [place for place, value in enumerate(wide) if _kind(value) in ("float32", "float16", "bfloat16")],
        "noise": _noise(outputs, wide),
        "inputs": [_facts(value) for value in inputs],
        "kernel": [_facts(value) for value in (list(to_kernel(inputs)) if to_kernel else inputs)],
        "outputs": [_facts(np.asarray(value)) | {"type": type(value).__name__} for value in outputs],
        "drawn": drawn,
        "unread": _unread(path, module.forward),
        "draws": "" if drawn else _draws(module.get_inputs),
    }


def _module(path: Path, shown: str) -> ModuleType:
    """Return the reference's module. Raise _RefusedError if it can not be loaded, or has no ``forward``."""
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        torch = str(error.name).partition(".")[0] == "torch"
        raise _RefusedError(
            _line(path, error),
            f"{error.name} is not installed here, and the reference imports it",
            "a reference needs numpy alone; a PyTorch module goes to acceld init --module FILE.py:CLASS"
            if torch
            else f"install {error.name}, or write the formula with numpy alone",
        ) from error
    except Exception as error:  # the file is a person's: it may raise anything
        fault = f"the reference can not be loaded: {type(error).__name__}: {error}"
        raise _RefusedError(_line(path, error), fault, "mend that line of the reference") from error
    if callable(getattr(module, "forward", None)):
        return module
    own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == "reference" and n[0] != "_"]
    asked = (
        f"add the line: forward = {own[0]}"
        if len(own) == 1
        else "name it forward" + (f"; the file defines {', '.join(own)}" if own else "")
    )
    classes = [n for n, c in vars(module).items() if isinstance(c, type) and callable(getattr(c, "forward", None))]
    module_too = f"a PyTorch module goes to acceld init --module {shown}:{classes[-1]}" if classes else asked
    raise _RefusedError(0, "the reference has no function forward at its top level", module_too)


def _names(forward: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that are given by position."""
    try:
        found = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # some callables have no signature
        return []
    return [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _inputs(path: Path, module: ModuleType, names: Sequence[str], given: Sequence[Json]) -> list[Any]:
    """Return the arguments of the first call: those of ``get_inputs``, or else random ones as described."""
    np.random.seed(0)
    if callable(getattr(module, "get_inputs", None)):
        inputs = as_list(path, module.get_inputs(), names)
        if len(inputs) != sum(one["value"] is None for one in given):
            return inputs
        arrays = iter(inputs)
        return [next(arrays) if one["value"] is None else one["value"] for one in given]
    if given:
        return [_drawn(one) for one in given]
    raise _RefusedError(0, "there is no function 'get_inputs', and no --arg says what forward is called with", "")


def _drawn(one: Json) -> Any:
    if one["value"] is not None:
        return one["value"]
    if one["dtype"] == "bfloat16":
        import ml_dtypes  # noqa: F401  -- numpy then knows the name
    return np.asarray(np.random.standard_normal(one["shape"])).astype(one["dtype"])


def _outputs(result: Any) -> list[Any]:
    try:
        return outputs_of(result)
    except TypeError as error:
        raise _RefusedError(0, f"forward returned {error}", "Return an array, or a tuple of arrays.") from error


def _refuse_changed(path: Path, forward: Callable[..., Any], name: str, inputs: Sequence[Any]) -> None:
    """Raise _RefusedError because ``forward`` changes its argument ``name``. The error has the line that changes it."""
    line = 0
    for value in inputs:
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    try:
        forward(*inputs)
    except Exception as error:  # noqa: BLE001 -- a person's code may raise anything when an array is read-only
        line = _line(path, error)
    raise _RefusedError(
        line,
        f"forward changes its argument {name}",
        remedy_of_change(name),
    )


def remedy_of_change(name: str) -> str:
    """Return what to do about a reference that changes its argument ``name``."""
    return f"Begin forward with {name} = {name}.copy(). If a kernel is to write into {name}, return the new {name} from forward as an output."


def _refuse_unlike(path: Path, first: Sequence[Any], second: Sequence[Any]) -> None:
    """Raise _RefusedError, with the line where it is known, if two calls on equal arrays gave different outputs."""
    if len(first) == len(second) and all(map(_alike, first, second)):
        return
    line = drawing_line(path)
    raise _RefusedError(
        line,
        "forward gives other outputs for equal inputs",
        REMEDY_OF_CHANCE
        if line
        else "Let the outputs follow from the arguments alone: keep nothing from one call to the next.",
    )


def _alike(one: Any, other: Any) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape or first.dtype.kind in "OSU":
        return first.shape == second.shape
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    before, after = first.astype(wide), second.astype(wide)
    finite = np.abs(before[np.isfinite(before)])
    usual = float(np.median(finite)) if finite.size else 0.0  # the greatest value may stand for infinity
    return bool(np.allclose(before, after, rtol=_ALIKE, atol=_ALIKE * usual, equal_nan=True))


def drawing_line(path: Path) -> int:
    """Return the first line outside of ``get_inputs`` that may draw random numbers, lines of ``forward`` first; 0 if
    there is no such line.
    """
    tree = parse(path.read_text(encoding="utf-8-sig"))
    others = [one for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    own = [one for one in others if not (isinstance(one, ast.FunctionDef) and one.name == "get_inputs")]
    for statement in sorted(own, key=lambda one: getattr(one, "name", "") != "forward"):
        for node in ast.walk(statement):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in _DRAWING:
                return int(getattr(node, "lineno", 0))
    return 0


def _line(path: Path, error: BaseException) -> int:
    """Return the last line of the file that an exception passed through; 0 if it passed through no line of the file."""
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    return (lines[-1] or 0) if lines else 0


def _unread(path: Path, forward: Callable[..., Any]) -> list[str]:
    """Return the parameters of ``forward`` that its code never reads."""
    name = getattr(forward, "__name__", "")
    tree = parse(path.read_text(encoding="utf-8-sig"))
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
    if not found or any(isinstance(one, ast.Name) and one.id in ("locals", "eval") for one in ast.walk(found[-1])):
        return []
    read = {
        one.id
        for part in found[-1].body
        for one in ast.walk(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    }
    changed = {
        one.target.id
        for one in ast.walk(found[-1])
        if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
    }
    return [one for one in _names(forward) if one not in read | changed]


def _draws(get_inputs: Callable[[], Any]) -> str:
    """Return the fault in how ``get_inputs`` draws its arrays; "" if there is no fault.

    ``alike`` means that every call returns the same arrays. ``unseeded`` means that calls return other arrays
    although numpy's generator has the same seed.
    """

    def drawn(seed: int) -> list[bytes]:
        np.random.seed(seed)
        made = get_inputs()
        values = list(made.values()) if isinstance(made, Mapping) else [made] if hasattr(made, "dtype") else list(made)
        return [_digest(value) for value in values if np.size(value) > 1]

    first = drawn(1)
    return "unseeded" if drawn(1) != first else "alike" if first and drawn(2) == first else ""


def _digest(value: Any) -> bytes:
    """Return a hash of an array's elements; b"" for a number."""
    if not isinstance(value, np.ndarray):
        return b""
    return hashlib.blake2b(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data).digest()


def _facts(value: Any) -> Json:
    """Return what a draft has to know of a number or an array. An array with at most two distinct values has
    ``values``.
    """
    if np.ndim(value) == 0 and not isinstance(value, np.ndarray):
        return {"value": float(value) if isinstance(value, float | np.floating) else int(value)}
    array = np.asarray(value)
    flat = array.reshape(-1)
    found: Json = {"shape": list(np.shape(value)), "dtype": array.dtype.name}
    if array.dtype.kind in "OSUc":
        return found
    if flat.size > 2 and all(
        np.unique(part).size <= 2 for part in (flat[:64], flat)
    ):  # np.unique sorts, which takes long for a large array: look at 64 elements first
        found["values"] = [float(one) for one in np.unique(flat)]
    elif array.dtype.kind in "iu" and flat.size:
        found["range"] = [int(flat.min()), int(flat.max())]
    return found


def _kind(value: Any) -> str:
    return str(np.asarray(value).dtype.name)


def _widened(forward: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """Return the reference's outputs for the same inputs in float64. Return [] if the inputs have no float32, or if
    the reference refuses float64.
    """
    if not all(_kind(v) == "float32" for v in inputs if np.asarray(v).dtype.kind in "fV" and np.ndim(v)):
        return []
    given = [np.asarray(v, np.float64) if np.ndim(v) and _kind(v) == "float32" else v for v in inputs]
    try:
        return outputs_of(forward(*given))
    except Exception:  # noqa: BLE001 -- a reference may refuse float64 in any way, and then no output was computed from float64
        return []


def _noise(outputs: Sequence[Any], wide: Sequence[Any]) -> float:
    """Return the greatest relative L2 error of an output in float32 against the same output in float64."""
    errors = [0.0]
    for one, other in zip(outputs, wide, strict=False):
        if _kind(one) == "float32" and _kind(other) == "float64" and np.shape(one) == np.shape(other):
            found, right = np.asarray(one, np.float64), np.asarray(other)
            if np.isfinite(found).all() and np.isfinite(right).all() and right.any():
                errors.append(float(np.linalg.norm(found - right) / np.linalg.norm(right)))
    return max(errors)


def main() -> None:
    """Answer on the standard output. What the reference itself prints becomes a field of the answer."""
    sys.dont_write_bytecode = True  # do not write a __pycache__ to the user's folder
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            found = answer(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
    except _RefusedError as error:
        found = {"refused": {"line": error.line, "fault": error.fault, "remedy": error.remedy}}
    except WorkloadError as error:
        found = {"refused": {"line": 0, "fault": error.message.removeprefix(f"{sys.argv[1]}: "), "remedy": error.hint}}
    text = " ".join(printed.getvalue().split())
    found["printed"] = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …"
    print(json.dumps(found))  # noqa: T201  # the answer of this process


if __name__ == "__main__":
    main()
