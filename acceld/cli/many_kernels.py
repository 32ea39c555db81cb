"""Evaluate the kernels of a file of JSON lines, for ``acceld profile --jsonl``.

An input line has ``workload``, and ``kernel`` (a text) or ``file`` (a path from the input's folder). It may
have ``id``, ``api``, ``chip``, ``backend``, ``gate`` and ``workload_folder``, which win over the flags. The
output has a line for each input line, in the same order. An interrupted command continues behind the last line
of its output.

On a device a kernel is timed in turns with the baseline, and its speed-up has an interval. On the simulator the
speed-up is the ratio of the two simulated latencies.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acceld import figures
from acceld.cli.connect import connected
from acceld.cli.output import print_json, print_table, say
from acceld.cli.samples import Summary, summaries
from acceld.client import Client
from acceld.errors import AcceldError, UsageError, no_file
from acceld.findings import finding, moved
from acceld.gains import gain, interleaved, verdict
from acceld.home import Home
from acceld.model import Profile
from acceld.watch.answers import evaluation_from
from acceld.workloads import Workload, workload

ANSWER_S = 86_400.0
"""Deadline of one answer in seconds, including its wait in the queue."""
PLACES = ("workload", "workload_folder", "backend", "api", "chip")
"""Fields that decide which baseline a kernel is compared with."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the input: a name for the kernel, and the request to the daemon."""

    id: str | int
    body: dict[str, Any]

    @property
    def place(self) -> tuple[Any, ...]:
        """Return the fields that decide with which baseline the kernel is compared."""
        return tuple(self.body.get(name) for name in PLACES)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate the kernels that have no result in the output yet. The exit code does not depend on whether
    kernels pass.
    """
    if not arguments.out:
        raise UsageError(
            "--jsonl needs a file for the results", hint=f"acceld profile --jsonl {arguments.jsonl} --out OUT.jsonl"
        )
    items = list(_items(Path(arguments.jsonl), arguments))
    out = Path(arguments.out)
    earlier = _earlier(out, items)
    if earlier:
        say(f"{out} has {len(earlier)} of {len(items)} results; continuing")
    records = list(earlier)
    if len(earlier) < len(items):
        home, _ = connected(arguments.home)
        try:
            stream = out.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"can not write {out}: {error.strerror}", hint="--out takes a file in a folder that exists"
            ) from error
        with stream:
            for record in _evaluated(home, items[len(earlier) :], arguments.jobs):
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                stream.flush()
                records.append(record)
                say(f"{len(records)}/{len(items)} {record['id']}: {_summary(record)}")
    if arguments.table or arguments.json:
        _print(summaries(records, arguments.best_of), arguments)
    return 0


def _items(path: Path, arguments: argparse.Namespace) -> Iterator[Item]:
    seen: set[str | int] = set()
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        item = _item(line, number, path, arguments)
        if item.id in seen:
            raise UsageError(
                f"{path}:{number}: id {item.id!r} occurs twice", hint="give each line an id of its own, or none"
            )
        seen.add(item.id)
        yield item


def _item(line: str, number: int, path: Path, arguments: argparse.Namespace) -> Item:
    where = f"{path}:{number}"
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise UsageError(
            f"{where}: this line is not JSON: {error}",
            hint='a line is an object such as {"workload": "silu", "file": "k.py"}',
        ) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("workload"), str):
        raise UsageError(
            f"{where}: this line names no workload",
            hint='a line is an object such as {"workload": "silu", "file": "k.py"}',
        )
    unknown = set(raw) - {"id", "kernel", "file", "gate", *PLACES}
    if unknown or ("kernel" in raw) == ("file" in raw):
        raise UsageError(
            f"{where}: this line has the unknown key {min(unknown)!r}"
            if unknown
            else f"{where}: this line has {'both kernel and file' if 'file' in raw else 'neither kernel nor file'}",
            hint=f"a line has either kernel or file, and may have id, gate, {', '.join(PLACES)}",
        )
    kernel = raw.pop("kernel", None)
    if kernel is None:
        kernel = _text(path.parent / str(raw.pop("file")), f"{where}: ")
    kernel = dict(kernel) if isinstance(kernel, dict) else {"text": kernel}
    flags = {"backend": arguments.backend, "api": arguments.api, "chip": arguments.chip, "gate": arguments.gate}
    body = {name: value for name, value in flags.items() if value is not None} | raw
    if "api" in body:
        kernel.setdefault("api", body["api"])
    kernel["trusted"] = bool(arguments.trusted)
    name = body.pop("id", number)
    if not isinstance(name, str | int):
        raise UsageError(f"{where}: id = {name!r} is neither a text nor a number", hint='such as "id": "k1"')
    return Item(name, body | {"id": name, "kernel": kernel, "against": ["baseline"], "details": "findings"})


def _text(path: Path, where: str = "") -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        missing = no_file(path, hint="--jsonl IN: one JSON object a line, with workload, and kernel or file")
        missing.message = where + missing.message
        raise missing from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}{path} is not text in UTF-8", hint="save the file as UTF-8") from error
    except OSError as error:
        raise UsageError(
            f"{where}{path} can not be read: {error.strerror}", hint="give a file that exists and that you may read"
        ) from error


def _earlier(out: Path, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the results that an earlier call of the command wrote, without an incomplete last line. Raises
    UsageError if that call had another input.
    """
    if not out.exists():
        return []
    try:
        raw = out.read_bytes()
    except OSError as error:
        raise UsageError(f"can not read {out}: {error.strerror}", hint="give another file with --out") from error
    whole = raw[: raw.rfind(b"\n") + 1]
    try:
        records = [json.loads(line) for line in whole.splitlines()]
        same = [record["id"] for record in records] == [item.id for item in items[: len(records)]]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{out} does not hold results of this command", hint="give --out another name") from error
    if not same:
        raise UsageError(
            f"{out} holds the results of another input file", hint="give --out another name, or delete that file"
        )
    if whole != raw:
        with out.open("r+b") as stream:
            stream.truncate(len(whole))
    return records


