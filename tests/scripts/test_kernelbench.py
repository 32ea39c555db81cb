"""The time that a problem of KernelBench may take is processor time, so that a busy machine changes no count."""

from __future__ import annotations

import os
import subprocess

from acceld.child import child
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
