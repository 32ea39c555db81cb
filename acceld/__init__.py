"""acceld makes accelerator kernels faster.

``acceld.optimize`` and ``acceld.Optimized`` come from :mod:`acceld.api` when they are first used, so that importing
a part of the package imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acceld.api import Optimized, optimize

__all__ = ["Optimized", "optimize"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from acceld import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
