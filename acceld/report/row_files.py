"""Write rows to files: as JSON lines, or as Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acceld.errors import UsageError


def write_lines(place: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write each row as one line of JSON, and return the number of rows."""
    count = 0
    with place.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def write_parquet(place: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as Parquet. Raise UsageError if pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow", hint="pip install 'acceld[parquet]'") from error
    parquet.write_table(pyarrow.Table.from_pylist(rows), place)
