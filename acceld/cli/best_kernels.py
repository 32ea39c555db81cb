"""Find the best kernel of a run or of a workload, for the commands that print it or write it."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld import figures
from acceld.cli.connect import reading, run_named
from acceld.cli.output import say
from acceld.errors import UsageError
from acceld.gains import Verdict, judged
from acceld.parsing import parse


@dataclass(frozen=True, slots=True)
class BestKernel:
    """A run of the history and its best candidate, as rows."""

    run: dict[str, Any]
    candidate: dict[str, Any]

    @property
    def verdict(self) -> Verdict | None:
        """Return whether the kernel's speed-up over the baseline is a win, likely or a tie
        (:data:`acceld.gains.RULE`). Return None without a speed-up.
        """
        return judged(self.run)

    def say(self) -> None:
        """Print the kernel's candidate and run, its latency and its speed-up to standard error."""
        run = self.run
        latency = figures.latency(
            run["best_latency_us"], run["source"], run["chip"], self.candidate.get("interval_percent")
        )
        gained = figures.gained(run["speedup"], self.verdict, run["tie_band"])
        say(f"c{run['best']} of r{run['id']}: {latency}, {gained} over the baseline")
        if run["ended_at"] is None:
            say(f"r{run['id']} has not ended ({run['state']}): this is its best kernel so far")
        if self.verdict is None or not self.verdict.worth_applying:
            own = "this kernel is the baseline itself" if run["best"] == run["baseline"] else "this speed-up is no win"
            say(f"{own}; acceld show r{run['id']} says why, and what to try next")

    def say_needs(self) -> None:
        """Print which modules of its own package the kernel imports, because its text runs only beside these modules."""
        kernel = self.candidate
        if kernel["closure"] and _imports_own(kernel["text"], kernel["closure"]):
            modules = ", ".join(name for name in sorted(kernel["closure"]) if not name.endswith("__init__.py"))
            file = kernel["filename"]
            say(
                f"c{self.run['best']} imports modules of its own package ({modules}), so this text runs only in the place of "
                f"{file}: acceld apply r{self.run['id']} {file} writes it there, and keeps a copy of the former text"
            )

    def record(self) -> dict[str, Any]:
        """Return the fields that ``--json`` prints about the kernel."""
        return {
            "run": self.run["id"],
            "candidate": self.run["best"],
            "workload": self.run["workload"],
            "latency_us": self.run["best_latency_us"],
            "speedup": self.run["speedup"],
            "improved": bool(self.run["improved"]),
            "verdict": self.verdict,
            "tie_band": self.run["tie_band"],
            "source": self.run["source"],
            "text": self.candidate["text"],
        }


def _imports_own(text: str, closure: Iterable[str]) -> bool:
    """Tell whether a kernel's text imports a module of its closure. ``closure`` has the modules' paths."""
    own = {Path(name).with_suffix("").parts[0] for name in closure}
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] in own):
            return True
        if isinstance(node, ast.Import) and any(one.name.partition(".")[0] in own for one in node.names):
            return True
    return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a best kernel: a run or a workload, and ``--chip``."""
    parser.add_argument("what", metavar="r12|WORKLOAD", help="a run, or a workload for its fastest run")
    parser.add_argument("--chip", help="with a workload: runs for this chip only")


def best_kernel(home: str | None, what: str, chip: str | None) -> BestKernel:
    """Return the best kernel of a run or a workload, which ``what`` names. Raise UsageError if no best kernel is
    stored.
    """
    with reading(home) as history:
        if re.fullmatch(r"r\d+", what):
            number = int(what[1:])
        else:
            listed = history.get("/v1/runs", workload=what, chip=chip, sort="speedup", limit=1)["runs"]
            named: int | None = listed[0]["id"] if listed else run_named(home, what)
            if named is None and re.fullmatch(r"c\d+", what):
                run = history.get(f"/v1/candidates/{what[1:]}")["run"]
                raise UsageError(
                    f"{what} is a candidate, and a run or a workload is expected",
                    hint=f"r{run} names its run, whose best kernel is taken; acceld show {what} --source prints this kernel",
                )
            if named is None:
                raise UsageError(
                    f"there is no run of workload {what!r} yet",
                    hint=f"acceld optimize {what} starts one; acceld runs lists the runs",
                )
            number = named
        found = history.get(f"/v1/runs/{number}")  # a row of the list lacks the workload's folder
        if found["best"] is None:
            raise UsageError(
                f"r{found['id']} has no kernel that passed",
                hint=f"{found['message']}: correct the kernel, then begin a new run with acceld optimize"
                if found["message"]
                else f"acceld show r{found['id']} says if the run is still active",
            )
        return BestKernel(found, history.get(f"/v1/candidates/{found['best']}"))
