"""Read the attacks and honest kernels of the self-test, and guess what their files do not say.

An attack is one file: a kernel (``*.py``, ``*.c``) with a header of comments, or the bytes of a forged Program
(``*.bin``)::

    # expect: reject          reject | policy | quarantine | truthful | pass
    # caught by: rejected.import                    status and rule of the refusal; | separates alternatives
    # unpoliced: incorrect_numerical.tolerance      the same with the policy off, if it differs
    # workload: st_matmul     a workload's name, or a folder of the attacks' own ``workloads/``
    # api: nki_legacy
    # entry: kernel
    # at_least: 0.98          least credible latency, as a share of the baseline's
    # lnc: 2                  cores of the launch; the workload's if it is missing

The values of ``expect`` mean:

* ``reject``: the kernel is wrong and must not pass.
* ``policy``: it is refused as a candidate. With the policy off it may pass if its results are right.
* ``quarantine``: it must end ``suspect`` or worse.
* ``truthful``: it may pass, with the latency of the work that it really does.
* ``pass``: it is an honest kernel and must pass.

If an attack is refused for a reason that its file does not name, the self-test fails, because the attack no
longer reaches its target. The suite's own files must name the refusal, files of a ``further`` folder need not.

A folder is read with all folders below it. ``NAME.toml`` beside ``NAME.py`` or ``NAME.bin`` may hold the same keys. If
``expect`` is missing, it is taken from words of the path (``honest/``, ``controls/``, ``cheat_1.py``) or from an id
like those of acceld's own suite (``H01_`` is honest, any other letter an attack). A file with neither is
``unlabeled``: nobody knows whether the kernel should pass, so its result is reported and counted separately. If
``workload`` is missing, the workload is the one whose name is in the path, or else the only one with the kernel's
arguments. The suite's own workloads are tried last.
"""

from __future__ import annotations

import ast
import base64
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from acceld.errors import AcceldError, UsageError, nearest_of
from acceld.model import Kernel, Status
from acceld.parsing import parse
from acceld.resources import data_folder
from acceld.targets import APIS, TARGETS
from acceld.workloads import Workload, load_workload
from acceld.workloads.discovery import workload_folders

