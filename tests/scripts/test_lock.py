"""The locked packages are those that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock import LOCK

ROOT = Path(__file__).parents[2]


def test_the_lock_has_every_dependency_in_an_allowed_version_and_each_with_its_hash() -> None:
    lines = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    versions = {}
    for line in lines:
        match = re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line)
        assert match is not None, line
        versions[canonicalize_name(match[1])] = match[2]
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    for one in map(Requirement, asked):
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), str(one)
