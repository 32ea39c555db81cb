"""Every Triton baseline against its reference, under Triton's interpreter, in the workload's small shapes."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

with pytest.MonkeyPatch.context() as patch:
    # Triton decides on import whether its own functions are interpreted.
    patch.setitem(os.environ, "TRITON_INTERPRET", "1")
    pytest.importorskip("triton")

from acceld.workloads import find_workloads, workload

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
NAMES = sorted(name for name, one in find_workloads().items() if one.family == "triton")


@pytest.mark.parametrize("name", NAMES)
def test_a_baseline_computes_what_its_reference_says(name, tmp_path, monkeypatch):
    from interpreter import error_of
    from small import small_shapes

    one = workload(name)
    text = one.baselines["triton"].read_text()
    for shape in small_shapes(name):
        assert error_of(text, shape, tmp_path, monkeypatch) < 1e-6


def test_a_wrong_kernel_is_seen(tmp_path, monkeypatch):
    from interpreter import error_of
    from small import small_shapes

    name = "rmsnorm_h128"
    one = workload(name)
    text = one.baselines["triton"].read_text().replace("/ width + eps", "/ width * 2 + eps")
    assert error_of(text, small_shapes(name)[0], tmp_path, monkeypatch) > 0.1
