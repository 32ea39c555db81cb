"""Rewrite rules: source-to-source changes of kernels, each with a hardware reason and a proven precondition.

One rule a module; :func:`all_rules` lists them. Importing this package imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acceld.proposers.rules.records import Rule

MODULES = (
    "composite",
    "fuse_nests",
    "transpose_once",
    "hoist_loads",
    "hoist_work",
    "swap_operands",
    "group_iterations",
    "interchange",
    "widen_tiles",
    "reduce_in_activation",
    "consume_psum",
    "fold_scalars",
    "place_engine",
)
"""Modules of this package that hold a rule, as ``RULE``."""


def all_rules() -> tuple[Rule, ...]:
    """Every rule: those for NKI in the order of MODULES, then those for Triton and for C."""
    nki = "acceld.proposers.rules.nki"
    listed = [f"{nki}.{module}" for module in MODULES]
    for device in ("acceld.devices.cuda.rules", "acceld.devices.cpu.rules"):
        listed += [f"{device}.{module}" for module in import_module(device).MODULES]
    return tuple(import_module(module).RULE for module in listed)


def rule_named(name: str) -> Rule:
    """The rule called ``name``; KeyError if there is none."""
    for rule in all_rules():
        if rule.name == name:
            return rule
    raise KeyError(name)
