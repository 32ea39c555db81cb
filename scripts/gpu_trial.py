"""Try the GPU backend: search on Triton workloads without a model, and write tables to send back.

    python scripts/gpu_trial.py [-o FOLDER] [--minutes M] [--workloads NAME ...] [--preset quick] [-- OPTIONS]
    python scripts/gpu_trial.py --tables-from FOLDER/gpu_trial.json docs/gpu.md

Run it on a machine with an NVIDIA GPU, in an environment with ``pip install 'acceld[cuda]'``. For each workload it
searches with the ``rules`` proposer, measures the best kernel and the baseline again, interleaved (``acceld verify``),
and times PyTorch's own operators (cold L2, CUDA events, median). After every workload, the tables, all figures as JSON
and a copy of the database are written to the folder. So an interrupted trial keeps its figures, and the same command
continues it. The workloads that show most in the least time come first. The trial changes no clocks and touches no
other process.

The second form writes the tables between the two marks of a page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acceld import config
from acceld.cli.connect import reading
from acceld.devices.cuda.driver import CudaDriver
from acceld.errors import AcceldError
from acceld.roofline import least_us
from acceld.workloads import Workload, load_reference, make_inputs, workload

ORDER = (
    "rmsnorm_h128",
    "fused_add_rmsnorm_h7168",
    "gqa_paged_decode_h32_kv8_d128",
    "gemm_n28672_k4096",
    "gqa_paged_decode_h32_kv4_d128",
    "mla_paged_decode_h16_ckv512_kpe64",
    "gqa_ragged_prefill_causal_h32_kv4_d128",
    "gqa_paged_prefill_causal_h32_kv8_d128",
    "gqa_paged_prefill_causal_h32_kv4_d128",
    "mla_paged_prefill_causal_h16_ckv512_kpe64",
    "moe_fp8_ds_routing_e32_h7168_i2048",
)
"""Workloads, the quickest first; the last one's inputs alone take most of a minute to draw."""
REPORT, FIGURES, DATABASE = "gpu_trial.md", "gpu_trial.json", "acceld.db"
BEGIN, END = "<!-- results of the trial: begin -->", "<!-- results of the trial: end -->"
WARM_UP, TIMED = 5, 30
LEAST_S = 45.0
"""Shortest useful search, in seconds."""
AFTER_S = 60.0
"""Seconds reserved for measuring best and baseline again, and for PyTorch."""


