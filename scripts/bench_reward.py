"""Measure how many kernels ``acceld.reward`` evaluates an hour, by gate and by stage of the evaluation.

    python scripts/bench_reward.py [--candidates 60] [--workloads silu ...] [--gates timing search] [--json]

Each kernel has its own source and its own program, so no result is reused. Wall-clock figures depend on the
present load of the machine. Processor seconds count all processes; from them the rate on two idle cores is
computed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from acceld.evaluate.sandbox.process import Zygote
from acceld.reward import Score, Scorer
from acceld.workloads import workload

TICKS = os.sysconf("SC_CLK_TCK")
SMALL_WORKLOAD = """\
name = "small_{kind}"
family = "bench"
description = "SiLU"
precision = "fp32_strict"
tolerance = 2e-05
[arguments.x]
shape = [128, 2048]
dtype = "float32"
[outputs.out]
shape = [128, 2048]
dtype = "float32"
[distributions]
own = "declared"
integers = {{ refused = "a bench needs few" }}
scaled_up = {{ refused = "a bench needs few" }}
scaled_down = {{ refused = "a bench needs few" }}
shifted = {{ refused = "a bench needs few" }}
row_scaled = {{ refused = "a bench needs few" }}
sparse = {{ refused = "a bench needs few" }}
special = {{ refused = "a bench needs few" }}
[baselines]
nki_legacy = "kernel.py"
"""
REFERENCE = """\
import numpy as np
def get_inputs():
    return [np.random.standard_normal((128, 2048)).astype(np.float32)]
def forward(x):
    return x / (1 + np.exp(-x))
"""
KERNEL = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for tile in nl.affine_range(4):
        x_tile = nl.load(x[p, 512 * tile + f])
        decay = nisa.activation(op=nl.exp, data=x_tile, scale=-1.0)
        denominator = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
        y_tile = nl.multiply(x_tile, nisa.reciprocal(data=denominator))
        nl.store(out[p, 512 * tile + f], value=y_tile)
    return out
"""


def small(folder: Path) -> Path:
    """Write a workload of 128 x 2048 elements to a folder, and return the folder."""
    made = folder / "small_silu"
    made.mkdir()
    (made / "workload.toml").write_text(SMALL_WORKLOAD.format(kind="silu"))
    (made / "reference.py").write_text(REFERENCE)
    (made / "kernel.py").write_text(KERNEL)
    return made


def variants(text: str, count: int) -> list[str]:
    """Return ``count`` versions of a source whose programs differ: by a constant that is stored and never read,
    or by the factor of a scaled result.
    """
    found = []
    for number in range(count):
        changed, places = re.subn(r"(?<![\w.])1\.0(?![\w.])", f"{1 + (number + 1) * 1e-9!r}", text, count=1)
        found.append((changed if places else text) + f"\n# {number}\n")
    return found


def own_s(pid: int) -> float:
    """Return the processor seconds of the process ``pid``, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS


class Meter:
    """Counter of the processor seconds of this process, of its zygotes, and of all jobs that these start."""

    def __init__(self) -> None:
        self._jobs_s = 0.0
        self._zygotes: dict[int, float] = {}
        run = Zygote.run

        async def counted(zygote: Zygote, *args: Any, **kwargs: Any) -> Any:
            outcome, reply = await run(zygote, *args, **kwargs)
            self._jobs_s += outcome.cpu_s
            if zygote.pid is not None:
                self._zygotes[zygote.pid] = own_s(zygote.pid)
            return outcome, reply

        Zygote.run = counted  # type: ignore[method-assign]

    def seconds(self) -> float:
        """Return the processor seconds so far."""
        return time.process_time() + self._jobs_s + sum(self._zygotes.values())


def measured(meter: Meter, scorer: Scorer, name: str, texts: list[str]) -> dict[str, Any]:
    """Evaluate one kernel to warm up, then ``texts``, and return the figures."""
    scorer.score(texts[:1], [name])
    started, cpu = time.perf_counter(), meter.seconds()
    scores = scorer.score(texts[1:], [name] * (len(texts) - 1))
    wall, cpu = time.perf_counter() - started, meter.seconds() - cpu
    stages: dict[str, float] = defaultdict(float)
    for score in scores:
        for stage, seconds in (score.evaluation.seconds if score.evaluation else {}).items():
            stages[stage] += seconds / len(scores)
    return {
        "candidates": len(scores),
        "statuses": dict(Counter(score.status for score in scores)),
        "instructions": instructions(scores),
        "per_hour": round(3600 * len(scores) / wall),
        "per_hour_two_quiet_cores": round(2 * 3600 * len(scores) / cpu),
        "cpu_ms": round(1000 * cpu / len(scores), 1),
        "stages_ms": {stage: round(1000 * seconds, 1) for stage, seconds in stages.items()},
    }


def instructions(scores: list[Score]) -> int | None:
    """Return the instruction count of the first kernel of the batch that has a profile; None if no kernel has one."""
    profile = next((one.evaluation.profile for one in scores if one.evaluation and one.evaluation.profile), None)
    return int(profile.counters.get("instruction_count", 0)) if profile else None


def main() -> int:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--workloads", nargs="*", default=[])
    parser.add_argument("--gates", nargs="*", default=["timing", "search"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows, meter = [], Meter()
    with tempfile.TemporaryDirectory() as folder:
        names = arguments.workloads or [str(small(Path(folder)))]
        for gate in arguments.gates:
            with Scorer(gate=gate, seed=0) as scorer:
                for name in names:
                    found = workload(name)
                    text = next(iter(found.baselines.values())).read_text()
                    row = measured(meter, scorer, name, variants(text, arguments.candidates + 1))
                    rows.append({"workload": found.name, "gate": gate, **row})
                    if not arguments.json:
                        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"load": os.getloadavg()[0], "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
