"""A search on Triton kernels through a daemon's process and the commands a person uses, on a GPU that stands in."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

with pytest.MonkeyPatch.context() as patch:
    patch.setitem(os.environ, "TRITON_INTERPRET", "1")
    pytest.importorskip("triton")

from own_python import python_with_triton

from acceld.workloads import workload

pytestmark = [pytest.mark.triton, pytest.mark.slow, pytest.mark.timeout(600)]

DAEMON = """
import sys
from standin_gpu import StandinDriver
from acceld.backends.cuda import driver
from acceld.daemon.process import main

driver.CudaDriver = StandinDriver
raise SystemExit(main(["--home", sys.argv[1], "--foreground"]))
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    small = tmp_path / "workloads" / "rmsnorm_small"
    shutil.copytree(workload("rmsnorm_h128").folder, small)
    text = (small / "workload.toml").read_text().replace("ROWS = 131072", "ROWS = 24")
    (small / "workload.toml").write_text(text.replace('"rmsnorm_h128"', '"rmsnorm_small"', 1))
    (tmp_path / "acceld.toml").write_text("[paths]\nworkloads = ['workloads']\n[evaluate]\nbuild_s = 240\n")
    return os.environ | {
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ACCELD_HOME": str(tmp_path / ".acceld"),
        "PYTHONWARNINGS": "ignore",
    }


def test_a_search_goes_through_the_daemon_and_ends_with_a_candidate_that_passed(environment, tmp_path):
    python = python_with_triton(tmp_path)

    def acceld(*words):
        command = [python, "-m", "acceld", *words]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
        )

    with (tmp_path / "daemon.out").open("w") as output:
        daemon = subprocess.Popen(
            [python, "-c", DAEMON, str(tmp_path / ".acceld")],
            env=environment,
            cwd=tmp_path,
            stdout=output,
            stderr=output,
        )
        try:
            deadline = time.monotonic() + 60
            while acceld("status", "--json").returncode and time.monotonic() < deadline:
                assert daemon.poll() is None, (tmp_path / "daemon.out").read_text()
                time.sleep(0.5)
            options = ("--backend", "cuda", "--api", "triton", "--chip", "h100", "--proposer", "rules")
            width = ("--preset", "quick", "--iterations", "1", "--plans", "2", "--beam", "1")
            done = acceld("optimize", "rmsnorm_small", *options, *width, "--wait", "--json")
            assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "daemon.out").read_text()[-2000:]
            result = json.loads(done.stdout)
            assert result["state"] == "finished" and result["counts"]["passed"] >= 2
            assert result["baseline_latency_us"] > 0 and result["chip"] == "h100"
            shown = acceld("show", "c1", "--json").stdout
            assert '"condition"' in shown and '"sm_mhz": 1980' in shown, shown
        finally:
            acceld("stop")
            daemon.wait(60)
