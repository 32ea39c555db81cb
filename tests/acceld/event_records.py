"""Draw any event, for property tests. Numbers are finite, as JSON has no others."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from acceld.events import EventData, Steered

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=4)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ARGUMENTS = st.dictionaries(st.text().filter(lambda name: name not in ("action", "by", "result")), JSON, max_size=4)


def _of(kind: type[EventData], text: st.SearchStrategy[str]) -> st.SearchStrategy[EventData]:
    if kind is Steered:
        return st.builds(Steered, text, text, text, ARGUMENTS)
    hints = kind.__annotations__
    given: dict[str, st.SearchStrategy[Any]] = {name: NUMBERS for name, hint in hints.items() if hint == "float"}
    given |= {name: st.none() | NUMBERS for name, hint in hints.items() if hint == "float | None"}
    given |= {name: text for name, hint in hints.items() if hint == "str"}
    if "search" in hints:
        given["search"] = st.dictionaries(st.text(), JSON, max_size=4)
    return st.builds(kind, **given)


def event_data(text: st.SearchStrategy[str]) -> st.SearchStrategy[EventData]:
    """Return strategy for the data of any event; its texts are drawn from ``text``."""
    return st.one_of(*(_of(kind, text) for kind in get_args(EventData)))
