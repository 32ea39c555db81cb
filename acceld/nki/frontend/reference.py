"""Look up calls of both NKI APIs by name: their parameters, and whether the simulator supports them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NEAR = 5
"""Number of similar names that :func:`near` returns at most."""


@dataclass(frozen=True, slots=True)
class Call:
    """One function of an NKI API."""

    module: str
    name: str
    api: str
    signature: str
    """The function's parameters, such as ``(dst, src)``; empty if the simulator does not support the function."""
    state: str
    """``supported``, perhaps with a remark, or ``unsupported:`` and the reason."""
    text: str = ""


def look_up(name: str) -> tuple[Call, ...]:
    """Return the calls with a name such as ``nc_matmul`` or ``nisa.nc_matmul``, for each API that has one."""
    bare = name.strip().removesuffix("()").rpartition(".")[2]
    return tuple(call for call in _calls() if call.name == bare)


def near(name: str) -> list[str]:
    """Return at most :data:`NEAR` names of calls that are close to ``name``: first those spelled alike, then
    those that contain it.
    """
    bare = name.strip().rpartition(".")[2].lower()
    names = sorted({call.name for call in _calls()})
    close = difflib.get_close_matches(bare, names, n=NEAR)
    return list(dict.fromkeys([*close, *(one for one in names if len(bare) > 2 and bare in one)]))[:NEAR]


def _calls() -> Iterator[Call]:
    """Yield every documented call of both APIs, also those that the simulator does not support."""
    from acceld.nki.frontend.current import isa, language
    from acceld.nki.frontend.current.surface import surface
    from acceld.nki.frontend.legacy import isa as legacy_isa
    from acceld.nki.frontend.legacy import language as legacy_language
    from acceld.nki.frontend.legacy.surface import SURFACE

    offered: dict[str, Mapping[str, Any]] = {
        "neuronxcc.nki.isa": legacy_isa.namespace(),
        "neuronxcc.nki.language": legacy_language.namespace(),
        "nki.isa": isa.namespace(),
        "nki.language": language.namespace(),
    }
    for module, states in {**SURFACE, **surface()}.items():
        api = "nki_legacy" if module.startswith("neuronxcc") else "nki"
        for name, state in states.items():
            function = offered.get(module, {}).get(name) if state.startswith("supported") else None
            signature, text = _described(function) if callable(function) else ("", "")
            yield Call(module, name, api, signature, state, text)


def _described(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the parameters of ``function`` as text without types, and its docstring.

    If the signature is not known, the texts are ``(...)`` and empty.
    """
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)", ""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    parameters = found.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return str(parameters), inspect.getdoc(function) or ""
