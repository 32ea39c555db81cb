"""Measure the time from an empty state folder to the first result, and the processor time of the daemon itself.

``make bench`` runs this. It prints a table, whose figures depend on this machine and its present load.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ACCELD = Path(sys.executable).parent / "acceld"
STATUS_CALLS = 5


def acceld(home: Path, *words: str) -> str:
    """Run a command of ``acceld`` on the state folder ``home``, and return its standard output."""
    command = [str(ACCELD), words[0], "--home", str(home), *words[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def children_cpu_s() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of the process ``pid``, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_result(home: Path, workload: str) -> tuple[float, float, dict[str, object], int, float]:
    """Run a search, and return: seconds until the first evaluated candidate, seconds until the end, the
    outcome, the daemon's pid and its CPU seconds.
    """
    started = time.monotonic()
    run = acceld(home, "optimize", workload, "--preset", "quick").strip()
    number = run.removeprefix("r")
    pid = int(json.loads((home / "daemon.json").read_text(encoding="utf-8"))["pid"])
    first = None
    while True:
        outcome = json.loads(acceld(home, "show", run, "--json"))
        evaluated = sum(outcome["counts"].values())
        if evaluated and first is None:
            first = time.monotonic() - started
        if outcome["state"] in ("finished", "failed", "cancelled"):
            break
        time.sleep(0.2)
    assert number.isdigit()
    return first or 0.0, time.monotonic() - started, outcome, pid, process_cpu_s(pid)


def main() -> None:
    """Measure the start of a search and the daemon's cost, and print the table."""
    workload = sys.argv[1] if len(sys.argv) > 1 else "rmsnorm_matmul"
    with tempfile.TemporaryDirectory(prefix="acceld-bench-") as folder:
        home = Path(folder) / "state"
        first_s, total_s, outcome, pid, cpu_s = first_result(home, workload)
        candidates = sum(outcome["counts"].values())  # type: ignore[attr-defined]  # a mapping
        before = children_cpu_s()
        for _ in range(STATUS_CALLS):
            acceld(home, "status")
        status_cpu_s = (children_cpu_s() - before) / STATUS_CALLS
        acceld(home, "stop")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    rows = [
        ("workload", workload),
        ("seconds from the command to the first evaluated candidate", f"{first_s:.1f}"),
        ("seconds to the end of a quick run", f"{total_s:.1f}"),
        ("candidates", str(candidates)),
        ("candidates a minute", f"{60 * candidates / total_s:.0f}"),
        ("CPU of the daemon without its children, per candidate (ms)", f"{1000 * cpu_s / max(1, candidates):.0f}"),
        ("CPU of acceld status (s)", f"{status_cpu_s:.2f}"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


if __name__ == "__main__":
    main()
