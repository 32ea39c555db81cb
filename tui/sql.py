"""Complete SQL statements. The functions are pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

KEYWORDS = (
    "SELECT FROM WHERE GROUP BY ORDER BY HAVING LIMIT JOIN LEFT JOIN ON AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE "
    "END DISTINCT UNION DESC ASC WITH count( sum( avg( min( max( round( coalesce( substr( json_extract("
)
WORDS = tuple(dict.fromkeys(re.findall(r"(?:GROUP|ORDER) BY|LEFT JOIN|\S+", KEYWORDS)))
SOURCE = re.compile(
    r"\b(?:from|join)\s+(\w+)(?:\s+(?:as\s+)?(?!on\b|join\b|left\b|where\b|group\b|order\b|limit\b)(\w+))?",
    re.IGNORECASE,
)
BEGUN = re.compile(r"(?:(\w+)\.)?(\w*)$")


def completions(before: str, text: str, tables: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the words that may complete the text ``before`` the cursor, likeliest first, without the part that is
    typed already.

    ``text`` is the whole statement: columns of the tables that it names are offered. ``tables`` has all tables with
    their columns.
    """
    begun = BEGUN.search(before)
    assert begun is not None
    owner, prefix = begun[1], begun[2]
    named = [(table, alias or table) for table, alias in SOURCE.findall(text) if table in tables]
    if owner:
        words = [column for table, alias in named if owner in (alias, table) for column in tables[table]]
    elif re.search(r"\b(?:from|join)\s+\w*$", before, re.IGNORECASE):
        words = list(tables)
    elif not prefix:
        return []
    else:
        words = [column for table, _ in named for column in tables[table]]
        words += [*WORDS, *tables, *(column for columns in tables.values() for column in columns)]
    low = prefix.lower()
    fits = [word for word in dict.fromkeys(words) if word.lower().startswith(low) and len(word) > len(prefix)]
    rest = [word[len(prefix) :] for word in fits]
    return [one.lower() if prefix.islower() and word.isupper() else one for one, word in zip(rest, fits, strict=True)]