def main(words: Sequence[str] | None = None) -> int:
    """Search, time and write. Return 8 without a GPU, 1 if a workload failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=ORDER, metavar="NAME")
    parser.add_argument("--preset", choices=("quick", "standard", "paper"), default="quick")
    parser.add_argument("--minutes", type=float, help="stop after this long; the same command goes on later")
    parser.add_argument("--home", type=Path, default=Path(".acceld/gpu_trial"), help="state folder of its own daemon")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_trial"), help="folder for what is sent back")
    parser.add_argument("--torch", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--tables-from", nargs=2, type=Path, metavar=("JSON", "PAGE"))
    parser.add_argument("options", nargs="*", help="after --: further options of acceld optimize")
    given = parser.parse_args(words)
    if given.tables_from:
        return put_tables(*given.tables_from)
    driver = CudaDriver()
    try:
        driver.check("triton")
        if given.torch:
            print(json.dumps(torch_us(found_workload(given.torch), driver)))
            return 0
        for name in given.workloads:
            found_workload(name)
        return Trial(driver, given.home, given.output, ("--preset", given.preset, *given.options), given.minutes).run(
            given.workloads
        )
    except AcceldError as error:
        print(f"gpu_trial: {error.message}\n  {error.hint}", file=sys.stderr)
        return error.exit_code


class Trial:
    """Hold the figures of the workloads so far, kept beside the history so that another call continues."""

    def __init__(
        self, driver: CudaDriver, home: Path, output: Path, search: Sequence[str], minutes: float | None
    ) -> None:
        self._driver = driver
        self._home, self._output, self._search = home, output, tuple(search)
        self._ends = time.monotonic() + 60 * minutes if minutes else None
        gpu = driver.gpu
        self._chip = gpu.name if gpu else "h100"
        self._kept = home / FIGURES
        home.mkdir(parents=True, exist_ok=True)
        output.mkdir(parents=True, exist_ok=True)
        self._figures: dict[str, Any] = {"rows": {}}
        if self._kept.is_file():
            self._figures = json.loads(self._kept.read_text(encoding="utf-8"))
        self._figures |= {"gpu": driver.gpus[0].name, "chip": self._chip, "sdk": driver.sdk("triton")}

    def run(self, names: Sequence[str]) -> int:
        """Try every workload that has no row yet, as long as there is time. Return 1 if one failed."""
        rows: dict[str, Any] = self._figures["rows"]
        self._cancel_all()
        todo = [name for name in names if "error" in rows.get(name, {"error": ""})]
        try:
            for place, name in enumerate(todo):
                limit_s = self._limit_s(len(todo) - place)
                if limit_s is not None and limit_s < LEAST_S:
                    print(f"no time is left for {', '.join(todo[place:])}: the same command goes on", file=sys.stderr)
                    break
                rows[name] = self._one(found_workload(name), limit_s)
                self._write()
                print(_row(name, rows[name]), file=sys.stderr)
        finally:
            self._acceld("stop")
        self._write()
        print(self._output / REPORT)
        return int(any("error" in rows[name] for name in todo if name in rows))

    def _limit_s(self, left: int) -> float | None:
        """Return the seconds for the next workload's search, out of those left; the first may take twice its share."""
        if self._ends is None:
            return None
        rest_s = self._ends - time.monotonic()
        return min(2 * rest_s / left, rest_s) - AFTER_S

    def _one(self, found: Workload, limit_s: float | None) -> dict[str, Any]:
        """Return baseline, best, their interleaved ratio, and PyTorch; if the search failed, ``error`` with acceld's
        message.
        """
        asked = ["optimize", found.name, "--backend", "cuda", "--api", "triton", "--chip", self._chip]
        asked += ["--proposer", "rules", *self._search, "--wait", "--json"]
        if limit_s is not None:
            asked += ["--time-limit-s", f"{limit_s:.0f}"]
        outcome = self._acceld(*asked, most_s=None if limit_s is None else limit_s + AFTER_S)
        if "baseline_latency_us" not in outcome:
            self._cancel_all()
            said = outcome.get("error", "the search reported nothing")
            outcome = self._last_outcome(found.name)
            if not outcome.get("best_latency_us"):
                return {"error": said}
        names = ("run", "state", "message", "baseline_latency_us", "baseline_interval_percent", "best_latency_us")
        reported = {name: outcome.get(name) for name in (*names, "interval_percent", "paired", "wins", "counts")}
        least = least_us(found, self._driver.peaks(self._chip))
        best = outcome.get("best_latency_us")
        reported["percent_of_peak"] = 100 * least / best if least and best else None
        if not best:
            return reported | {"error": outcome.get("message") or "no kernel passed"}
        again = self._acceld("verify", f"r{outcome['run']}", "--json", most_s=self._rest_s())
        reported["interleaved"] = next((one.get("interleaved") for one in again.get("cases", ())), None)
        reported["torch_us"] = self._torch_us(found.name)
        return reported

    def _cancel_all(self) -> None:
        """Cancel runs that an interrupted trial left: they would disturb the timing."""
        if not (self._home / DATABASE).is_file():
            return
        for one in self._acceld("runs", "--json").get("runs", ()):
            if one["state"] in ("queued", "running", "paused", "stopped"):
                self._acceld("cancel", f"r{one['id']}", "--json")

    def _last_outcome(self, name: str) -> dict[str, Any]:
        """Return the stored outcome of a search whose command was interrupted; empty if there is none."""
        try:
            with reading(str(self._home)) as history:
                runs = history.get("/v1/runs", workload=name, limit=1)["runs"]
                return dict(history.get(f"/v1/runs/{runs[0]['id']}/outcome")) if runs else {}
        except AcceldError:
            return {}

    def _torch_us(self, name: str) -> float | None:
        """Time PyTorch's operators in a separate process, so that none of its memory stays on the GPU."""
        command = [sys.executable, __file__, "--torch", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self._rest_s(), check=False)
            return float(json.loads(done.stdout))
        except (ValueError, TypeError, subprocess.TimeoutExpired):
            return None

    def _rest_s(self) -> float | None:
        return None if self._ends is None else max(5.0, self._ends - time.monotonic())

    def _acceld(self, *words: str, most_s: float | None = None) -> dict[str, Any]:
        """Return a command's JSON, or ``error`` with its last line."""
        command = [sys.executable, "-m", "acceld", words[0], "--home", str(self._home), *words[1:]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=most_s, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"acceld {words[0]} took longer than {most_s:.0f} s"}
        try:
            reported: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = done.stderr.strip().splitlines()
            return {"error": " ".join(said[-2:]) if said else f"exit {done.returncode}"}
        return reported

    def _write(self) -> None:
        """Write all files to send back; each is replaced whole."""
        for path, text in (
            (self._kept, json.dumps(self._figures, indent=1)),
            (self._output / FIGURES, json.dumps(self._figures, indent=1)),
            (self._output / REPORT, f"# GPU trial\n\n{tables(self._figures)}"),
        ):
            partial = path.with_name(path.name + ".part")
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        (self._output / DATABASE).unlink(missing_ok=True)
        self._acceld("db", "backup", str(self._output / DATABASE), "--json")


