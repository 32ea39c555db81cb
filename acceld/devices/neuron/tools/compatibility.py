"""Decide which chips, SDKs, APIs and workloads work together, according to AWS's documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from acceld.chips import API_CHIPS, REPORTED_CHIPS, chips_of
from acceld.device import Finding
from acceld.parsing import parse
from acceld.workloads import Workload

LEGACY_SDKS = {"trn1": (20, 29), "trn2": (21, 29)}
"""First and last SDK 2.x that compiles ``neuronxcc.nki``, by chip. Source: release notes of 2.20, 2.21 and 2.30."""
CURRENT_SDK = 29
"""First SDK 2.x whose package ``nki`` is more than a beta; the package is for trn2 and trn3."""
REPORTED_SDK = 32
"""First SDK 2.x with which kernels of ``nki`` run on trn1, as foxl-ai/kiln reports. AWS does not support that."""
LAST_BLOCK_SDK = 26
"""Last SDK 2.x that is known to compile block dimensions, although the documentation calls them an error from
2.25 on.
"""
COMPILER_TO_SDK = 5
"""The minor version of an SDK is the minor version of its neuronx-cc plus this number. 2.27.5334 came with SDK 2.32,
and 2.28.7631 with SDK 2.33.
"""


@dataclass(frozen=True, slots=True)
class Runs:
    """The answer whether an API compiles for a chip with an SDK. ``reason`` says why not; empty if the API compiles."""

    reason: str = ""
    blocks: bool = True
    """True if kernels with block dimensions compile too."""


def sdk_of(compiler_version: str) -> int | None:
    """Return x for the SDK 2.x that contained this version of neuronx-cc; None if the version can not be read."""
    match = re.match(r"2\.(\d+)\b", compiler_version)
    return int(match[1]) + COMPILER_TO_SDK if match else None


def runs(api: str, chip: str, sdk: int) -> Runs:
    """Tell whether an API compiles for a chip with SDK 2.``sdk``, and if not, why."""
    if api == "nki":
        if chip not in chips_of(api):
            return Runs(f"the package nki is for {' and '.join(API_CHIPS[api])}, not {chip}")
        if chip in REPORTED_CHIPS.get(api, ()) and sdk < REPORTED_SDK:
            return Runs(
                f"kernels of the package nki are reported to run on {chip} with SDK 2.{REPORTED_SDK}; this is 2.{sdk}"
            )
        return Runs("" if sdk >= CURRENT_SDK else f"nki needs SDK 2.{CURRENT_SDK} or newer; this is 2.{sdk}")
    first, last = LEGACY_SDKS.get(chip, (1, 0))
    if first > last:
        return Runs(f"neuronxcc.nki is for trn1 and trn2, not {chip}")
    if not first <= sdk <= last:
        return Runs(f"neuronxcc.nki compiles for {chip} with SDK 2.{first} to 2.{last}; this is 2.{sdk}")
    return Runs(blocks=sdk <= LAST_BLOCK_SDK)


def has_block_dimensions(text: str) -> bool:
    """Tell whether the kernel declares a tensor whose first dimension is not the partition dimension."""
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Tuple) and any(map(_is_partitions, node.elts[1:])):
            return True
    return False


def _is_partitions(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "par_dim"


def check(api: str, chip: str, compiler_version: str, workloads: Iterable[Workload]) -> Iterator[Finding]:
    """Yield findings: the workloads whose baselines compile for the chip, and the workloads that do not, with
    the reason.
    """
    sdk, name = sdk_of(compiler_version), f"{api} on {chip}"
    if sdk is None:
        yield Finding(name, "note", f"acceld does not know which SDK neuronx-cc {compiler_version} came with")
        return
    found = runs(api, chip, sdk)
    if found.reason:
        yield Finding(name, "note", found.reason, "docs/trainium-sdks.md has the table of chips, SDKs and APIs")
        return
    able: list[str] = []
    unable: list[str] = []
    for one in sorted(workloads, key=lambda one: one.name):
        if api in one.baselines:
            text = one.baselines[api].read_text(encoding="utf-8")
            (able if found.blocks or not has_block_dimensions(text) else unable).append(one.name)
    yield Finding(name, "ok", f"SDK 2.{sdk}: {', '.join(able)}")
    if unable:
        reported = f"block dimensions, which compile up to SDK 2.{LAST_BLOCK_SDK}: {', '.join(unable)}"
        yield Finding(
            name,
            "note",
            f"some baselines do not compile here, because of {reported}",
            "give another kernel: --workload W KERNEL.py",
        )
