"""Arguments of API functions: an option the simulator does not know is refused by name, not ignored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from acceld.errors import did_you_mean
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.core.context import current, unsupported

WITHOUT_EFFECT = frozenset("name lazy_initialization precise_schedule directives loc".split())
"""Options that name things or steer the compiler, and change neither values nor instructions."""


def checked(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, refusing options that it would swallow in ``**kwargs``."""
    signature = inspect.signature(function)
    known = frozenset(signature.parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        unknown = kwargs.keys() - known - WITHOUT_EFFECT
        if unknown:
            option = min(unknown)
            unsupported(
                f"{module}.{call.__name__} has no option {option!r}",
                did_you_mean(option, known) or f"its options: {', '.join(sorted(known - {'kwargs'}))}",
            )
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise LegalityError(
                f"{module}.{call.__name__}: {error}",
                rule="signature",
                line=current().line(),
                hint=f"its arguments: {_shown(signature)}",
            ) from None
        return function(*args, **kwargs)

    return call


def _shown(signature: inspect.Signature) -> str:
    """The parameters as a call lists them: names, ``*`` before those only by name, numbers of defaults."""
    shown, star = [], False
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            shown.append(f"*{one.name}")
            star = True
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        default = one.default
        text = getattr(default, "__name__", repr(default))
        shown.append(one.name if default is inspect.Parameter.empty else f"{one.name}={text}")
    return ", ".join(shown)
