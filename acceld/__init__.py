"""acceld makes accelerator kernels faster.

``acceld.optimize``, ``acceld.Optimized`` and ``acceld.best`` are imported on first use, so that importing a part of the
package imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acceld.api import Optimized, optimize
    from acceld.production import best

__all__ = ["Optimized", "best", "optimize"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("acceld.production" if name == "best" else "acceld.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
