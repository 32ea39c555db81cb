"""Run the property tests with fresh seeds for a given time; stop at the first example that fails.

usage: fuzz.py [--seconds N] [pytest arguments ...]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time


def main() -> int:
    """Run the tests until the time is over, and return 0; after a failure, return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="seconds to run for (600)")
    options, selected = parser.parse_known_args()
    end = time.monotonic() + options.seconds
    rounds = 0
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(2**32)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "hypothesis and not slow", "--timeout=0"]
        command += ["--hypothesis-profile=fresh", f"--hypothesis-seed={seed}", *selected]
        try:
            done = subprocess.run(command, timeout=max(end - time.monotonic(), 1.0), check=False)
        except subprocess.TimeoutExpired:
            break
        if done.returncode:
            print(f"failed with --hypothesis-seed={seed}")
            return done.returncode
        rounds += 1
    print(f"{rounds} whole rounds of the property tests, nothing failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
