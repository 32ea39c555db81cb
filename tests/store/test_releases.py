"""A database of every earlier release opens, is brought to the newest schema, and loses nothing.

``releases/schema_N.db.gz`` was written by the first release of schema N: ``python -m tests.store.test_releases N``
writes the newest. A change of a migration that was released fails here.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

import pytest

from acceld.store.changes.runs import recover_runs
from acceld.store.database import Store
from acceld.store.maintenance import check
from acceld.store.reads import listing
from acceld.store.reads.records import load_candidates, load_insights
from acceld.store.schema.migrations import SCHEMA_VERSION, names
from tests.store import records

RELEASES = Path(__file__).parent / "releases"
SAVED = sorted(RELEASES.glob("schema_*.db.gz"), key=lambda path: int(path.name.split("_")[1].split(".")[0]))


def test_there_is_one_of_each_schema() -> None:
    assert [saved.name for saved in SAVED] == [f"schema_{number}.db.gz" for number in range(1, SCHEMA_VERSION + 1)]
    assert names()[0] == "m001_initial"


@pytest.mark.parametrize("saved", SAVED, ids=lambda saved: saved.name)
async def test_it_opens_and_everything_is_there(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    await asyncio.to_thread(lambda: path.write_bytes(gzip.decompress(saved.read_bytes())))
    store = await asyncio.to_thread(Store.open, path)
    row = await store.read(listing.run_row, 1)
    assert (row["workload"], row["speedup"], row["wins"]) == ("nkibench/silu", 1.25, 0), "1.25x is a tie"
    assert (row["improved"], row["tie_band"], row["timed_again"]) == (False, 34.0, "")
    assert len(await store.read(load_candidates, 1, details=True)) == 3
    assert len(await store.read(load_insights)) == 1
    again = await records.small_run(store)
    assert again.id == 2
    await store.close()
    assert (await asyncio.to_thread(check, path)).problems == ()


def test_released_migrations_are_not_edited(tmp_path: Path) -> None:
    def schema(path: Path) -> list[tuple[str, str]]:
        connection = sqlite3.connect(path)
        try:
            return connection.execute(
                "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
            ).fetchall()
        finally:
            connection.close()

    old, new = tmp_path / "old.db", tmp_path / "new.db"
    old.write_bytes(gzip.decompress(SAVED[-1].read_bytes()))
    Store.open(new).close_now()
    assert schema(old) == schema(new)


async def test_a_stored_parameter_has_the_name_it_has_now(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    await asyncio.to_thread(lambda: path.write_bytes(gzip.decompress(SAVED[2].read_bytes())))
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE profile_details SET details = '{"params":{"deals_copies":true}}'""")
    connection.close()
    store = await asyncio.to_thread(Store.open, path)
    details = await store.read(
        lambda connection: [row[0] for row in connection.execute("SELECT details FROM profile_details")]
    )
    await store.close()
    assert details and set(details) == {'{"params":{"alternates_copies":true}}'}


async def test_a_measured_profile_keeps_the_tie_that_it_stated(tmp_path: Path) -> None:
    measured = '{"prediction":{"paired_band":{"mixed":3.5}}}'
    predicted = '{"prediction":{"class":"predicted","paired_band":{"dma":34.0,"mixed":34.0}}}'
    path = tmp_path / "acceld.db"
    await asyncio.to_thread(lambda: path.write_bytes(gzip.decompress(SAVED[4].read_bytes())))
    with sqlite3.connect(path) as connection:
        first = connection.execute("SELECT min(evaluation) FROM profile_details").fetchone()[0]
        connection.execute(
            "UPDATE profile_details SET details = iif(evaluation = ?, ?, ?)", (first, measured, predicted)
        )
    connection.close()
    store = await asyncio.to_thread(Store.open, path)
    kept, *others = await store.read(
        lambda connection: [
            json.loads(row[0]) for row in connection.execute("SELECT details FROM profile_details ORDER BY evaluation")
        ]
    )
    await store.close()
    assert kept == {"prediction": {}, "tie_percent": 3.5}
    assert others and all(other == {"prediction": {"class": "predicted"}} for other in others)


