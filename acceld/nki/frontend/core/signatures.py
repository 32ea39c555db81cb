"""Check arguments of API functions: an unknown option is refused by name, and not ignored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
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
    taken = known | WITHOUT_EFFECT

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not taken.issuperset(kwargs):
            option = min(kwargs.keys() - taken)
            message = f"{module}.{call.__name__} has no option {option!r}"
            hint = f"{did_you_mean(option, known)} its arguments: {shown_arguments(signature)}".strip()
            if option in LACKING.get(call.__name__, ()):
                unsupported(message, hint)
            raise LegalityError(message, rule="signature", line=current().line(), hint=hint)
        try:
            return function(*args, **kwargs)
        except TypeError:
            _bind(f"{module}.{call.__name__}", signature, args, kwargs)
            raise

    return call


def _bind(name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise LegalityError if the signature does not take these arguments."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise LegalityError(
            f"{name}: {error}",
            rule="signature",
            line=current().line(),
            hint=f"its arguments: {shown_arguments(signature)}",
        ) from None
