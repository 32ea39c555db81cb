"""A module whose arguments are a list, a dict and more, with a function that draws them, one of which is not read."""

from __future__ import annotations

import torch
from torch import Tensor

from modules import Several  # noqa: F401  (the module that a request names)


def get_inputs() -> list[object]:
    """Return arguments of different sizes of values, so that mistaken places show."""
    first = [torch.rand(4, 8), torch.randint(5, 9, (4, 8)).float()]
    named: dict[str, Tensor] = {"a": torch.zeros(2), "b": torch.randn(4, 8)}
    return [first, named, torch.rand(4, 8), torch.randn(4, 8)]