async def test_a_call_keeps_the_cost_that_was_expected_of_it(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    await asyncio.to_thread(lambda: path.write_bytes(gzip.decompress(SAVED[8].read_bytes())))
    under_way = 'key = "lost", outcome = NULL, cost_usd = NULL, sent_at = started_at, reserved_usd = 0.02'
    settings = '{"max_output_tokens":2000,"tags":{"index":1},"expected_usd":0.003}'
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE llm_calls SET {under_way}, model = 'other', parameters = ?", (settings,))
    connection.close()
    store = await asyncio.to_thread(Store.open, path)
    await store.change(recover_runs, "the daemon was killed")
    call = await store.read(listing.call_row, 1)
    await store.close()
    assert (call["expected_usd"], call["parameters"]) == (0.003, {"max_output_tokens": 2000, "tags": {"index": 1}})
    assert (call["outcome"], call["cost_usd"]) == ("interrupted", 0.003)
    assert call["uncertain_usd"] == pytest.approx(0.017)


PAIRED = '{"tie_percent":2.0,"paired":[{"against":"%s","win":%s}]}'


@pytest.mark.parametrize(
    ("change", "improved"),
    [
        ("UPDATE candidates SET latency_us = 50.0 WHERE id = 2", 1),
        ("UPDATE candidates SET latency_us = 80.0 WHERE id = 2", 0),
        ("UPDATE profiles SET interval_percent = NULL WHERE evaluation = 1", 0),
        ("UPDATE profiles SET interval_percent = NULL WHERE evaluation > 1", 0),
        ("UPDATE evaluations SET key = replace(key, '.m8/', '.m7/') WHERE id = 1", 0),
        ("UPDATE evaluations SET key = replace(key, '.m8/', '.m8.c8.7.1-1-1/') WHERE id > 1", 0),
        ("UPDATE profiles SET source = 'measured'", 0),
        ("UPDATE profiles SET source = 'measured'; UPDATE profile_details SET details = '{\"tie_percent\":9.0}'", 1),
        ("UPDATE profiles SET source = 'measured'; UPDATE profile_details SET details = PAIRED_TRUE", 1),
        ("UPDATE profiles SET source = 'measured'; UPDATE profile_details SET details = PAIRED_FALSE", 0),
    ],
)
async def test_speedups_of_earlier_runs_are_judged_when_the_schema_changes(
    change: str, improved: int, tmp_path: Path
) -> None:
    path = tmp_path / "acceld.db"
    await asyncio.to_thread(lambda: path.write_bytes(gzip.decompress(SAVED[6].read_bytes())))
    with sqlite3.connect(path) as connection:
        against = connection.execute("SELECT source FROM candidates WHERE id = 1").fetchone()[0]
        connection.execute("UPDATE candidates SET latency_us = 50.0, speedup = 2.0, parent_speedup = 2.0 WHERE id = 2")
        connection.execute("UPDATE evaluations SET key = 'nkibench/silu/0123456789ab.m8/simulator/trn1/strict/' || id")
        for won in ("true", "false"):
            change = change.replace(f"PAIRED_{won.upper()}", f"'{PAIRED % (against, won)}'")
        connection.executescript(change)
    connection.close()
    store = await asyncio.to_thread(Store.open, path)
    row = await store.read(listing.run_row, 1)
    assert (row["improved"], row["wins"]) == (bool(improved), improved)
    assert row["basis"]["workload"] == "0123456789ab" and row["basis"]["chip"] == "trn1"
    models = await store.read(lambda connection: {one[0] for one in connection.execute("SELECT model FROM profiles")})
    assert models <= {"8", "7", "8.c8.7.1-1-1", ""} and ("measured" in change or "8" in models)
    await store.close()
    problems = (await asyncio.to_thread(check, path)).problems
    assert not [one for one in problems if not one.startswith("evaluation_keys")], "the keys were changed above"


async def _write(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = await asyncio.to_thread(Store.open, Path(folder) / "acceld.db")
        await records.small_run(store)
        await store.close()
        data = await asyncio.to_thread((Path(folder) / "acceld.db").read_bytes)
    await asyncio.to_thread(target.write_bytes, gzip.compress(data, mtime=0))


if __name__ == "__main__":
    asyncio.run(_write(RELEASES / f"schema_{int(sys.argv[1])}.db.gz"))
