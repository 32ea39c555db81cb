"""Look up the positional parameters of NKI's functions, as the front ends define them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

Signatures = Mapping[str, tuple[str, ...]]
"""Names of positional parameters, by the name of the function."""


@cache
def positional(api: str, module: str) -> Signatures:
    """Return the positional parameters of every function of a module by the function's name.

    ``module`` is ``isa`` or ``language``; ``api`` is ``nki`` or ``nki_legacy``.
    """
    # imported here, because the front ends take 0.2 s to import
    from acceld.nki.frontend.core import language as shared

    if api == "nki":
        from acceld.nki.frontend.current import declarations, isa

        own = [
            getattr(declarations, name) for name in (*shared.DECLARING, "shared_identity_matrix") if name != "arange"
        ]
        return _listed(isa.FUNCTIONS if module == "isa" else [*shared.functions().values(), *own])
    from acceld.nki.frontend.legacy import isa as legacy_isa
    from acceld.nki.frontend.legacy import language

    return _listed(legacy_isa.FUNCTIONS if module == "isa" else [*shared.functions().values(), *language.FUNCTIONS])


@cache
def of_call(api: str, function: str) -> tuple[str, ...]:
    """Return the positional parameters of the function ``function`` of ``isa``, or else of ``language``; () if neither
    module has the function.
    """
    found = positional(api, "isa").get(function)
    return positional(api, "language").get(function, ()) if found is None else found


def _listed(functions: Iterable[Callable[..., Any]]) -> Signatures:
    """Return the positional parameters of each of ``functions``, by name of the function."""
    found = {}
    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        found[function.__name__] = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
    return MappingProxyType(found)
