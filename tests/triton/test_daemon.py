"""A search on Triton kernels through a daemon's process and the commands a person uses, on a GPU that stands in."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

with pytest.MonkeyPatch.context() as patch:
    patch.setitem(os.environ, "TRITON_INTERPRET", "1")
    pytest.importorskip("triton")

from own_python import ROOT, python_with_triton
from standin_gpu import GPU

from acceld.workloads import workload

pytestmark = [pytest.mark.triton, pytest.mark.slow]

DAEMON = """
import sys
from standin_gpu import StandinDriver
from acceld.devices.cuda import driver
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


def acceld_of(python, environment, folder):
    """Return a function that runs a command with that interpreter."""

    def acceld(*words, program=("-m", "acceld")):
        return subprocess.run(
            [python, *program, *words],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )

    return acceld


@contextlib.contextmanager
def daemon_with_a_standin_gpu(python, environment, folder, acceld):
    """Yield a daemon with a stand-in for its GPU, ready for requests."""
    with (folder / "daemon.out").open("w") as output:
        command = [python, "-c", DAEMON, environment["ACCELD_HOME"]]
        daemon = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 60
            while acceld("status", "--json").returncode and time.monotonic() < deadline:
                assert daemon.poll() is None, (folder / "daemon.out").read_text()
                time.sleep(0.5)
            yield
        finally:
            acceld("stop")
            daemon.wait(60)


def test_a_search_goes_through_the_daemon_and_ends_with_a_candidate_that_passed(environment, tmp_path):
    python = python_with_triton(tmp_path)
    acceld = acceld_of(python, environment, tmp_path)
    with daemon_with_a_standin_gpu(python, environment, tmp_path, acceld):
        options = ("--backend", "cuda", "--api", "triton", "--chip", "h100", "--proposer", "rules")
        width = ("--preset", "quick", "--iterations", "1", "--plans", "2", "--beam", "1")
        done = acceld("optimize", "rmsnorm_small", *options, *width, "--wait", "--json")
        assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "daemon.out").read_text()[-2000:]
        result = json.loads(done.stdout)
        assert result["state"] == "finished" and result["counts"]["passed"] >= 2
        assert result["baseline_latency_us"] > 0 and result["chip"] == "h100"
        shown = acceld("show", "c1", "--json").stdout
        assert '"condition"' in shown and '"sm_mhz": 1980' in shown, shown


def test_the_trial_of_a_gpu_brings_figures_and_the_history_back_and_goes_on_where_it_ended(environment, tmp_path):
    python = python_with_triton(tmp_path)
    acceld = acceld_of(python, environment, tmp_path)
    driver, packages, standin = tmp_path / "driver", tmp_path / "packages", ROOT / "tests" / "standin_cuda"
    named = packages / "torch-2.11.0.dist-info"
    for folder in (driver, named):
        folder.mkdir(parents=True)
    shutil.copy(standin / "torch.py", packages)
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
    library = ["-o", str(driver / "libcuda.so.1"), str(standin / "cuda.c")]
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", *library], check=True)
    (driver / "nvidia-smi").write_text(f"#!/bin/sh\necho '{GPU}'\n")
    (driver / "nvidia-smi").chmod(0o755)
    words = ("-o", "sent", "--home", environment["ACCELD_HOME"], "--minutes", "6", "--workloads", "rmsnorm_small")
    words += ("--", "--iterations", "1", "--plans", "2", "--beam", "1")
    script = str(ROOT / "scripts" / "gpu_trial.py")
    with daemon_with_a_standin_gpu(python, environment, tmp_path, acceld):
        environment["PATH"] = f"{driver}:{environment['PATH']}"
        environment |= {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(packages)}
        done = acceld(*words, program=(script,))
        again = acceld(*words, program=(script,))
    assert done.returncode == 0, done.stderr + (tmp_path / "daemon.out").read_text()[-2000:]
    reported = json.loads((tmp_path / "sent" / "gpu_trial.json").read_text())
    (row,) = reported["rows"].values()
    assert row["baseline_latency_us"] > 0 and row["counts"]["passed"] >= 1 and reported["gpu"] == "Stand-in H100"
    assert row["best_latency_us"] == row["baseline_latency_us"] or row["paired"]["ratio"] > 0
    point = row["points"]["ROWS=64"]
    assert point.get("best_us", 0) > 0 or "took longer" in point["error"], point
    failed = [one["step"] for one in reported["steps"] if "error" in one]
    assert [one.split()[0] for one in failed] == ["torch_kernels"], "the stand-in for torch has no kernels"
    with sqlite3.connect(tmp_path / "sent" / "acceld.db") as history:
        assert history.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    assert "| `rmsnorm_small` |" in (tmp_path / "sent" / "gpu_trial.md").read_text()
    assert again.returncode == 0, "nothing was left to do"
    page = tmp_path / "gpu.md"
    page.write_text((ROOT / "docs" / "gpu.md").read_text())
    put = acceld("--tables-from", "sent/gpu_trial.json", "gpu.md", program=(script,))
    assert put.returncode == 0 and "| `rmsnorm_small` |" in page.read_text() and "None yet" not in page.read_text()
