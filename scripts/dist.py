"""Build the sdist and the wheel, check both, and try each in an empty environment for every Python on this
machine.

``make dist`` runs it. ``PYTHONS="PATH ..."`` names interpreters; otherwise those on the path and those of pyenv
are tried. The exit code is 1 if the changelog does not match the version, or if a package does not build, does
not pass ``twine check``, does not install or does not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TRIALS = (("--version",), ("workloads",), ("profile", "rmsnorm_matmul"), ("doctor", "--help"))
"""Commands of ``acceld`` that must work in an empty environment."""


def run(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output."""
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)


def version() -> str:
    """Return the version stated in pyproject.toml, the only place that states it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def newest_section(changelog: str) -> str:
    """Return the title of a changelog's first section, without its date: ``Unreleased`` or a version."""
    found = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    return found[1] if found else ""


def interpreters(named: Sequence[str]) -> list[str]:
    """Return the Pythons to try: ``named``; without names, one of each supported version that starts on this
    machine.
    """
    if named:
        return list(named)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for wanted in VERSIONS:
        places = [shutil.which(f"python{wanted}"), *sorted(pyenv.glob(f"{wanted}.*/bin/python{wanted}"))]
        works = (str(path) for path in places if path and run(path, "-c", "import venv").returncode == 0)
        found += [path for path in [next(works, "")] if path]
    return found


def install(python: str, package: Path, place: Path) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Install a package into an empty environment with pip, and into another one with uv if uv is installed.
    Try it in each, and return the results.
    """
    done = []
    uv = Path(sys.executable).with_name("uv")
    for name in ("pip", *(("uv",) if uv.exists() else ())):
        env = place / name
        made = run(python, "-m", "venv", env)
        target = env / "bin" / "python"
        command: Sequence[str | Path] = (
            (target, "-m", "pip", "install", "-q", "--disable-pip-version-check", package)
            if name == "pip"
            else (uv, "pip", "install", "-q", "--python", target, package)
        )
        steps = [made, run(*command)] if not made.returncode else [made]
        if not any(step.returncode for step in steps):
            steps += [run(env / "bin" / "acceld", *words, cwd=place) for words in TRIALS]
        done.append((name, next((step for step in steps if step.returncode), steps[-1])))
    return done


def main() -> int:
    """Build, check and try both packages; print one line for each trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="interpreters to try (default: those at hand)")
    pythons = interpreters(parser.parse_args().pythons)
    section = newest_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if section not in ("Unreleased", version()):
        print(f"CHANGELOG.md begins with {section!r}; the version is {version()}: name the section so, or Unreleased")
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    built = run(sys.executable, "-m", "build", "--outdir", DIST)
    packages = sorted(DIST.iterdir()) if not built.returncode else []
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *packages) if packages else built
    if checked.returncode:
        print(checked.stdout[-4000:] + checked.stderr[-4000:])
        return 1
    bad = 0
    for package in packages:
        print(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB, twine check passed")
        for python in pythons:
            with tempfile.TemporaryDirectory(prefix="acceld-dist-") as place:
                for installer, done in install(python, package, Path(place)):
                    print(
                        f"  {Path(python).name} by {installer}: {'failed' if done.returncode else 'runs'}", flush=True
                    )
                    if done.returncode:
                        bad += 1
                        print(done.stdout[-2000:] + done.stderr[-2000:])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
