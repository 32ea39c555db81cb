"""Use kernels of the history in programs: at run time with ``acceld.best``, or as one exported file.

No daemon is needed. acceld reads the database file, writes the kernel's text to the state folder and imports
it. AWS's own ``nki.jit`` then launches the kernel on the tensors of the caller (torch-xla, JAX).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acceld.errors import AcceldError, UsageError
from acceld.home import find_home, foreign
from acceld.origins import is_ours
from acceld.workloads import Workload, load_workload, workload

VERIFIER = "acceld verify"
"""Author of the notes that ``acceld check --all`` writes. Histories have this name, so it must not change."""
HOLDS, BROKEN = "verified: holds", "verified: no longer holds"
"""Beginnings of the notes that mark a kernel as still right and fast, or as broken."""
MARKER = "# ---- acceld: provenance, evidence and self-check of the kernel above ----"
MOST_CORES = 2
"""Number of physical cores of the largest logical core, on which a current kernel may be launched."""
PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")

_QUERY = """
SELECT c.id AS candidate, c.run, c.improved, c.tie_band, f.model, r.workload, r.workload_folder, s.api, s.entry, s.grid, s.lnc, t.text, f.chip, f.sdk, f.source,
  f.method, f.resolution_us, f.interval_percent, f.latency_us, r.baseline_latency_us, e.id AS evaluation, e.gate, e.rel_l2,
  e.tolerance, e.sandbox_level, e.program_sha256, e.created_at
