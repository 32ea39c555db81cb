"""Say how much of a sweep the suite tries: few examples of property tests, the same in every run, and many under
``make fuzz``; some cases of a list, and all under ``make test-all``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

_FACTOR = 5 if settings.get_current_profile_name() == "fresh" else 1


def examples(count: int, **others: Any) -> settings:
    """Return the settings of a property test that tries ``count`` examples in the suite, and five times as many under
    ``make fuzz``.
    """
    return settings(max_examples=count * _FACTOR, **others)


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return cases for ``pytest.mark.parametrize``. The suite tries the first of every ``count`` cases, ``make test-all``
    tries all. A tuple is one case of several arguments.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        if number % count
        else case
        for number, case in enumerate(cases)
    ]
