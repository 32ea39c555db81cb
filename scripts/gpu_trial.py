"""Try the GPU backend in one command: look at the machine, try each layer, search without a model, write what was
learnt.

    python3 scripts/gpu_trial.py --download wheels                       # where there is a network
    python3 scripts/gpu_trial.py --wheels wheels -o FOLDER [--minutes 6] # on the machine with the GPU
    python3 scripts/gpu_trial.py --tables-from FOLDER/gpu_trial.json docs/gpu.md

The second form needs an environment with torch and Triton, and no network. It first takes about a minute to try what
every measurement needs, from the driver's library up. Each step is a process with a deadline
(``scripts/gpu_steps.py``). Then it searches workloads with the ``rules`` proposer, in the order of their worth, and
compares best, baseline and torch's own kernels, also at other batches and lengths. The folder is complete after each
step, so a trial that is killed keeps what it learnt. The same command goes on with the workloads that have no row yet.

Exit codes: 0 with a measured row for each workload that was begun; 1 if one failed, or none was measured; 8 if the
machine can not measure at all; 130 if it was interrupted. The trial changes no clocks and touches no other process.

This file uses the standard library alone until the steps begin, because the packages may be what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from acceld.home import Home

ROOT = Path(__file__).resolve().parents[1]
ORDER = (
    "gqa_paged_decode_h32_kv8_d128",
    "gqa_paged_prefill_causal_h32_kv8_d128",
    "gqa_paged_decode_h32_kv4_d128",
    "gqa_paged_prefill_causal_h32_kv4_d128",
    "rmsnorm_h128",
    "gemm_n28672_k4096",
    "fused_add_rmsnorm_h7168",
    "gqa_ragged_prefill_causal_h32_kv4_d128",
    "mla_paged_decode_h16_ckv512_kpe64",
    "mla_paged_prefill_causal_h16_ckv512_kpe64",
    "moe_fp8_ds_routing_e32_h7168_i2048",
)
"""Workloads, in the order of their worth: the paper's four first (Llama-3.1-8B, then Qwen3-30B-A3B)."""
REPORT, FIGURES, DATABASE, LOG, MACHINE = "gpu_trial.md", "gpu_trial.json", "acceld.db", "daemon.log", "machine.txt"
BEGIN, END = "<!-- results of the trial: begin -->", "<!-- results of the trial: end -->"
LEAST_S = 40.0
"""Shortest useful search of a further workload, in seconds."""
FIRST_SHARE = 0.8
"""Share of the time left that the first workload's search may take."""
AFTER_S = 60.0
"""Seconds reserved for further shapes and for torch, until a workload has shown how many they take."""
GRACE_S = 180.0
"""Seconds after ``--minutes`` at which everything ends, the first workload included: a caller's limit may be near."""
CALL_S = 150.0
"""Deadline of one measurement after the search."""
DEADLINES_S = {
    "install": 90.0,
    "check": 30.0,
    "unconfined": 40.0,
    "confined": 30.0,
    "calls": 20.0,
    "torch": 60.0,
    "torch_confined": 60.0,
    "triton": 60.0,
    "clocks": 20.0,
    "shapes": 30.0,
    "outcome": 30.0,
    "torch_kernels": CALL_S,
    "point": CALL_S,
}
"""Deadline of each step, in seconds. The steps up to ``clocks`` take about a minute in all if none fails."""
_LEAST_CALL_S = 10.0
"""Least deadline of a command in seconds, even when all time is used up, because the history must still be copied."""
_MOST_LOG_BYTES = 8 << 20
NO_ROW, NO_GPU, INTERRUPTED = 1, 8, 130
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17, 12, 5)] + [
    f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")
]

Row = dict[str, Any]


class Stopped(BaseException):
    """A signal asked the trial to stop."""


