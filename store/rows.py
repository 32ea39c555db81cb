"""Convert records to rows and back. A property test checks that every record reads back equal.

Numbers that are not finite become NULL in JSON. A ``rel_l2`` of NaN is stored as NULL and reads back as NaN.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from acceld.errors import StoreError
from acceld.events import Event, from_json
from acceld.model import (
    Attempt,
    Basis,
    Candidate,
    Check,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Held,
    Insight,
    InsightKind,
    Kernel,
    Plan,
    Profile,
    Run,
    RunSpec,
    RunState,
    SearchParameters,
    Source,
    Status,
)
from acceld.store.errors import unknown

Row = sqlite3.Row


def the_row(connection: sqlite3.Connection, kind: str, number: int, sql: str) -> Row:
    """Return the row that a statement selects by the id ``number``. Raise NotFoundError if there is no such row.
    ``kind`` names the kind of thing that has the id, as in :func:`acceld.store.errors.unknown`.
    """
    row: Row | None = connection.execute(sql, (number,)).fetchone()
    if row is None:
        raise unknown(kind, number)
    return row


def dump(value: Any) -> str:
    """Return a value as compact JSON that SQLite's JSON functions accept. Numbers that are not finite become null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=_plain)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=_plain)


def _plain(value: Any) -> Any:
    """Convert a value that JSON lacks: a mapping, a set, a number of numpy, or a path."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "item"):
        return value.item()  # a numpy scalar
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def load(text: str | None) -> Any:
    """Return the value that :func:`dump` wrote; None for None."""
    return None if text is None else json.loads(text)


def mapping(text: str | None) -> dict[str, Any]:
    """Return the JSON object that :func:`dump` wrote; empty for None."""
    value: dict[str, Any] = load(text) or {}
    return value


def text_value(text: str) -> str | bytes:
    """Return ``text`` in a form that SQLite can store. A text with lone surrogates, which UTF-8 can not hold,
    becomes bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def text_of(value: str | bytes) -> str:
    """Return the text that :func:`text_value` made storable."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def clean(text: str) -> str:
    """Return ``text`` with each lone surrogate, which SQLite can not store, replaced by ``?``."""
    return text.encode("utf-8", "replace").decode()


def columns(record: Any, names: str) -> dict[str, Any]:
    """Return the fields ``names`` of a record as columns of the same names. Texts are cleaned; mappings and tuples
    become JSON.
    """
    found = {name: getattr(record, name) for name in names.split()}
    return {name: _column(value) for name, value in found.items()}


def _column(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return dump(value) if isinstance(value, Mapping | tuple) else value


_Record = TypeVar("_Record")


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def _record(kind: type[_Record], row: Row, /, **others: Any) -> _Record:
    """Return a record of the class ``kind``. A field that is not in ``others`` gets its value from the row's column of
    the same name.
    """
    names = _fields(kind)  # type: ignore[arg-type]  # a class is hashable
    return kind(**{name: row[name] for name in names if name not in others}, **others)


_Rest = ParamSpec("_Rest")


def _readable(
    kind: str, number: str = "id"
) -> Callable[[Callable[Concatenate[Row, _Rest], _Record]], Callable[Concatenate[Row, _Rest], _Record]]:
    """Return a decorator for a function that converts a row to a record.

    If the row's values are invalid, the decorated function raises StoreError. The error names the row by ``kind`` and
    by its column ``number``.
    """

    def decorate(make: Callable[Concatenate[Row, _Rest], _Record]) -> Callable[Concatenate[Row, _Rest], _Record]:
        @wraps(make)
        def made(row: Row, /, *others: _Rest.args, **named: _Rest.kwargs) -> _Record:
            try:
                return make(row, *others, **named)
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(
                    f"{kind} {row[number]} can not be read: {error}",
                    hint="Another program changed the database: `acceld db restore FILE` replaces the database by a copy.",
                ) from error

        return made

    return decorate


@_readable("run")
def run_of(row: Row, root: Kernel | None) -> Run:
    """Return a row of ``runs`` as a record. ``root`` is the kernel that the run starts from; None for the
    workload's own.
    """
    spec = _record(RunSpec, row, search=SearchParameters(**load(row["search"])), root=root)
    return _record(Run, row, spec=spec, state=RunState(row["state"]), basis=Basis(**mapping(row["basis"])))


@_readable("plan")
def plan_of(row: Row) -> Plan:
    """Return a row of ``plans`` as a record."""
    insights = tuple(load(row["insights"]))
    return _record(Plan, row, index=row["number"], insights=insights, data=mapping(row["data"]))


@_readable("attempt")
def attempt_of(row: Row, text: str | None) -> Attempt:
    """Return a row of ``attempts`` as a record. ``text`` is its code; None if the attempt gave no code."""
    return _record(Attempt, row, index=row["number"], text=text)


def kernel_of(row: Row, text: str, closure: Mapping[str, str]) -> Kernel:
    """Return a row of ``sources``, with the columns ``filename`` and ``trusted`` added, as a record.

    Raise StoreError if the kernel's hash differs from the stored hash, because another program changed a text in the
    database.
    """
    grid, trusted = tuple(load(row["grid"])), bool(row["trusted"])
    kernel = _record(Kernel, row, text=text, grid=grid, trusted=trusted, closure=closure)
    if kernel.sha256 != row["sha256"]:
        raise StoreError(
            f"the text of {kernel.filename} is not the one that was evaluated: its hash is not {row['sha256'][:12]}",
            hint="Another program changed the database: `acceld db restore FILE` replaces the database by a copy.",
        )
    return kernel


@_readable("candidate")
def candidate_of(row: Row, kernel: Kernel, evaluation: Evaluation | None) -> Candidate:
    """Return a row of ``candidates`` as a record."""
    order = (row["place"], row["plan_number"], row["attempt_number"], row["fix_number"])
    return _record(Candidate, row, kernel=kernel, order=order, evaluation=evaluation)


@_readable("evaluation")
def evaluation_of(row: Row, checks: tuple[Check, ...], profile: Profile | None) -> Evaluation:
    """Return a row of ``evaluations`` as a record, with its checks and profile."""
    failure = None
    if row["failure_rule"] is not None:
        failure = Failure(row["failure_rule"], row["failure_message"], row["failure_line"], row["failure_hint"])
    correctness = None
    if row["tolerance"] is not None:
        correctness = _record(
            Correctness,
            row,
            gate=Gate(row["gate"]),
            rel_l2=math.nan if row["rel_l2"] is None else row["rel_l2"],
            checks=checks,
            accelopt_passed=None if row["accelopt_passed"] is None else bool(row["accelopt_passed"]),
        )
    return _record(
        Evaluation,
        row,
        status=Status(row["status"]),
        failure=failure,
        correctness=correctness,
        profile=profile,
        seconds=mapping(row["seconds"]),
        reused=bool(row["reused"]),
    )


def check_of(row: Row) -> Check:
    """Return a row of ``checks`` as a record."""
    return Check(row["name"], bool(row["passed"]), row["rel_l2"], row["tolerance"], row["detail"])


@_readable("the profile of evaluation", number="evaluation")
def profile_of(row: Row, samples: tuple[float, ...], details: Mapping[str, Any]) -> Profile:
    """Return a row of ``profiles`` as a record."""
    return _record(
        Profile,
        row,
        source=Source(row["source"]),
        engines_us=mapping(row["engines_us"]),
        counters=mapping(row["counters"]),
        notes=tuple(load(row["notes"])),
        samples_us=samples,
        details=details,
    )


@_readable("insight")
def insight_of(row: Row) -> Insight:
    """Return a row of ``insights`` as a record."""
    return _record(
        Insight,
        row,
        kind=InsightKind(row["kind"]),
        run=row["run"] or 0,
        slow_candidate=row["slow_candidate"] or 0,
        fast_candidate=row["fast_candidate"] or 0,
        tags=tuple(load(row["tags"])),
        operations=tuple(load(row["operations"])),
        held=tuple(held_of(place) for place in load(row["held"])),
        source=Source(row["source"]),
        pinned=bool(row["pinned"]),
        muted=bool(row["muted"]),
        withdrawn=bool(row["withdrawn"]),
    )


def insight_values(insight: Insight) -> dict[str, Any]:
    """Return the columns of ``insights`` for a record, without the id."""
    values = columns(insight, " ".join(name for name in _fields(Insight) if name not in ("id", "held")))
    for name in ("run", "slow_candidate", "fast_candidate"):
        values[name] = values[name] or None
    return values | {"held": held_values(insight.held)}


def held_of(place: Mapping[str, Any]) -> Held:
    """Return a place of the column ``held`` as a record."""
    return Held(**{**place, "source": Source(place["source"]), "by": tuple(place.get("by", ()))})


def held_values(held: Sequence[Held]) -> str:
    """Return as JSON on which chips, APIs and workloads an insight's rewrite made kernels faster."""
    return dump([asdict(place) for place in held])


def event_of(row: Row) -> Event:
    """Return a row of ``events`` as a record."""
    return Event(from_json(row["kind"], load(row["data"])), row["run"], row["seq"], row["at"])


def search_values(search: SearchParameters) -> str:
    """Return search parameters as JSON."""
    return dump(asdict(search))