def _evaluated(home: Home, items: Sequence[Item], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the result of each kernel in the input's order. ``jobs`` requests are sent to the daemon at the
    same time.
    """
    baselines = _Baselines(home)
    waiting: deque[Future[dict[str, Any]]] = deque()
    left = iter(items)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for item in left:
                waiting.append(pool.submit(_one, home, item, baselines))
                if len(waiting) >= 2 * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class _Baselines:
    """Profiles of the baselines with which kernels are compared. Each baseline is evaluated once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], Future[Profile | None]] = {}

    def profile(self, item: Item) -> Profile | None:
        """Return the profile of the baseline for a kernel, on the same backend and chip; None if the baseline
        does not pass.
        """
        with self._lock:
            mine = item.place not in self._known
            found = self._known.setdefault(item.place, Future())
        if mine:
            found.set_result(self._ask(item))
        return found.result()

    def _ask(self, item: Item) -> Profile | None:
        body = {name: item.body[name] for name in PLACES if name in item.body}
        try:
            reported = _ask(self._home, body | {"id": "baseline", "gate": "search", "details": "findings"})
        except AcceldError as error:
            say(f"the baseline of {item.body['workload']} has no latency: {error.message}")
            return None
        return evaluation_from({**reported, "id": 0}).profile if reported["status"] == "passed" else None


def _ask(home: Home, body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = Client(home, timeout_s=ANSWER_S).send("POST", "/v1/evaluations", body)
    return found


def _one(home: Home, item: Item, baselines: _Baselines) -> dict[str, Any]:
    """Return the result of one kernel. Raise DaemonError if the daemon is lost; then nothing is written for
    the kernel, so that the next call evaluates it.
    """
    record: dict[str, Any] = {"id": item.id, "workload": item.body["workload"]}
    try:
        reported = _ask(home, item.body)
    except UsageError as error:
        return record | {"status": None, "error": error.message}
    profile, correctness, failure = reported["profile"] or {}, reported["correctness"] or {}, reported["failure"]
    passed, latency_us = reported["status"] == "passed", profile.get("latency_us")
    baseline = baselines.profile(item) if passed else None
    result = evaluation_from({**reported, "id": 0})
    found = gain(baseline, result.profile)
    turns = reported["paired"][0] if passed and reported["paired"] else None
    kernel = item.body["kernel"]
    short = finding(result, kernel["text"], _workload(item.body), reported["chip"], kernel.get("lnc", 1))
    improved = bool(interleaved(turns)) if turns else found is not None and found.improved
    band = turns["band_percent"] if turns else found.band_percent if found else None
    ratio = turns["ratio"] if turns else found.ratio if found else None
    own = {
        "status": reported["status"],
        "gate": correctness.get("gate"),
        "latency_us": latency_us,
        "baseline_latency_us": baseline.latency_us if baseline else None,
        "speedup": ratio,
        "speedup_interval": turns["interval"] if turns else None,
        "improved": improved,
        "verdict": verdict(ratio, improved, band, profile.get("source") or "simulated"),
        "tie_band": band,
        "why": "" if improved or ratio is None or ratio > 1 else moved(baseline, result.profile, kernel["text"]),
        "win": turns["win"] if turns else None,
        "source": profile.get("source"),
        "method": profile.get("method"),
        "interval_percent": profile.get("interval_percent"),
        "backend": reported["backend"],
        "api": reported["api"],
        "chip": reported["chip"],
        "rel_l2": correctness.get("rel_l2"),
        "tolerance": correctness.get("tolerance"),
        "percent_of_peak": reported["percent_of_peak"],
        "failure": failure and {key: failure[key] for key in ("rule", "message", "line", "hint")},
        "source_sha256": reported["source_sha256"],
        "program_sha256": reported["program_sha256"],
    }
    return {**record, **short, **own}


def _workload(body: Mapping[str, Any]) -> Workload | None:
    """Return the workload of a request; None if this process can not find it, although the daemon may."""
    with suppress(AcceldError):
        return workload(body.get("workload_folder") or body["workload"])
    return None


def _summary(record: dict[str, Any]) -> str:
    if record.get("error"):
        return str(record["error"])
    text = str(record["status"])
    if record["latency_us"] is not None and record["status"] == "passed":
        text += (
            f" {figures.latency(record['latency_us'], record['source'], record['chip'], record['interval_percent'])}"
        )
    return text + (f" {figures.brief_gain(record['speedup'], record['verdict'])}" if record["speedup"] else "")


def _print(found: Sequence[Summary], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"best_of": arguments.best_of, "rows": [asdict(one) for one in found]})
        return
    rows = [
        (
            one.name,
            str(one.problems),
            f"{one.correct_percent:.1f} %",
            f"{one.fast_percent:.1f} %",
            "—" if one.mean_speedup is None else f"{one.mean_speedup:.2f}x",
            "—" if one.greatest_speedup is None else f"{one.greatest_speedup:.2f}x",
            one.source or "—",
        )
        for one in found
    ]
    headers = ("workload", f"best of {arguments.best_of}", "correct", ">= 1x", "average", "maximum", "latencies")
    print_table(rows, headers, right=frozenset({1, 2, 3, 4, 5}))
