"""Say how many examples property tests try: few in the suite, the same in every run, and many under ``make fuzz``."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

_FACTOR = 5 if settings.get_current_profile_name() == "fresh" else 1


def examples(count: int, **others: Any) -> settings:
    """Return the settings of a property test that tries ``count`` examples in the suite, and five times as many under
    ``make fuzz``.
    """
    return settings(max_examples=count * _FACTOR, **others)
