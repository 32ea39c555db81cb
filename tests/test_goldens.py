"""acceld computes, decides and stores what is recorded in tests/goldens; scripts/goldens.py records it anew."""

from __future__ import annotations

import pytest

from acceld.evaluate.sandbox.jail import Level
from scripts import goldens
from scripts.goldens import Entries

WORKLOADS = ("silu", "rmsnorm_bf16")
"""Workloads that are traced and timed in a moment."""
ATTACKS = "F0[1-5]*"


def assert_as_recorded(name: str, found: Entries, *, all_of_it: bool) -> None:
    known = goldens.record(name)
    assert known, f"there is no record of {name}: scripts/goldens.py --write"
    level = known.get("sandbox", {}).get("level")
    if level is not None and Level[found["sandbox"]["level"]] < Level[level]:
        pytest.skip(f"evaluations were recorded in a sandbox of level {level}")
    kept = known if all_of_it else {entry: value for entry, value in known.items() if entry in found}
    kept, found = ({entry: value for entry, value in one.items() if entry != "sandbox"} for one in (kept, found))
    assert goldens.differences(kept, found) == [], "if this is meant: python scripts/goldens.py --write"


def test_small_kernels_are_the_programs_they_were_with_the_same_profiles() -> None:
    found = goldens.programs(WORKLOADS)
    assert len(found) >= 4
    assert_as_recorded("programs", found, all_of_it=False)


def test_a_few_attacks_end_as_they_did() -> None:
    found = goldens.evaluations("simulator", only=ATTACKS)
    assert len(found) >= 6
    assert_as_recorded("evaluations_simulator", found, all_of_it=False)


def test_a_difference_is_reported_by_entry_and_place() -> None:
    known = {"a": {"x": [1, 2.0], "any": goldens.ANY}, "b": 1}
    found = {"a": {"x": [1, 3.0], "any": 7}, "c": {"y": 1}}
    assert goldens.differences(known, known) == []
    assert goldens.differences(known, found) == ["a: x[1]: 2.0 -> 3.0", "b: gone, was 1", 'c: new, {"y":1}']


@pytest.mark.slow
@pytest.mark.timeout(3600)  # twelve minutes on two idle cores, and no verdict depends on the time
@pytest.mark.parametrize("name", sorted(name for part in goldens.PARTS.values() for name in part))
def test_everything_is_as_recorded(name: str) -> None:
    make = next(part[name] for part in goldens.PARTS.values() if name in part)
    assert_as_recorded(name, make(1), all_of_it=True)
