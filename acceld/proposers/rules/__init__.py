"""Hold the rewrite rules: changes of a kernel's source, each with a reason in the hardware and a proved precondition.

A rule is a module; :func:`all_rules` lists all rules. Importing this package imports no rule.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from acceld import plugins
from acceld.targets import ALL_DEVICES

if TYPE_CHECKING:
    from acceld.proposers.rules.records import Rule

NKI = "acceld.proposers.rules.nki"
MODULES = (
    "composite",
    "keep_on_chip",
    "fuse_nests",
    "transpose_once",
    "hoist_loads",
    "hoist_work",
    "hoist_results",
    "sink_work",
    "swap_operands",
    "group_iterations",
    "interchange",
    "sum_in_psum",
    "block_columns",
    "widen_tiles",
    "fill_partitions",
    "reduce_once",
    "drain_once",
    "load_once",
    "store_once",
    "merge_transfers",
    "split_loads",
    "order_loads",
    "reduce_in_activation",
    "reduce_in_copy",
    "scale_after_product",
    "consume_psum",
    "fold_scalars",
    "place_engine",
    "split_products",
    "turn_parts",
    "turn_by_transfer",
    "turn_on_engine",
    "tile_columns",
    "pipeline_stages",
    "unroll_and_jam",
)
"""Modules in the package :data:`NKI`; each has a rule in ``RULE``. Their order changes no rewrite."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return all rules: those for NKI in the order of MODULES, then those of the devices, then those of installed
    packages.
    """
    listed = [f"{NKI}.{module}" for module in MODULES]
    for device in ALL_DEVICES:
        listed += [f"{device.rules}.{module}" for module in import_module(device.rules).MODULES] if device.rules else []
    own = [import_module(module).RULE for module in listed]
    names = {rule.name for rule in own}

    def fault(value: Any) -> str:
        missing = [
            name for name in ("name", "reason", "source", "apis", "change_class", "find") if not hasattr(value, name)
        ]
        if missing:
            return f"{value!r} is not a rewrite rule: it has no {missing[0]}"
        return f"there is a rule {value.name!r} already" if value.name in names else ""

    return (*own, *(plugin.value for plugin in plugins.accepted("acceld.rules", fault)))


def rule_named(name: str) -> Rule:
    """Return the rule called ``name``. Raise KeyError if no rule has that name."""
    for rule in all_rules():
        if rule.name == name:
            return rule
    raise KeyError(f"there is no rule {name}; a rule's module is listed in MODULES of its package")