FROM candidates c JOIN runs r ON r.id = c.run JOIN sources s ON s.sha256 = c.source
JOIN texts t ON t.sha256 = s.text_sha256 JOIN evaluations e ON e.id = c.evaluation
JOIN profiles f ON f.evaluation = e.id
WHERE r.workload = ? AND c.status = 'passed' AND e.gate = 'strict' AND f.latency_us IS NOT NULL
ORDER BY f.source = 'simulated', f.source = 'simulated' AND f.interval_percent IS NULL,
  f.model <> first_value(f.model) OVER (PARTITION BY f.source ORDER BY e.id DESC), f.latency_us, c.id
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A kernel of the history that passed the strict gate, with its measured or predicted figures."""

    run: int
    candidate: int
    workload: str
    workload_folder: str
    text: str
    api: str
    entry: str
    grid: tuple[int, ...]
    lnc: int
    """Number of physical cores that the kernel runs on."""
    chip: str
    sdk: str
    source: str
    method: str
    latency_us: float
    baseline_latency_us: float | None
    improved: bool
    """True if the kernel is faster than its run's baseline beyond a tie."""
    tie_band: float | None
    """Half width, in percent, inside which its speed-up is a tie; None if it is not known."""
    model: str
    """Version and calibration of the performance model; empty for a measured latency."""
    evaluation: int
    gate: str
    rel_l2: float | None
    tolerance: float | None
    interval_percent: float | None
    resolution_us: float
    sandbox_level: str
    program_sha256: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Best:
    """A kernel to call. If it is the caller's fallback, ``stored`` is None and ``why`` is the reason."""

    function: Callable[..., Any]
    stored: Stored | None
    why: str
    layouts: tuple[tuple[int, ...], ...] = ()
    """Shapes of a stored kernel's arrays. The caller's arrays have the same elements, in C order."""
    results: tuple[tuple[int, ...], ...] = ()
    """Shapes of the results for the caller."""

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel, and return its outputs. Arguments may be tensors of any framework that have
        ``shape`` and ``reshape``.
        """
        if self.stored is None:
            return self.function(*arguments)
        layouts = iter(self.layouts)
        given = [_shaped(a, next(layouts, tuple(a.shape))) if hasattr(a, "reshape") else a for a in arguments]
        found = self.function(*given)
        if isinstance(found, tuple | list):
            return tuple(_shaped(one, shape) for one, shape in zip(found, self.results, strict=True))
        return _shaped(found, self.results[0])


def best(
    name: str,
    *shapes: Sequence[int],
    chip: str | None = None,
    sdk: str | None = None,
    fallback: Callable[..., Any] | None = None,
    simulated: bool = False,
    home: str | os.PathLike[str] | None = None,
    trusted: bool = False,
) -> Best:
    """Return the fastest kernel of the history for a workload on this chip and SDK; ``fallback`` if there is no such
    kernel.

    ``shapes`` are the shapes of the arrays that the program will pass, in order: a workload with other shapes does not
    fit. ``chip`` and ``sdk`` (the version of neuronx-cc) are by default those of this machine. Kernels must have passed
    the strict gate and be measured; with ``simulated`` they may also be timed by the simulator. Kernels that ``acceld
    check --all`` found to be broken do not count. Raise UsageError if no kernel fits and there is no fallback.

    The kernel runs with your rights. So the history must be one that this user made on this machine or trusts (``acceld
    config trust --history``). ``trusted`` says that the caller vouches for it, for example after copying it to a
    server.
    """
    try:
        state = find_home(home).path
        if not trusted and state.is_dir() and not is_ours(state):
            raise foreign(state)
        found, reason = _chosen(name, shapes, chip or this_chip(), sdk or this_sdk(), simulated, home)
    except (AcceldError, sqlite3.Error) as error:
        found, reason = None, str(error)
    if found is None:
        if fallback is None:
            raise UsageError(
                f"there is no kernel of {name} to use: {reason}",
                hint="pass fallback=, or search first: acceld optimize",
            )
        return Best(fallback, None, reason)
    spec = _workload(found)
    layouts = tuple(a.kernel_shape or a.shape for a in spec.arguments if not a.is_scalar) if spec else ()
    results = tuple(one.shape for one in spec.outputs) if spec else ()
    return Best(_imported(found, state), found, reason, layouts, results)


def stored_kernels(name: str, home: str | os.PathLike[str] | None = None) -> list[Stored]:
    """Return a workload's kernels that passed the strict gate (:mod:`acceld.evaluate.correctness.gates`), without those
    that are marked as broken.

    Measured kernels come first, then simulated kernels with an interval, then the other simulated kernels. Each of
    these groups begins with the kernels that were timed by the performance model of the latest evaluation, the fastest
    first.
    """
    from acceld.store.connection import connect_reader
    from acceld.store.reads.records import load_candidates_by_id

    database = find_home(home).database
    if not database.exists():
        raise UsageError(f"there is no history in {database.parent} yet", hint="acceld optimize WORKLOAD begins one")
    with closing(connect_reader(database)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute(_QUERY, (name,))]
        marks = connection.execute("SELECT subject, text FROM notes WHERE by = ? ORDER BY id", (VERIFIER,))
        marked = {row["subject"]: row["text"] for row in marks}
        load_candidates_by_id(
            connection, [row["candidate"] for row in rows], details=False
        )  # raises if a stored text does not have its hash
    kept = [row for row in rows if not marked.get(f"c{row['candidate']}", "").startswith(BROKEN)]
    return [_stored(row) for row in kept]


def this_chip() -> str:
    """Return the chip of this machine, from NEURON_PLATFORM_TARGET_OVERRIDE or the type of the instance; empty
    if unknown.
    """
    override = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "")
    with contextlib.suppress(OSError):
        override = override or PRODUCT.read_text(encoding="ascii")
    names = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}
    known = re.match(r"trn[123]|gen[234]", override.strip())
    return names.get(known[0], known[0]) if known else ""


def this_sdk() -> str:
    """Return the version of neuronx-cc in this environment; empty if it is not installed."""
    try:
        return importlib.metadata.version("neuronx-cc")
    except importlib.metadata.PackageNotFoundError:
        return ""


def exported(found: Stored) -> str:
    """Return the text of one Python file with the kernel, its evidence, and a check of itself."""
    spec = _workload(found)
    reference = "" if spec is None or spec.reference is None else spec.reference.read_text(encoding="utf-8")
    facts = {key: value for key, value in asdict(found).items() if key not in ("text", "workload_folder")}
    facts["speedup"] = found.baseline_latency_us / found.latency_us if found.baseline_latency_us else None
    facts["kernel_sha256"] = _digest(found.text)
    return f"{found.text.rstrip()}\n\n\n{MARKER}\n" + _TAIL.format(
        facts=json.dumps(facts, indent=4, sort_keys=True), reference=reference, entry=found.entry
    )


_TAIL = '''
ACCELD_EVIDENCE = __import__("json").loads(r"""
{facts}
""")
ACCELD_REFERENCE = {reference!r}


def acceld_self_check(run=None):
    """Raise where the kernel's text is not the one that was evaluated, or a run of it is not right.

    ``run(kernel, *arrays)`` executes the kernel on numpy arrays, as your framework does it; without it only the text is checked.
    """
    import hashlib

    with open(__file__, encoding="utf-8") as file:
        text = file.read().partition("\\n\\n\\n# ---- acceld: provenance")[0] + "\\n"
    if hashlib.sha256(text.encode()).hexdigest() != ACCELD_EVIDENCE["kernel_sha256"]:
        raise ValueError("the kernel's text is not the one that was evaluated")
    if run is None or not ACCELD_REFERENCE:
        return
    import inspect

    import numpy as np

    reference = {{}}
    exec(ACCELD_REFERENCE, reference)
    np.random.seed(0)
    if "get_inputs" not in reference:
        raise ValueError("the reference has no function get_inputs, so nothing says on which arrays to run the kernel")
    inputs = reference["get_inputs"]()
    if isinstance(inputs, dict):
        named = inspect.signature(reference["forward"]).parameters
        inputs = [inputs[name] for name in named if name in inputs]
    expected = reference["forward"](*inputs)
    results = run({entry}, *reference.get("transform_to_nki_inputs", list)(inputs))
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    if "transform_nki_outputs" in reference:
        results = reference["transform_nki_outputs"](results, expected)
    results = results if isinstance(results, (tuple, list)) else (results,)
    for one, right in zip(results, expected):
        error = np.linalg.norm(np.asarray(one, np.float64) - right) / np.linalg.norm(np.asarray(right, np.float64))
        if not error <= ACCELD_EVIDENCE["tolerance"]:
            raise ValueError(f"relative L2 {{error:.2g}}, allowed {{ACCELD_EVIDENCE['tolerance']:.2g}}")


if __name__ == "__main__":
    acceld_self_check()
    print("the kernel is the one that was evaluated:", ACCELD_EVIDENCE)
'''


def _chosen(
    name: str,
    shapes: Sequence[Sequence[int]],
    chip: str,
    sdk: str,
    simulated: bool,
    home: str | os.PathLike[str] | None,
) -> tuple[Stored | None, str]:
    """Return the kernel to use, and an empty text. If no kernel fits, return None and the reason."""
    left = stored_kernels(name, home)
    steps: list[tuple[str, Callable[[Stored], bool]]] = [
        ("no kernel passed the strict gate", lambda one: True),
        ("no kernel was measured on a device", lambda one: simulated or one.source != "simulated"),
        (f"no kernel is for the chip {chip or '(this machine tells none)'}", lambda one: one.chip == chip),
        (f"no kernel was measured with neuronx-cc {sdk or '(none is installed)'}", lambda one: _same_sdk(one, sdk)),
        ("no kernel has a grid that nki launches, which is 1 or 2 cores", _launchable),
        (f"no kernel is for arrays of {[tuple(one) for one in shapes]}", lambda one: not shapes or _fits(one, shapes)),
    ]
    for reason, holds in steps:
        left = [one for one in left if holds(one)]
        if not left:
            return None, reason
    return left[0], f"c{left[0].candidate} of r{left[0].run}"


def _same_sdk(one: Stored, sdk: str) -> bool:
    """Tell whether a kernel was measured with this compiler. For a simulated kernel, which has no compiler,
    return True.
    """
    if one.source == "simulated":
        return True
    return bool(sdk) and re.match(rf"neuronx-cc {re.escape(sdk)}(,|$)", one.sdk) is not None


def _fits(one: Stored, shapes: Sequence[Sequence[int]]) -> bool:
    spec = _workload(one)
    arrays = [] if spec is None else [a for a in spec.arguments if not a.is_scalar]
    given = [tuple(int(n) for n in shape) for shape in shapes]
    return len(given) <= len(arrays) and all(
        shape in (a.shape, a.kernel_shape) for shape, a in zip(given, arrays, strict=False)
    )


def _workload(one: Stored) -> Workload | None:
    """Return the present workload of a stored kernel; None if the workload no longer exists."""
    try:
        folder = Path(one.workload_folder)
        return load_workload(folder) if folder.is_dir() else workload(one.workload.rpartition("/")[2])
    except AcceldError:
        return None


def _stored(row: dict[str, Any]) -> Stored:
    values = {key: row[key] for key in Stored.__dataclass_fields__ if key in row}
    return Stored(**{**values, "grid": tuple(json.loads(row["grid"])), "improved": bool(row["improved"])})


def _digest(text: str) -> str:
    return hashlib.sha256((text.rstrip() + "\n").encode()).hexdigest()


def _imported(found: Stored, state: Path) -> Callable[..., Any]:
    """Write the kernel to a file, import that file and return its function. NKI reads the source of a function
    from its file.
    """
    folder = state / "best"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"c{found.candidate}_{_digest(found.text)[:16]}.py"
    if not path.is_file() or path.read_text(encoding="utf-8") != found.text:
        waiting = path.with_suffix(f".{os.getpid()}")
        waiting.write_text(found.text, encoding="utf-8")
        waiting.replace(path)
    spec = importlib.util.spec_from_file_location(f"acceld_best_{path.stem}", path)
    assert spec is not None and spec.loader is not None, "a path of a Python file has both"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Any = getattr(module, found.entry)
    launch = _launch(found)
    return function if launch is None else function[launch]  # type: ignore[no-any-return]  # the kernel's own type is unknown


def _launch(found: Stored) -> int | tuple[int, ...] | None:
    """Return the value to put into brackets for the launch ``kernel[value](...)``; None for a launch without brackets.

    The value is a number of cores for a kernel of ``nki``, and the grid for a kernel of ``neuronxcc.nki``.
    """
    if found.api == "nki":
        return _cores(found) if _cores(found) > 1 else None
    return found.grid or None


def _cores(found: Stored) -> int:
    return max(found.lnc, math.prod(found.grid))


def _launchable(found: Stored) -> bool:
    """Tell whether :func:`_launch` can launch the kernel: the grid of a kernel of ``nki`` has to be a number of cores."""
    return found.api != "nki" or (len(found.grid) <= 1 and _cores(found) <= MOST_CORES)


def _shaped(tensor: Any, shape: tuple[int, ...]) -> Any:
    return tensor if tuple(tensor.shape) == tuple(shape) else tensor.reshape(shape)
