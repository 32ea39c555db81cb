"""Arguments of API functions: an option the simulator does not know is refused by name, not ignored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from acceld.errors import did_you_mean
from acceld.nki.errors import UnsupportedCall
from acceld.nki.frontend.state import current

WITHOUT_EFFECT = frozenset("name lazy_initialization precise_schedule directives loc".split())
"""Options that name things or steer the compiler, and change neither values nor instructions."""


@functools.lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def checked(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, refusing options that it would swallow in ``**kwargs``."""
    known = _parameters(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        unknown = kwargs.keys() - known - WITHOUT_EFFECT
        if unknown:
            option = min(unknown)
            raise UnsupportedCall(
                f"{module}.{call.__name__} has no option {option!r}",
                line=current().line(),
                hint=did_you_mean(option, known) or f"its options: {', '.join(sorted(known - {'kwargs'}))}",
            )
        return function(*args, **kwargs)

    return call
