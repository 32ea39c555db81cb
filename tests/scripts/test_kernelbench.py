"""The time that a problem of KernelBench may take is processor time, so that a busy machine changes no count. A trial
that is stopped leaves no process behind.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.child import child
from acceld.lowering.aten.requests import Refused
from scripts import kernelbench
from scripts.kernelbench import processor_seconds

BUSY = """
import os, subprocess, sys, time
if len(sys.argv) > 1:
    while time.process_time() < 0.3:
        pass
else:
    subprocess.run([sys.executable, "-c", sys.orig_argv[-1], "child"], check=True)
    print("done", flush=True)
    sys.stdin.read()
"""


def test_the_time_of_a_process_has_that_of_children_that_ended() -> None:
    start = child("-c", BUSY)
    with subprocess.Popen(
        start.command, env=start.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "done\n"
        assert processor_seconds(process.pid) >= 0.25
        assert processor_seconds(os.getpid()) >= processor_seconds(process.pid)
        process.communicate()
    assert process.returncode == 0


def test_a_trial_that_is_stopped_ends_the_process_of_its_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = tmp_path / "python"
    answering.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid\necho \'{{"outcome": "right"}}\'\nexec sleep 1000\n')
    answering.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(answering))
    given = argparse.Namespace(api="nki", gib=1.0, seconds=60.0)
    answers = kernelbench._answers(given, [Path("1_A.py"), Path("2_B.py")])
    assert next(answers)["outcome"] == "right"
    answers.close()  # as a KeyboardInterrupt does
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        ("at some.py:6: aten.special_bessel_j0 is not lowered", "refused"),
        ("some.py:1: the module can not be made: ModuleNotFoundError: No module named 'einops'", "refused"),
        ("the reference differs from the module by 0.1 on data: please report this", "wrong"),
        ("KeyError: 'out'", "wrong"),
        ("the process that records the module ended with exit code 1: Aborted", "wrong"),
        (
            "the process that records the module was ended by SIGKILL, as a system that runs out of memory does",
            "out of memory",
        ),
    ],
)
def test_a_defect_is_not_counted_as_a_refusal(why: str, outcome: str) -> None:
    assert kernelbench._outcome(Refused("a module", why), "nki") == {"outcome": outcome, "why": why}
