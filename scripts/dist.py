"""Build the sdist and the wheel, check both, and try each in an empty environment of every Python at hand.

Run by ``make dist``. Exit code 1 where a package does not build, does not pass ``twine check``, or does not run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TRIALS = (("--version",), ("workloads",), ("profile", "rmsnorm_matmul"), ("selftest", "--help"))
"""Commands of ``acceld`` that must work in an empty environment."""


def run(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command; return what it printed."""
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)


def interpreters() -> list[str]:
    """Return the supported Pythons that start on this machine."""
    found = [shutil.which(f"python{version}") for version in VERSIONS]
    return [path for path in found if path and run(path, "-c", "import venv").returncode == 0]


def install(python: str, package: Path, place: Path) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Install a package with pip, and with uv where it is there, each into an empty environment, and try it."""
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
    """Build, check and try; print one line a trial."""
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
        for python in interpreters():
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
