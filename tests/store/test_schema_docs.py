"""docs/schema.md tells of every table, view and column, and its queries run."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from acceld.store.connection import NEWEST_SCHEMA
from acceld.store.database import Store
from tests.store import records

PAGE = Path(__file__).parents[2] / "docs" / "schema.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
INTERNAL = re.compile(r"_search_|^sqlite_|^_sqlite_migrations$")


def test_the_page_states_the_newest_version() -> None:
    assert f"the schema's version ({NEWEST_SCHEMA})" in PAGE.read_text()


def test_the_queries_of_the_page_are_found() -> None:
    assert len(QUERIES) == 11


async def test_each_query_gives_rows(store: Store) -> None:
    await records.small_run(store)

    def run_all(connection: sqlite3.Connection) -> list[int]:
        return [len(connection.execute(query).fetchall()) for query in QUERIES]

    assert all(count > 0 for count in await store.read(run_all))


async def test_every_table_view_and_column_is_described(store: Store) -> None:
    def names(connection: sqlite3.Connection) -> dict[str, list[str]]:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
        return {
            row["name"]: [column["name"] for column in connection.execute(f"PRAGMA table_info({row['name']})")]
            for row in found
            if not INTERNAL.search(row["name"])
        }

    page = PAGE.read_text()
    words = set(re.findall(r"[a-z_0-9]+", page))
    missing = [
        f"{table}.{column}"
        for table, columns in (await store.read(names)).items()
        for column in ("", *columns)
        if (column or table) not in words
    ]
    assert missing == []
