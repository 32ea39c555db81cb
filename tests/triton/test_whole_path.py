"""A Triton kernel through the real evaluator: a real builder in a real jail, and the interpreter in place of a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

with pytest.MonkeyPatch.context() as patch:
    patch.setitem(os.environ, "TRITON_INTERPRET", "1")
    pytest.importorskip("triton")

from own_python import python_with_triton

pytestmark = [pytest.mark.triton, pytest.mark.slow]

PROGRAM = """
import asyncio, json, shutil, sys
from pathlib import Path
from standin_gpu import StandinDriver
from acceld.config import EvaluateConfig
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.hosted.evaluator import HostedEvaluator
from acceld.model import Gate, Kernel
from acceld.workloads import workload

async def main():
    state, found = Path(sys.argv[1]), workload("rmsnorm_h128")
    small = state / "small"
    shutil.copytree(found.folder, small)
    text = (small / "workload.toml").read_text().replace("ROWS = 131072", "ROWS = 24")
    (small / "workload.toml").write_text(text)
    evaluator = HostedEvaluator(EvaluateConfig(build_s=240), state, StandinDriver())
    await evaluator.start()
    source = found.baselines["triton"].read_text()
    wrong = source.replace("/ width + eps", "/ width * 2 + eps")
    library = source.replace("torch.empty_like(hidden_states)", "torch.nn.functional.rms_norm(hidden_states)")
    results = []
    fixed = source.replace("rmsnorm[(rows,)]", "rmsnorm[(24,)]")
    for one in (source, wrong, source.replace("tl.sqrt(", "tl.nosuch("), library, fixed):
        kernel = Kernel(one, "triton", entry="run", filename="kernel_triton.py")
        request = EvaluationRequest(kernel, "small", "h100", backend="cuda", workload_folder=str(small),
                                    gate=Gate.STRICT if one in (source, fixed) else Gate.SEARCH)
        got = await evaluator.evaluate(request)
        failure = got.failure
        results.append([got.status, failure.rule if failure else "", failure.line if failure else 0,
                         got.profile.details["device"] if got.profile else "",
                         failure.message if failure else "",
                         [check.name for check in got.correctness.checks] if got.correctness else []])
    await evaluator.stop(5)
    print(json.dumps(results))

asyncio.run(main())
"""


def test_right_wrong_broken_and_library_kernels_get_their_results(tmp_path):
    asked = [python_with_triton(tmp_path), "-W", "ignore", "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stderr[-2000:]
    right, wrong, broken, library, fixed = json.loads(done.stdout.splitlines()[-1])
    assert right[:4] == ["passed", "", 0, "GPU 0 (Stand-in H100)"]
    assert {"hidden shape ROWS=37", "hidden shape ROWS=129"} <= set(right[5])
    assert wrong[:2] == ["incorrect_numerical", "tolerance"]
    # Triton before 3.5 finds a missing name before it compiles, so it names the launch (line 22) instead of the use (14).
    assert broken[0] == "compile_error" and (broken[1], broken[2]) in (("CompilationError", 14), ("AttributeError", 22))
    assert library[:4] == ["compile_error", "library", 21, ""]
    assert fixed[0] == "incorrect_numerical" and fixed[4].startswith("at the hidden shape ROWS=37")