def found_workload(name: str) -> Workload:
    """Return a workload by name, also from the folders of the configuration."""
    return workload(name, config.load().config.paths.workloads)


def tables(figures: Mapping[str, Any]) -> str:
    """Return the result tables as text, from the JSON."""
    head = [
        f"{figures['gpu']}; {figures['sdk']}.",
        "",
        "| workload | baseline us | best us | interleaved (95 %) | torch us | best, % of peak | rewrites, or the reason for none |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_row(name, one) for name, one in figures["rows"].items()), ""])


def _row(name: str, one: Mapping[str, Any]) -> str:
    turns = one.get("interleaved")
    gain = f"{turns['ratio']:.2f}x ({turns['low']:.2f} – {turns['high']:.2f})" if turns else "-"
    percent = f"{one['percent_of_peak']:.1f}" if one.get("percent_of_peak") else "-"
    torch = f"{one['torch_us']:.1f}" if one.get("torch_us") else "-"
    note = one.get("error") or ", ".join(dict.fromkeys(win["rule"] for win in one.get("wins") or ())) or "nothing"
    before = _latency(one.get("baseline_latency_us"), one.get("baseline_interval_percent"))
    best = _latency(one.get("best_latency_us"), one.get("interval_percent"))
    return f"| `{name}` | {before} | {best} | {gain} | {torch} | {percent} | {note} |"


def _latency(us: float | None, percent: float | None) -> str:
    return "-" if not us else f"{us:.1f}" + (f" ±{percent:.1f} %" if percent is not None else "")


def put_tables(source: Path, page: Path) -> int:
    """Write the tables of a trial between the marks of a page. Return 2 if the page has no marks."""
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        print(f"gpu_trial: {page} has no marks {BEGIN} and {END}", file=sys.stderr)
        return 2
    figures = json.loads(source.read_text(encoding="utf-8"))
    page.write_text(f"{before}{BEGIN}\n\n{tables(figures)}\n{END}{after}", encoding="utf-8")
    return 0


def torch_us(found: Workload, driver: CudaDriver) -> float | None:
    """Time the reference's formula on torch in the workload's dtypes; return the median, or None if torch can not run
    it.
    """
    import numpy as np
    import torch

    forward = load_reference(found.reference).forward_torch if found.reference else None
    if forward is None or not torch.cuda.is_available():
        return None
    inputs = []
    for argument, value in zip(found.arguments, make_inputs(found, 0), strict=True):
        if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
            wide = torch.from_numpy(value.astype(np.float32)).to("cuda")
            inputs.append(wide.to(getattr(torch, argument.dtype)))
        else:
            inputs.append(torch.from_numpy(value).to("cuda") if isinstance(value, np.ndarray) else value)
    flush = torch.empty(int(driver.settings("triton")["flush_bytes"]), dtype=torch.uint8, device="cuda")
    with torch.no_grad():
        return median_us(torch, lambda: forward(*inputs), flush)


def median_us(torch: Any, call: Callable[[], Any], flush: Any) -> float:
    """Return the median of TIMED calls, each with a cold L2 cache. Delay by late launches of the host counts, as it
    does for a caller.
    """
    took: list[float] = []
    for number in range(WARM_UP + TIMED):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if number >= WARM_UP:
            took.append(1000 * start.elapsed_time(end))
    return statistics.median(took)


if __name__ == "__main__":
    raise SystemExit(main())