EXPECTATIONS = ("reject", "policy", "quarantine", "truthful", "pass")
UNLABELED = "unlabeled"
FOLDER = "tests/adversarial"
MAX_BYTES = 64 * 2**20
_MEANINGS = {
    "pass": "honest control controls accept accepted ok correct valid legit legitimate passed",
    "reject": "rejected refuse refused fail failed cheat attack incorrect wrong blocked deny denied",
    "quarantine": "suspect quarantined suspicious",
    "truthful": "allowed either",
}
_ALIASES = {word: meaning for meaning, words in _MEANINGS.items() for word in words.split()}
_HONEST = {"honest", "control", "controls", "legit", "legitimate"}
_HOSTILE = {"attack", "attacks", "cheat", "cheats", "reject", "rejected", "exploit", "hostile", "malicious"}
"""Words that make a kernel count as an attack wherever they stand in its path."""
_KEYS = ("expect", "workload", "api", "entry", "chip", "at_least", "caught_by", "unpoliced", "lnc")
_HEADER = re.compile(
    rf"^\s*(?:#|//|/?\*)\s*({'|'.join(_KEYS).replace('_', '[_ ]')})\s*[:=]\s*[\"']?([^\s\"']+)",
    re.MULTILINE | re.IGNORECASE,
)
_CONSTANT = re.compile(rf"^({'|'.join(_KEYS).upper()})\s*=\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_ID = re.compile(r"([A-Z])\d\d_")
_DEFAULT_WORKLOAD = "st_matmul"
_PROGRAM = '''"""Answers with a Program that nobody traced."""

import base64
import os
import struct


def kernel(*arguments):
    """What the tracer looks for; the answer is sent before it is called."""


left = memoryview(struct.pack("<I", 2) + b"{}" + base64.b64decode("%s"))
while left:
    left = left[os.write(3, left) :]
os._exit(0)
'''


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack or honest kernel, read from a file of the suite or of a ``further`` folder."""

    id: str
    kernel: Kernel
    expect: str
    workload_folder: Path
    chip: str
    at_least: float = 0.0
    """Share of the baseline's latency below which a pass is false, because the kernel does the same work; 0 for no
    limit.
    """
    guessed: bool = False
    further: bool = False
    caught_by: tuple[str, ...] = ()
    """Refusals of a candidate that the self-test accepts, each as ``status.rule``; empty if the file names no refusal.
    """
    unpoliced: tuple[str, ...] = ()
    """Refusals that the self-test accepts if the policy is off."""

    @property
    def honest(self) -> bool:
        """Tell whether the kernel must pass."""
        return self.expect == "pass"

    @property
    def small(self) -> bool:
        """Tell whether the attack's workload belongs to the suite. The suite's workloads need little time and memory."""
        return self.workload_folder.parent == data_folder(FOLDER) / "workloads"


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that can not be tried, and the reason."""

    id: str
    message: str


def load_attacks(folder: Path, *, further: bool = False) -> tuple[list[Attack], list[Broken]]:
    """Return the attacks of a folder in the order of their names, and the files that are not valid attacks.

    With ``further``, the folders below it are read too. Raise UsageError if no file of the folder could be an
    attack.
    """
    folder = folder.resolve()
    listed = [path for ending in ("py", "c", "bin") for path in folder.glob(f"{'**/' * further}*.{ending}")]
    files = sorted(path for path in listed if not _left_out(path.relative_to(folder)))
    if not files:
        raise UsageError(
            f"{folder} holds no attack: no *.py, *.c or *.bin file",
            hint="--attacks names a folder of kernels that try to cheat; docs/integrity.md says how to write one",
        )
    workloads = workload_folders([data_folder(FOLDER) / "workloads", folder / "workloads"])
    attacks, broken = [], []
    for path in files:
        name = path.relative_to(folder).with_suffix("").as_posix()
        try:
            found = replace(_load(name, path, workloads), further=further)
            if further:
                # loaded here, so that a broken workload counts as a fault of the folder
                loaded = load_workload(found.workload_folder)
                found = replace(found, kernel=_launched(found.kernel, loaded))
                if found.at_least and found.kernel.api not in loaded.baselines:
                    raise UsageError(
                        f"at_least needs a baseline of API {found.kernel.api}, which workload {loaded.name} does not have",
                        hint=f"it has {', '.join(loaded.baselines) or 'none'}",
                    )
            elif not found.caught_by and found.expect not in ("pass", "truthful"):
                raise UsageError(
                    "the header does not name the refusal of the attack", hint="add '# caught by: status.rule'"
                )
            attacks.append(found)
        except (AcceldError, OSError, ValueError) as error:
            broken.append(Broken(name, f"{path}: {error}"))
    return attacks, broken


def _launched(kernel: Kernel, loaded: Workload) -> Kernel:
    """Return the kernel with its workload's launch grid and number of cores. A file that asks for two cores
    gets two.
    """
    return kernel if kernel.lnc > 1 else replace(kernel, grid=loaded.grid, lnc=loaded.lnc)


def _left_out(path: Path) -> bool:
    """Tell whether a file is no attack: a workload's file, a test, or a helper that other files import."""
    hidden = any(part.startswith((".", "_")) or part == "workloads" for part in path.parts)
    return hidden or path.name.startswith(("test_", "conftest"))


def _load(name: str, path: Path, workloads: Mapping[str, Path]) -> Attack:
    """Return the attack in a file. Raise UsageError if the attack is not valid."""
    if not path.is_file():
        raise UsageError("the path is not a regular file")
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"the attack's file has more than {MAX_BYTES >> 20} MiB: shorten it")
    data = path.read_bytes()
    forged = path.suffix == ".bin"
    text = _PROGRAM % base64.b64encode(data).decode() if forged else data.decode("utf-8", "surrogateescape")
    given = _sidecar(path) | ({} if forged else _header(text))
    expect = given.get("expect", "").lower() or _spoken(name)
    expect = _ALIASES.get(expect, expect)
    if expect not in (*EXPECTATIONS, UNLABELED):
        raise UsageError(f"expect {expect!r} is unknown", hint=nearest_of(expect, EXPECTATIONS))
    api = given.get("api") or _api(path, text)
    if api not in APIS:
        raise UsageError(f"api {api!r} is unknown", hint=nearest_of(api, APIS))
    chips = next(target.chips[api] for target in TARGETS.values() if api in target.apis)
    chip = given.get("chip", chips[0])
    if chip not in chips:
        raise UsageError(f"api {api} does not run on chip {chip!r}", hint=f"it runs on {', '.join(chips)}")
    workload = given.get("workload") or _meant(name, text, api, workloads)
    if workload not in workloads:
        raise UsageError(f"there is no workload {workload!r}", hint=nearest_of(workload, workloads))
    try:
        at_least = float(given.get("at_least", 0))
    except ValueError as error:
        raise UsageError(
            f"at_least {given['at_least']!r} is not a number", hint="write a share, such as '# at_least: 0.98'"
        ) from error
    cores = given.get("lnc", "1")
    if cores not in ("1", "2"):
        raise UsageError(f"lnc {cores!r} is neither 1 nor 2", hint="write '# lnc: 1' or '# lnc: 2'")
    kernel = Kernel(
        text,
        api,
        entry=given.get("entry", ""),
        grid=(2,) if cores == "2" else (),
        lnc=int(cores),
        filename=f"{path.stem}.py" if forged else path.name,
    )
    caught_by = _refusals(given.get("caught_by", ""))
    return Attack(
        name,
        kernel,
        expect,
        workloads[workload],
        chip,
        at_least,
        guessed="workload" not in given,
        caught_by=caught_by,
        unpoliced=_refusals(given.get("unpoliced", "")) or caught_by,
    )


