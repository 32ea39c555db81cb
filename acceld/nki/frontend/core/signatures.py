"""Check arguments of API functions: an unknown option is refused by name, and not ignored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, KeysView
from typing import Any

from acceld.errors import did_you_mean
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.core.context import current, unsupported
from acceld.nki.frontend.shims import shown_arguments

WITHOUT_EFFECT = frozenset("name lazy_initialization precise_schedule directives loc".split())
"""Options that set names or hints for the compiler, and change neither values nor instructions."""

LACKING = {"softmax": ("compute_dtype",), "rms_norm": ("compute_dtype",), "scalar_tensor_tensor": ("dtype",)}
"""Documented options that the simulator lacks. Any other unknown option is the kernel's mistake."""


def checked(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` so that it refuses unknown options in ``**kwargs``."""
    signature = inspect.signature(function)
    known = frozenset(signature.parameters)
    fits = _plain_calls(signature)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        unknown = kwargs.keys() - known - WITHOUT_EFFECT
        if unknown:
            option = min(unknown)
            message = f"{module}.{call.__name__} has no option {option!r}"
            hint = f"{did_you_mean(option, known)} its arguments: {shown_arguments(signature)}".strip()
            if option in LACKING.get(call.__name__, ()):
                unsupported(message, hint)
            raise LegalityError(message, rule="signature", line=current().line(), hint=hint)
        if fits(len(args), kwargs.keys()):
            return function(*args, **kwargs)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise LegalityError(
                f"{module}.{call.__name__}: {error}",
                rule="signature",
                line=current().line(),
                hint=f"its arguments: {shown_arguments(signature)}",
            ) from None
        return function(*args, **kwargs)

    return call


def _plain_calls(signature: inspect.Signature) -> Callable[[int, KeysView[str]], bool]:
    """Return a quick test of the number of values by place and the names of the others.

    True means that the signature takes them; False that binding them must decide.
    """
    parameters = signature.parameters.values()
    by_place = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_name = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    required = {one.name for one in parameters if one.name in by_name and one.default is one.empty}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        by_name |= WITHOUT_EFFECT
    simple = all(one.kind is not one.POSITIONAL_ONLY for one in parameters)

    def fits(count: int, names: KeysView[str]) -> bool:
        placed = set(by_place[:count])
        return simple and count <= len(by_place) and names <= by_name - placed and required <= placed | names

    return fits