class Folder:
    """The trial's folder of results, to be sent back: at most six files, each written again after every step."""

    def __init__(self, output: Path, home: Path) -> None:
        self.output, self.home = output, home
        self.kept = home / FIGURES
        output.mkdir(parents=True, exist_ok=True)
        Home(home).prepare()
        self.figures: dict[str, Any] = {"rows": {}}
        if self.kept.is_file():
            self.figures = json.loads(self.kept.read_text(encoding="utf-8"))
        self.figures |= {"steps": [], "errors": {}}
        self.machine = ""

    @property
    def rows(self) -> dict[str, Row]:
        """Rows by workload. A later call of the trial keeps these rows and measures only the workloads that are missing."""
        rows: dict[str, Row] = self.figures["rows"]
        return rows

    def error(self, kind: str, said: str) -> None:
        """Print an error, and keep it if it is the first of its kind."""
        if kind not in self.figures["errors"]:
            self.figures["errors"][kind] = said
            print(f"gpu_trial: {kind}: {said}", file=sys.stderr, flush=True)

    def note(self, title: str, text: str) -> None:
        """Add a section to the file about the machine."""
        self.machine += f"==== {title}\n{text.rstrip()}\n\n"

    def write(self) -> None:
        """Write every file that has content."""
        text = json.dumps(self.figures, indent=1)
        for path, content in (
            (self.kept, text),
            (self.output / FIGURES, text),
            (self.output / REPORT, f"# GPU trial\n\n{tables(self.figures)}\n{_steps(self.figures)}"),
            (self.output / MACHINE, self.machine),
        ):
            _replace(path, content.encode("utf-8", "replace"))
        logs = [self.home / "log" / name for name in ("daemon.log", "daemon.out")]
        parts = [f"==== {one.name}\n".encode() + one.read_bytes()[-_MOST_LOG_BYTES:] for one in logs if one.is_file()]
        if parts:
            _replace(self.output / LOG, b"\n".join(parts))


