"""Additions of a third party to acceld. This module is imported by every command, so it imports nothing heavy."""

from pathlib import Path

from acceld.device import Device, Target

WORKLOADS = Path(__file__).parent / "workloads"

DEVICE = Device(
    "abacus",
    (Target("abacus", {"beads": ("wood", "stone")}),),
    evaluator="example_plugin.abacus:evaluator",
    doctor="example_plugin.abacus:doctor",
    readers={"beads": "example_plugin.abacus:read"},
)
