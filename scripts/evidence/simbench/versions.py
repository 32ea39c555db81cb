"""Compare the speed-up of one version of a kernel over another, predicted and measured; predict for chips
without measurements.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing.timeline import timeline
from scripts.evidence.simbench.accuracy import Outcome, percent
from scripts.evidence.simbench.kernels import BEST, ROOT, Case
from scripts.evidence.simbench.tables import Table

TUTORIAL_MS: Mapping[str, float] = {"tiled": 51.80, "hoisted": 42.96, "blocked_free": 22.07, "blocked": 6.97}
"""Published latencies of the tutorial's four forms."""
M, K, N = 4096, 8192, 8192
PUBLISHED_TFLOPS, ARRAY_TFLOPS = 77.2, 78.6
"""bfloat16 on trn2: of long products, and 128 x 128 x 2 x 2.4 GHz of one core's array (architecture guides)."""


def tutorial_case(name: str, chip: str = "trn1") -> Case:
    """Return one of acceld's bfloat16 matrix products, [4096, 8192] x [8192, 8192]."""
    path = ROOT / "tests" / "kernels" / "legacy" / f"matmul_bf16_{name}.py"
    started = time.process_time()
    arguments = [TensorSpec((K, M), "bfloat16"), TensorSpec((K, N), "bfloat16")]
    program = trace(path.read_text(), arguments, filename=path.name, chip=chip)
    return Case(name, program, time.process_time() - started, {"latency_ms": TUTORIAL_MS[name]})


def pair_table(outcomes: Mapping[str, Outcome], tutorial: Mapping[str, Outcome]) -> Table:
    """Return the predicted and the measured speed-ups of one version of a kernel over another."""
    pairs = [(outcomes[BEST[best]], outcomes[best]) for best in BEST if best in outcomes]
    pairs += [(tutorial[a], tutorial[b]) for a, b in itertools.pairwise(TUTORIAL_MS)]
    table = []
    for parent, child in pairs:
        predicted, measured = parent.latency_us / child.latency_us, parent.measured_us / child.measured_us
        table.append(
            {
                "change": f"{parent.case.name} to {child.case.name}",
                "predicted": round(predicted, 2),
                "measured": round(measured, 2),
                "error %": percent(predicted / measured - 1),
            }
        )
    return table


def tutorial_table(tutorial: Mapping[str, Outcome]) -> Table:
    """Return a table with a row for each of the four bfloat16 matrix products."""
    return [
        {
            "form": name,
            "predicted ms": round(o.latency_us / 1000, 2),
            "measured ms": TUTORIAL_MS[name],
            "error %": percent(o.ratio - 1),
            "bound": o.line.bound,
        }
        for name, o in tutorial.items()
    ]


def later_table() -> Table:
    """Return the predictions of a bfloat16 matrix product in its best form on trn2."""
    line = timeline(tutorial_case("blocked", "trn2").program)
    assert line.latency_us is not None
    rate = 2 * M * K * N / line.latency_us / 1e6
    return [
        {
            "chip": "trn2",
            "TFLOP/s predicted": round(rate, 1),
            "TFLOP/s of a busy array": ARRAY_TFLOPS,
            "published for long products": PUBLISHED_TFLOPS,
            "error %": percent(rate / PUBLISHED_TFLOPS - 1),
            "validated": line.prediction.validated_on,
        }
    ]