class Trial:
    """The trial: its steps, then searches. A failure is written down, and stops only what depends on it."""

    def __init__(self, given: argparse.Namespace, folder: Folder) -> None:
        self._given, self._folder = given, folder
        self._begun = time.monotonic()
        self._ends = self._begun + 60 * given.minutes
        self._last = self._ends + GRACE_S
        self._home = str(folder.home.resolve())
        self._site = folder.home / "site"
        self._environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self._daemon: subprocess.Popen[bytes] | None = None
        self._after_s = AFTER_S
        self._measured = 0

    def run(self) -> int:
        """Do every step, write the files after each, and return the exit code."""
        folder, code = self._folder, NO_GPU
        try:
            self._look()
            folder.write()
            if self._install() and (highest := self._preflight()):
                code = self._search(highest)
        except Stopped as stop:
            folder.error("interrupted", str(stop))
            code = INTERRUPTED
        except Exception as error:  # noqa: BLE001  # whatever was learnt until here must come back
            folder.error("trial", f"{type(error).__name__}: {error}")
            code = NO_ROW
        finally:
            with _deaf():
                self._end(code)
        return code

    # -- the machine and the packages -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write down what the machine says about its hardware and software."""
        note = self._folder.note
        names = sorted(name for name in os.environ if name.startswith(("CUDA", "NVIDIA", "LD_", "PYTHON", "TRITON")))
        note("versions", f"python {sys.version}\n{sys.executable}\n{platform.platform()}\nroot: {os.getuid() == 0}")
        note("environment", "\n".join(f"{name}={os.environ[name]}" for name in (*names, "PATH") if name in os.environ))
        for title, command in (
            ("nvidia-smi -q", "nvidia-smi -q || /usr/local/nvidia/bin/nvidia-smi -q"),
            ("device files", "ls -ln /dev/nvidia* /dev/nvidia-caps; grep -i nvidia /proc/devices"),
            ("driver", "cat /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information"),
            (
                "driver's library",
                "ldconfig -p | grep -i 'libcuda\\|ptxjit'; ls -l /usr/local/nvidia/lib64 | grep -i cuda",
            ),
            (
                "kernel",
                "uname -a; cat /sys/kernel/security/lsm; cat /proc/self/cgroup; grep -c . /proc/cpuinfo; free -m; df -h .",
            ),
            ("limits", "ulimit -a; id; grep -i 'seccomp\\|cap' /proc/self/status"),
            ("compilers", "command -v gcc cc clang nvcc ptxas ldconfig; gcc --version | head -1"),
            ("packages", f"{sys.executable} -m pip list"),
        ):
            done = self._run(["sh", "-c", command], 20.0)
            note(title, done[1] + done[2])

    def _install(self) -> bool:
        """Install the wheels, if there are any, into a folder beside the interpreter's packages, which stay as
        they are.
        """
        wheels = self._given.wheels
        folders = [str(ROOT)]
        if wheels is not None:
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-cache-dir", "--no-compile"]
            command += [
                "--upgrade",
                "--find-links",
                str(wheels),
                "--target",
                str(self._site),
                *project()["dependencies"],
            ]
            if self._step("install", command, DEADLINES_S["install"]) is None:
                return False
        self._name()
        folders.append(str(self._site.resolve()))
        folders += [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
        self._environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(one) for one in folders)
        return True

    def _name(self) -> None:
        """Give the checkout the name and version of the package, which the daemon reports, unless acceld is
        installed.
        """
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version("acceld")
            return
        known = project()
        named = self._site / f"acceld-{known['version']}.dist-info"
        named.mkdir(parents=True, exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: acceld\nVersion: {known['version']}\n"
        (named / "METADATA").write_text(text, encoding="utf-8")

    # -- one minute of steps ----------------------------------------------------------------------------------------

    def _preflight(self) -> str:
        """Try each layer that a measurement needs, from the driver up. Return the strictest sandbox level that
        works; empty if nothing can be measured.
        """
        figures = self._folder.figures
        checked = self._take("check")
        if checked is None:
            return ""
        figures |= {"gpu": checked["gpu"], "sdk": checked["sdk"], "chip": checked["chip"] or "h100"}
        doctor = self._run([sys.executable, "-m", "acceld", "doctor", "--home", self._home], 40.0)
        self._folder.note("acceld doctor", doctor[1] + doctor[2])
        if self._take("unconfined") is None:
            return ""
        highest = self._highest("confined", "L4")
        self._take("calls")
        if not highest:
            return ""
        if self._take("torch") is not None:
            highest = self._highest("torch_confined", highest) or highest
        if self._take("triton", "--highest", highest) is None:
            return ""
        self._take("clocks")
        figures["sandbox"] = highest
        figures["preflight_s"] = round(time.monotonic() - self._begun, 1)
        return highest

    def _highest(self, step: str, from_level: str) -> str:
        """Do a jailed step at lower and lower sandbox levels until it works. Return the level; empty if the step
        works at no level.
        """
        for level in ("L4", "L3", "L2", "L1", "L0"):
            if level > from_level:
                continue
            found = self._take(step, "--highest", level)
            if found is not None:
                return str(found["level"]) if level != "L0" else "L0"
        return ""

    def _take(self, step: str, *words: str) -> dict[str, Any] | None:
        """Do a step of scripts/gpu_steps.py, and return what it found. If it fails, write the failure down and
        return None.
        """
        command = [sys.executable, "-m", "scripts.gpu_steps", step, "--home", self._home, *words]
        shown = (word.rpartition("/")[2] for word in words)
        return self._step(" ".join((step, *shown)), command, DEADLINES_S[step])

    def _step(self, name: str, command: list[str], most_s: float) -> dict[str, Any] | None:
        began = time.monotonic()
        code, out, said = self._run(command, most_s)
        found: dict[str, Any] = {}
        with contextlib.suppress(ValueError, IndexError):
            found = json.loads(out.strip().splitlines()[-1])
        lines = [line for line in said.strip().splitlines() if line.strip()]
        if code and not found.get("error"):
            found["error"] = " ".join(lines[-2:]) or f"exit {code}"
        record = {"step": name, "seconds": round(time.monotonic() - began, 2), **found}
        self._folder.figures["steps"].append(record)
        if code or found.get("error"):
            hint = f" {found['hint']}" if found.get("hint") else ""
            self._folder.error(name.partition(" ")[0], f"{found['error']}{hint}")
            self._folder.note(f"failed: {name}", f"{out[-4000:]}\n{said[-8000:]}")
        self._folder.write()
        return None if code or found.get("error") else found

    # -- workloads --------------------------------------------------------------------------------------------------

    def _search(self, highest: str) -> int:
        """Search workloads as long as there is time, the first one in any case. Return 1 if a workload failed
        or none was measured.
        """
        self._serve(highest)
        self._cancel_all()
        rows = self._folder.rows
        todo = [name for name in self._given.workloads if "error" in rows.get(name, {"error": ""})]
        begun: list[str] = []
        for place, name in enumerate(todo):
            rest_s = self._ends - time.monotonic() - self._after_s
            if begun and rest_s < LEAST_S:
                print(
                    f"gpu_trial: no time is left for {', '.join(todo[place:])}: run the same command again to search them",
                    file=sys.stderr,
                )
                break
            share_s = rest_s if begun or len(todo) == 1 else FIRST_SHARE * (rest_s + self._after_s)
            begun.append(name)
            rows[name] = self._one(name, max(LEAST_S, min(share_s, 60 * self._given.most_minutes)))
            if "error" in rows[name]:
                self._folder.error(f"workload {name}", str(rows[name]["error"]))
            else:
                self._measured += 1
            self._folder.write()
            print(_lines(name, rows[name])[0], file=sys.stderr, flush=True)
        failed = any("error" in rows[name] for name in begun)
        return NO_ROW if failed or not any("error" not in row for row in rows.values()) else 0

    def _serve(self, highest: str) -> None:
        """Start the trial's daemon, unless it runs. Its evaluations use at most the sandbox level that works on
        this machine.
        """
        if "error" not in self._acceld("status", "--json", most_s=30.0):
            return
        command = [sys.executable, "-m", "scripts.gpu_steps", "daemon", "--home", self._home, "--highest", highest]
        log = self._folder.home / "log"
        log.mkdir(parents=True, exist_ok=True)
        with (log / "daemon.out").open("wb") as output:
            self._daemon = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline = time.monotonic() + 60
        while "error" in self._acceld("status", "--json", most_s=30.0):
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the daemon did not start: daemon.log says why")
            time.sleep(0.3)

    def _one(self, name: str, limit_s: float) -> Row:
        """Search one workload, then measure further shapes and torch. Return its row; with the key ``error`` if
        nothing was measured.
        """
        asked = ["optimize", name, "--backend", "cuda", "--api", "triton", "--chip", self._folder.figures["chip"]]
        asked += ["--proposer", "rules", "--preset", self._given.preset, *self._given.options, "--wait", "--json"]
        asked += ["--time-limit-s", f"{limit_s:.0f}"]
        began = time.monotonic()
        outcome = self._acceld(*asked, most_s=limit_s + CALL_S)
        if "baseline_latency_us" not in outcome:
            self._cancel_all()
            said = outcome.get("error", "the search reported nothing")
            outcome = self._last_outcome(name)
            if not outcome.get("best_latency_us"):
                return {"error": said}
        names = ("run", "state", "message", "baseline_latency_us", "baseline_interval_percent", "best_latency_us")
        row = {one: outcome.get(one) for one in (*names, "interval_percent", "paired", "wins", "counts", "refusals")}
        row["percent_of_peak"] = outcome.get("percent_of_peak_after")
        row["search_s"] = round(time.monotonic() - began, 1)
        if not row["best_latency_us"]:
            return row | {"error": outcome.get("message") or "no kernel passed"}
        self._folder.rows[name] = row
        self._folder.write()
        began = time.monotonic()
        shaped = self._take("shapes", name)
        if shaped is not None:
            row["torch"] = self._torch(shaped["folders"])
            row["points"] = self._points(row, shaped["folders"])
        self._after_s = time.monotonic() - began
        return row

    def _torch(self, shaped: Mapping[str, str]) -> Row:
        """Return the times of torch's own kernels by shape; with the key ``error`` if they could not be timed."""
        found = self._take("torch_kernels", *shaped.values())
        if found is None:
            return {"error": self._folder.figures["steps"][-1]["error"]}
        return {text: found.get(folder) for text, folder in shaped.items()}

    def _points(self, row: Row, shaped: Mapping[str, str]) -> Row:
        """Return the times of the baseline and of the best kernel at further shapes, as many as there is time for."""
        points: Row = {}
        for text, folder in shaped.items():
            if not text:
                continue
            if time.monotonic() > self._ends and self._measured:
                break
            began = time.monotonic()
            found = self._take("point", str(row["run"]), folder)
            points[text] = found or {"error": self._folder.figures["steps"][-1]["error"]}
            if time.monotonic() + (time.monotonic() - began) > self._ends + AFTER_S:
                break
        return points

    def _cancel_all(self) -> None:
        """Cancel runs that an interrupted trial left, because they would disturb the timing."""
        for one in self._acceld("runs", "--json").get("runs", ()):
            if one["state"] in ("queued", "running", "paused", "stopped"):
                self._acceld("cancel", f"r{one['id']}", "--json")

    def _last_outcome(self, name: str) -> dict[str, Any]:
        """Return the stored outcome of a search whose command was interrupted; empty if there is none."""
        return self._take("outcome", name) or {}

    def _acceld(self, *words: str, most_s: float = 60.0) -> dict[str, Any]:
        """Run a command of acceld and return its JSON; with the key ``error``, and its last lines, if it
        failed.
        """
        command = [sys.executable, "-m", "acceld", words[0], "--home", self._home, *words[1:]]
        code, out, said = self._run(command, most_s)
        try:
            reported: dict[str, Any] = json.loads(out)
        except ValueError:
            lines = said.strip().splitlines()
            return {"error": " ".join(lines[-2:]) if lines else f"exit {code}"}
        return reported

    # -- processes and the end --------------------------------------------------------------------------------------

    def _run(self, command: list[str], most_s: float) -> tuple[int, str, str]:
        """Run a command in its own process group, which is ended at the deadline. Return its exit status,
        output and errors.
        """
        most_s = min(most_s, max(_LEAST_CALL_S, self._last - time.monotonic()))
        try:
            child = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return 127, "", str(error)
        try:
            out, said = child.communicate(timeout=most_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            out, said = child.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return 124, out, f"{said}\nit took longer than {most_s:.0f} s and was ended"
        return child.returncode, out, said

    def _end(self, code: int) -> None:
        """Stop the daemon, copy the history, and write everything once more."""
        figures = self._folder.figures
        figures["exit"], figures["seconds"] = code, round(time.monotonic() - self._begun, 1)
        self._folder.write()
        if (self._folder.home / DATABASE).is_file():
            (self._folder.output / DATABASE).unlink(missing_ok=True)
            self._acceld("db", "backup", str((self._folder.output / DATABASE).resolve()), "--json")
        if self._daemon is not None:
            self._acceld("stop", most_s=20.0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(10.0)
            if self._daemon.poll() is None:
                self._daemon.kill()
                self._daemon.wait()
        self._folder.write()
        print(self._folder.output / REPORT)


def main(words: Sequence[str] | None = None) -> int:
    """Run the trial, or one of its helpers; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=ORDER, metavar="NAME")
    parser.add_argument("--preset", choices=("quick", "standard", "paper"), default="quick")
    parser.add_argument(
        "--minutes", type=float, default=6.0, help="begin no workload that would end after this long (6)"
    )
    parser.add_argument("--most-minutes", type=float, default=10.0, help="longest search of one workload (10)")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install first, without a network")
    parser.add_argument("--download", type=Path, metavar="FOLDER", help="fetch those wheels, where there is a network")
    parser.add_argument("--python", default="3.12", help="with --download: the GPU machine's Python (3.12)")
    parser.add_argument(
        "--home", type=Path, default=ROOT / ".acceld" / "gpu_trial", help="state folder of its own daemon"
    )
    output = Path(os.environ.get("OUT") or "gpu_trial")
    parser.add_argument("-o", "--output", type=Path, default=output, help="folder to send back ($OUT, else gpu_trial)")
    parser.add_argument("--tables-from", nargs=2, type=Path, metavar=("JSON", "PAGE"))
    parser.add_argument("options", nargs="*", help="after --: further options of acceld optimize")
    given = parser.parse_args(words)
    if given.tables_from:
        return put_tables(*given.tables_from)
    if given.download:
        return download(given.download, given.python)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    return Trial(given, Folder(given.output, given.home)).run()


def project() -> dict[str, Any]:
    """Return acceld's own facts: version and requirements."""
    known: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return known


def download(folder: Path, python: str) -> int:
    """Download the wheels of acceld's requirements for x86-64 Linux and the given Python, and print their total
    size.
    """
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--implementation", "cp"]
    command += [
        "--python-version",
        python,
        "-d",
        str(folder),
        *(f"--platform={one}" for one in PLATFORMS),
        *project()["dependencies"],
    ]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        size = sum(one.stat().st_size for one in folder.glob("*.whl"))
        print(f"{folder}: {len(list(folder.glob('*.whl')))} wheels, {size / 2**20:.1f} MiB")
    return code


def tables(figures: Mapping[str, Any]) -> str:
    """Return the tables of results as text, from the figures in gpu_trial.json."""
    head = [
        f"{figures.get('gpu', 'no GPU')}; {figures.get('sdk', 'nothing measured')}; sandbox {figures.get('sandbox', '-')}.",
        "",
        "| workload | shape | baseline us | best us | gain (95 %) | torch us | torch's kernel | best, % of peak | rewrites, or the reason for none |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(line for name, one in figures["rows"].items() for line in _lines(name, one)), ""])


def _lines(name: str, one: Row) -> list[str]:
    """Return the rows of a workload in the table: its own shape, then the others."""
    note = one.get("error") or ", ".join(dict.fromkeys(win["rule"] for win in one.get("wins") or ())) or "nothing"
    before = _latency(one.get("baseline_latency_us"), one.get("baseline_interval_percent"))
    best = _latency(one.get("best_latency_us"), one.get("interval_percent"))
    lines = [_line(name, "own", before, best, one.get("paired"), _torch_of(one, ""), one.get("percent_of_peak"), note)]
    for shape, point in (one.get("points") or {}).items():
        before, best = (_latency(point.get(which), None) for which in ("baseline_us", "best_us"))
        percent, said = point.get("percent_of_peak"), point.get("error", "")
        lines.append(_line("", shape, before, best, point.get("turns"), _torch_of(one, shape), percent, said))
    return lines


def _line(
    name: str, shape: str, before: str, best: str, turns: Row | None, torch: Row, percent: float | None, note: str
) -> str:
    gain = f"{turns['ratio']:.2f}x ({turns['low']:.2f} – {turns['high']:.2f})" if turns else "-"
    us = f"{torch['us']:.1f}" if torch.get("us") else "-"
    named, shown = f"`{name}`" if name else "", f"{percent:.1f}" if percent else "-"
    cells = (named, shape, before, best, gain, us, torch.get("kernel", "-"), shown, note.replace("|", "/"))
    return f"| {' | '.join(cells)} |"


def _torch_of(one: Row, shape: str) -> Row:
    found: Row = (one.get("torch") or {}).get(shape) or {}
    return found if isinstance(found, dict) else {}


def _latency(us: float | None, percent: float | None) -> str:
    return "-" if not us else f"{us:.1f}" + (f" ±{percent:.1f} %" if percent is not None else "")


def _steps(figures: Mapping[str, Any]) -> str:
    """Return the steps and the first error of each kind as text."""
    lines = [f"- {one['step']}: {one['seconds']} s, {one.get('error') or 'works'}" for one in figures["steps"]]
    errors = [f"- {kind}: {said}" for kind, said in figures["errors"].items()]
    return "\n".join(["## Steps", "", *lines, "", "## First error of each kind", "", *(errors or ["none"]), ""])


def put_tables(source: Path, page: Path) -> int:
    """Write the tables of a trial between the marks of a page. Return 0, or 2 if the page has no marks."""
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        print(f"gpu_trial: {page} has no marks {BEGIN} and {END}", file=sys.stderr)
        return 2
    figures = json.loads(source.read_text(encoding="utf-8"))
    page.write_text(f"{before}{BEGIN}\n\n{tables(figures)}\n{END}{after}", encoding="utf-8")
    return 0


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    partial.replace(path)


def _stop(number: int, frame: object) -> None:
    raise Stopped(f"the trial was ended by {signal.Signals(number).name}")


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore further signals, so that the last files are written completely."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    yield


if __name__ == "__main__":
    raise SystemExit(main())
