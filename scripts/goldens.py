"""Compare acceld's computations, decisions and stored rows with a record of them, or write that record again.

    python scripts/goldens.py [--only programs|evaluations|stored ...] [--write] [--passes N]

* ``programs``: for every NKI kernel of every workload, on each chip of its API: the hash of the program, whether the
  verifier has findings, and the whole profile.
* ``evaluations``: the result of every attack and honest kernel of the self-test, with both evaluators of the test.
* ``stored``: the rows that short runs by rules leave in the history, and the daemon's answers about them.

The record is in tests/goldens/: one JSON object in each file, one line for each entry. All values come from
commands and from the daemon's protocol, so the record does not depend on acceld's internal structure. Clocks,
secret seeds and the machine's folders are left out; ``"*"`` in the record matches any value. The exit code is 1
if something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "goldens"
ANY = "*"
"""Value that stands in the record for a value that may differ each time."""

Entries = dict[str, Any]

CHIPS = {"nki_legacy": ("trn1", "trn2"), "nki": ("trn2", "trn3")}
_PACKAGES = (("neuronxcc", "nki_legacy"), ("nki", "nki"))
_RUNS = ("st_silu", "st_matmul", "st_rmsnorm")
"""Workloads of the recorded runs: small ones of the self-test."""
_SEARCH = (
    "--preset",
    "quick",
    "--iterations",
    "3",
    "--beam",
    "1",
    "--plans",
    "1",
    "--attempts",
    "1",
    "--seed",
    "0",
    "--strategy",
    "beam",
)
"""One candidate at a time, so that rows get their numbers in the same order each time."""
_SETTINGS = f"""[paths]
workloads = [{json.dumps(str(ROOT / "tests" / "adversarial" / "workloads"))}]
[evaluate]
slots = 1
"""
_MODEL = re.compile(r"(?<![\d.])\d+\.[0-9a-f]{8}\b")
"""Version of the performance model: the version has a digest of the simulator's source, which any edit changes."""
_ERROR = re.compile(r"(?<=the error would be )[^;]+|, near the limit")
"""Error on secret inputs, which differ from run to run, and the words about it."""
_TABLES = (
    "runs iterations beams plans attempts candidates evaluations checks profiles profile_details samples events texts sources "
    "workloads insights journal llm_calls run_totals run_statuses failure_totals rule_totals evaluation_keys history "
    "rewrites results costs accelopt_definitions accelopt_solutions accelopt_profiles flashinfer_traces"
).split()
_ROUTES = (
    "/v1/runs /v1/runs/1 /v1/runs/1/outcome /v1/runs/1/candidates /v1/runs/1/tree /v1/runs/1/plans /v1/runs/1/calls "
    "/v1/runs/1/events?limit=500 /v1/candidates/1 /v1/candidates/2 /v1/candidates/2/diff /v1/evaluations/1 /v1/insights /v1/costs "
    "/v1/history /v1/candidates/999999"
).split()
_VOLATILE = frozenset(
    "at created_at started_at ended_at registered_at changed_at seconds elapsed_s rel_l2 tolerance worst_row sandbox_level timestamp "
    "max_relative_error free_bytes pid".split()
)
"""Keys left out: clocks, errors on data drawn from secret seeds, facts of the machine."""
_RETRIES = 20
_LONG = 240
"""Texts and lists longer than this are recorded as their hash."""
_DIGITS = 12
"""Significant digits of a figure; further digits depend on the order in which Python adds."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for running commands, in which only its own acceld.toml counts."""

    folder: Path

    @property
    def home(self) -> Path:
        """Return the path of its state folder."""
        return self.folder / "state"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for commands: this checkout's modules, and none of the user's settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ACCELD_")}
        own = {"XDG_CONFIG_HOME": str(self.folder / "config"), "XDG_RUNTIME_DIR": str(self.folder / "run")}
        return kept | own | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}

    def command(self, name: str, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command of acceld, and return its output. Raise RuntimeError with the end of its errors if its
        exit code is not in ``codes``.
        """
        done = subprocess.run(
            [sys.executable, "-m", "acceld", name, "--home", str(self.home), *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in codes:
            raise RuntimeError(f"acceld {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> list[Any]:
        """Send a request to the daemon, and return the lines of its answer, decoded from JSON."""
        reported = json.loads((self.home / "daemon.json").read_text("utf-8"))
        connection = http.client.HTTPConnection("localhost", timeout=1800)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(reported["socket"])
        headers = {
            "Authorization": f"Bearer {(self.home / 'token').read_text('utf-8').strip()}",
            "Content-Type": "application/json",
        }
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            return [json.loads(line) for line in connection.getresponse().read().splitlines()]
        finally:
            connection.close()


@contextmanager
def place() -> Iterator[Place]:
    """Yield a folder for commands, without a daemon, and delete it after the block."""
    with tempfile.TemporaryDirectory(prefix="goldens-") as name:
        made = Place(Path(name).resolve())
        for part in ("run", "config"):
            (made.folder / part).mkdir(mode=0o700)
        yield made


@contextmanager
def daemon(settings: str = "") -> Iterator[Place]:
    """Yield a folder with a daemon, which is stopped after the block. ``settings`` is the text of its
    acceld.toml.
    """
    with place() as made:
        (made.folder / "acceld.toml").write_text(settings, "utf-8")
        made.command("start")
        try:
            yield made
        finally:
            made.command("stop")


@dataclass(frozen=True, slots=True)
class Source:
    """One NKI kernel file of a workload."""

    name: str
    """File with its folders, such as ``bf16/matmul_bf16/kernel.py``."""
    path: Path
    workload: str
    api: str


def sources(only: Sequence[str] = ()) -> list[Source]:
    """Return every NKI kernel of the workloads, or of those that ``only`` names, sorted by name."""
    with place() as here:
        listed = json.loads(here.command("workloads", "--json"))["workloads"]
    found = [
        Source(f"{one['family']}/{one['name']}/{path.name}", path, one["name"], api)
        for one in listed
        if not only or one["name"] in only
        for path in Path(one["folder"]).glob("kernel*.py")
        if (api := _api(path.read_text("utf-8")))
    ]
    return sorted(found, key=lambda one: one.name)


def _api(text: str) -> str:
    """Return the API that a kernel imports; empty if it is not for NKI."""
    found = [api for package, api in _PACKAGES if re.search(rf"^(?:import|from) {package}\b", text, re.MULTILINE)]
    return found[0] if found else ""


def programs(only: Sequence[str] = ()) -> Entries:
    """Return what is recorded of every kernel on every chip: hash, verifier's result and profile. The key is
    ``family/workload/file chip``.
    """
    items = [
        {
            "id": f"{one.name} {chip}",
            "workload": one.workload,
            "chip": chip,
            "gate": "timing",
            "kernel": {"text": one.path.read_text("utf-8"), "api": one.api, "filename": one.path.name},
        }
        for one in sources(only)
        for chip in CHIPS[one.api]
    ]
    with daemon() as here:
        answers = here.request("POST", "/v1/evaluations", {"items": items})
    return {one["id"]: one if "error" in one else _program(one) for one in answers}


def _program(answer: Mapping[str, Any]) -> Entries:
    profile = {name: value for name, value in (answer["profile"] or {}).items() if value not in (None, [], "", {})}
    profile.pop("model", None)  # the version changes with each edit of the simulator, even if no figure changes
    return {
        "program": answer["program_sha256"],
        "status": answer["status"],
        "failure": answer["failure"],
        "percent_of_peak": answer["percent_of_peak"],
        "percent_of_attainable": answer["percent_of_attainable"],
    } | {"profile": profile}


def evaluations(backend: str, passes: int = 1, only: str = "", attacks: Path | None = None) -> Entries:
    """Return the self-test's result for every attack and honest kernel in each mode. The key is ``id mode``.

    Values that differ between ``passes`` are recorded as :data:`ANY`. Only simulated latencies are recorded.
    """
    words = ["--json", "--backend", backend, "--repeats", str(passes), *(["--only", only] if only else [])]
    words += ["--attacks", str(attacks.resolve())] if attacks is not None else []
    with place() as here:
        report = json.loads(here.command("doctor", "selftest", *words, codes=(0, 1)))
    return evaluation_entries(report, backend)


def evaluation_entries(report: Mapping[str, Any], backend: str) -> Entries:
    """Return what is recorded of a report of ``acceld doctor selftest --json``."""
    fields = "workload guessed expect outcome status rule".split() + ["latency_us"] * (backend == "simulator")
    found: Entries = {f"not tried {one['id']}": {"message": one["message"]} for one in report["broken"]}
    for result in report["results"]:
        name, reported = f"{result['id']} {result['mode']}", {field: result[field] for field in fields}
        known = found.setdefault(name, reported)
        found[name] = {field: value if reported[field] == value else ANY for field, value in known.items()}
    return found | {"sandbox": {"level": report["level"]}}


def evaluations_again(backend: str, passes: int) -> Entries:
    """Return :func:`evaluations`, where an attack that does not end as recorded is tried once more, alone.

    On a busy machine a deadline may pass before an evaluation reaches the recorded end.
    """
    found, known = evaluations(backend, passes), record(f"evaluations_{backend}")
    if differences(known.get("sandbox", {}), found["sandbox"]):
        return found
    tried = {entry for entry in known.keys() & found if entry.endswith(("candidate", "unpoliced"))}
    differing = {entry.split()[0] for entry in tried if differences(known[entry], found[entry])}
    for name in sorted(differing)[:_RETRIES]:
        found |= evaluations(backend, only=name)
    return found


def stored() -> Entries:
    """Return the rows of short runs by rules, and the daemon's answers about them. The keys are table or path,
    and a position.
    """
    with daemon(_SETTINGS) as here:
        found: Entries = {}
        for workload in _RUNS:
            outcome = here.command("optimize", workload, *_SEARCH, "--wait", "--json")
            found[f"optimize {workload} --json"] = json.loads(outcome)
        for table in _TABLES:
            rows = json.loads(here.command("query", f"SELECT * FROM {table}", "--json"))
            found |= _listed(f"table {table}", _rows(rows))
        for route in _ROUTES:
            (answer,) = here.request("GET", route)
            lists = {name: value for name, value in answer.items() if isinstance(value, list) and len(value) > 1}
            found[f"GET {route}"] = {name: value for name, value in answer.items() if name not in lists}
            for name, value in lists.items():
                found |= _listed(f"GET {route} {name}", value)
        return {name: _settled(value, here) for name, value in found.items()}


def _rows(answer: Mapping[str, Any]) -> list[Any]:
    """Return the rows of a query's answer, with columns of JSON decoded."""
    return [{name: _opened(value) for name, value in row.items()} for row in answer["rows"]]


def _opened(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _listed(name: str, values: Sequence[Any]) -> Entries:
    return {f"{name} {number:03}": value for number, value in enumerate(values, 1)}


def _settled(value: Any, here: Place, name: str = "") -> Any:
    """Return a value in a form that is equal for every run: without clocks, folders, secrets and the version of
    the performance model, and with hashes in place of long parts.
    """
    if name in _VOLATILE and value is not None:
        return ANY
    if isinstance(value, dict):
        return {key: _settled(inner, here, key) for key, inner in value.items()}
    if isinstance(value, list):
        whole = [_settled(inner, here) for inner in value]
        return whole if len(_line(whole)) <= _LONG else [f"{len(whole)} items, {_hash(_line(rounded(whole)))}"]
    if isinstance(value, str):
        text = value.replace(str(here.folder), "HERE").replace(str(ROOT), "ROOT")
        text = _ERROR.sub("", _MODEL.sub("MODEL", text))
        return text if len(text) <= _LONG else f"{len(text)} characters, {_hash(text)}"
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rounded(value: Any) -> Any:
    """Return a value whose numbers are rounded to the digits that are the same on every machine."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def record(name: str) -> Entries:
    """Return the entries of one file of the record; empty if there is no such file."""
    path = FOLDER / f"{name}.json"
    found: Entries = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def write(name: str, entries: Entries) -> None:
    """Write entries to a file of the record. A value that is recorded as :data:`ANY` stays :data:`ANY`."""
    FOLDER.mkdir(exist_ok=True)
    entries = _free(record(name), entries)
    lines = ",\n".join(f"{json.dumps(key)}: {_line(rounded(entries[key]))}" for key in sorted(entries))
    (FOLDER / f"{name}.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")


def _free(known: Any, found: Any) -> Any:
    if isinstance(known, dict) and isinstance(found, dict):
        return {key: _free(known.get(key), value) for key, value in found.items()}
    return ANY if known == ANY else found


def differences(known: Entries, found: Entries) -> list[str]:
    """Return a line for each entry that differs from the record."""
    return list(_differences("", known, rounded(found)))


def _differences(where: str, known: Any, found: Any) -> Iterator[str]:
    if known == ANY or _line(known) == _line(found):
        return
    if isinstance(known, dict) and isinstance(found, dict):
        for key in sorted(known.keys() | found.keys()):
            inner = f"{where}.{key}" if ": " in where else f"{where}: {key}" if where else key
            if key not in found:
                yield f"{inner}: gone, was {_brief(known[key])}"
            elif key not in known:
                yield f"{inner}: new, {_brief(found[key])}"
            else:
                yield from _differences(inner, known[key], found[key])
    elif isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        for number, (one, other) in enumerate(zip(known, found, strict=True)):
            yield from _differences(f"{where}[{number}]", one, other)
    else:
        yield f"{where}: {_brief(known)} -> {_brief(found)}"


def _brief(value: Any) -> str:
    text = _line(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


PARTS: Mapping[str, Mapping[str, Callable[[int], Entries]]] = {
    "programs": {"programs": lambda _: programs()},
    "evaluations": {
        "evaluations_simulator": lambda passes: evaluations_again("simulator", passes),
        "evaluations_cpu": lambda passes: evaluations_again("cpu", passes),
    },
    "stored": {"stored": lambda _: stored()},
}
"""The files of each part of the record. Each file has a function that takes the number of tries and returns the file's
entries.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the differences from the record, or write it. Return 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="these parts")
    parser.add_argument("--write", action="store_true", help="make the record anew instead of comparing with it")
    parser.add_argument(
        "--passes", type=int, default=1, metavar="N", help="try evaluations N times; keep what is the same"
    )
    arguments = parser.parse_args(argv)
    differing = 0
    for part in arguments.only:
        for name, make in PARTS[part].items():
            found = make(arguments.passes)
            if arguments.write:
                write(name, found)
                print(f"{name}: wrote {len(found)} entries")
                continue
            lines = differences(record(name), found)
            differing += bool(lines)
            print(f"{name}: {len(found)} entries, {len(lines)} differences", *lines, sep="\n  ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