def _refusals(text: str) -> tuple[str, ...]:
    """Return the alternatives of a text such as ``timeout.trace_deadline|compile_error.crash``.

    Raise UsageError for an unknown status.
    """
    refusals = tuple(text.split("|")) if text else ()
    for refusal in refusals:
        status, _, rule = refusal.partition(".")
        if status not in set(Status) or not rule:
            raise UsageError(
                f"{refusal!r} in the header of an attack is not of the form status.rule",
                hint=f"such as rejected.import. {nearest_of(status, [one.value for one in Status])}".strip(),
            )
    return refusals


def _header(text: str) -> dict[str, str]:
    """Return the keys that an attack's file sets in comments or in module constants, with their values.

    If a key is set several times, its first comment counts; without a comment, its first constant.
    """
    found = [*reversed(_CONSTANT.findall(text)), *reversed(_HEADER.findall(text))]
    return {key.lower().replace(" ", "_"): value for key, value in found}


def _sidecar(path: Path) -> dict[str, str]:
    """Return the keys of the ``.toml`` file beside an attack; an empty dict if there is no such file."""
    beside = path.with_suffix(".toml")
    if not beside.is_file():
        return {}
    table = tomllib.loads(beside.read_text("utf-8"))
    return {key: str(table[key]) for key in _KEYS if key in table}


def _spoken(name: str) -> str:
    """Return the expected result for which a word in a file's path stands, such as ``reject`` for ``attacks/``. The last
    part of the path with such a word counts.
    """
    for part in reversed(Path(name).parts):
        whole, words = part.lower(), set(re.split(r"[^a-z]+", part.lower()))
        if whole in EXPECTATIONS or whole in _ALIASES:
            return _ALIASES.get(whole, whole)
        if words & _HOSTILE:
            return "reject"
        if words & _HONEST:
            return "pass"
        numbered = _ID.match(part)
        if numbered:
            return "pass" if numbered.group(1) == "H" else "reject"
    return UNLABELED


def _api(path: Path, text: str) -> str:
    """Return the API of an attack whose file does not name one."""
    if path.suffix == ".c":
        return "c"
    current = re.search(r"^\s*(?:import nki\b|from nki\b)", text, re.MULTILINE)
    return "nki" if current and "neuronxcc" not in text else "nki_legacy"


def _meant(name: str, text: str, api: str, workloads: Mapping[str, Path]) -> str:
    """Return the name of the workload for an attack whose file does not name one."""
    spoken = [workload for workload in workloads if workload in name]
    if spoken:
        return max(spoken, key=len)
    taken = _arguments(text)
    small = data_folder(FOLDER) / "workloads"
    for of_suite in (False, True):
        folders = {one: folder for one, folder in workloads.items() if (folder.parent == small) is of_suite}
        same = [workload for workload, folder in folders.items() if taken and _takes(folder, api) == taken]
        if len(same) == 1:
            return same[0]
    return _DEFAULT_WORKLOAD


def _arguments(text: str) -> tuple[str, ...]:
    """Return the argument names of the last kernel in a file; empty if the names can not be found."""
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    marked = [node for node in functions if node.decorator_list or node.name == "kernel"]
    return tuple(argument.arg for argument in marked[-1].args.args) if marked else ()


def _takes(folder: Path, api: str) -> tuple[str, ...]:
    """Return the argument names of a workload's kernel; empty if the workload can not be loaded."""
    try:
        loaded = load_workload(folder)
    except AcceldError:
        return ()
    return tuple(argument.name for argument in loaded.arguments) if api in loaded.baselines else ()
