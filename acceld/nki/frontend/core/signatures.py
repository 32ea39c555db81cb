"""Check the arguments of API functions, so that an error names the unknown option."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from acceld.errors import did_you_mean
from acceld.nki.errors import LegalityError, UnsupportedCall
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.shims import shown_arguments

WITHOUT_EFFECT = frozenset("name lazy_initialization precise_schedule directives loc".split())
"""Options that give names or hints to the compiler and change neither values nor instructions."""

LACKING = {"softmax": ("compute_dtype",), "rms_norm": ("compute_dtype",), "scalar_tensor_tensor": ("dtype",)}
"""Documented options that the simulator lacks, by function. Any other unknown option is the kernel's mistake."""

OWN_CODE = sys.stdlib_module_names | {__name__.partition(".")[0], "numpy", "ml_dtypes"}
"""Top-level modules whose code runs as part of an API function. Code of any other module belongs to the kernel."""


def defined_in(*modules: ModuleType) -> Iterator[Callable[..., Any]]:
    """Yield the public functions that each of ``modules`` has defined until now, in the order of their definition."""
    for module in modules:
        for name, function in list(vars(module).items()):
            own = isinstance(function, FunctionType) and function.__module__ == module.__name__
            if own and not name.startswith("_"):
                yield function


def checked(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with a check that raises LegalityError for an option that the function lacks.

    For a documented option that the simulator lacks, the check raises UnsupportedCall. ``module`` is the module's name
    for messages.
    """
    signature = inspect.signature(function)
    known = frozenset(signature.parameters)
    taken = known | WITHOUT_EFFECT

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not taken.issuperset(kwargs):
            option = min(kwargs.keys() - taken)
            message = f"{module}.{call.__name__} has no option {option!r}"
            hint = f"{did_you_mean(option, known)} its parameters are: {shown_arguments(signature)}".strip()
            if option in LACKING.get(call.__name__, ()):
                unsupported(message, hint)
            refuse("signature", message, hint)
        return answering(*args, **kwargs)

    answering = answered(module, function)
    return call


def answered(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` changed so that all its errors name the function.

    A Python error about the arguments, such as TypeError, becomes a LegalityError that lists the parameters.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (LegalityError, UnsupportedCall) as failure:
            if _word(function) not in failure.message and _is_ours(failure.__traceback__):
                failure.message = f"{module}.{_word(function)}: {failure.message}"
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            name = f"{module}.{_word(function)}"
            _bind(name, signature, args, kwargs)
            if not _is_ours(error.__traceback__):
                raise
            given = [*map(_shown, args), *(f"{key}={_shown(value)}" for key, value in kwargs.items())]
            message = f"{name} can not take the arguments ({', '.join(given)})"
            refuse("operand_type", message, f"its parameters are: {shown_arguments(signature)}")

    return call


def _word(function: Callable[..., Any]) -> str:
    """Return the name of a function without its class."""
    return function.__name__.rpartition(".")[2]


def _is_ours(traceback: TracebackType | None) -> bool:
    """Tell whether an error was raised by the API call itself, and not by a function of the kernel that the call ran."""
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in OWN_CODE:
            return False
        traceback = traceback.tb_next
    return True


def _shown(value: object) -> str:
    """Return the text that stands for an argument in a message: a number, a text or a name as written; for other values
    the name of the type.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)[:60]
    return type(value).__name__


def _bind(name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise LegalityError if a call with ``args`` and ``kwargs`` does not fit ``signature``."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        refuse("signature", f"{name}: {error}", f"its parameters are: {shown_arguments(signature)}")
