"""Use a person's own program as proposer: acceld writes the kernel into a new folder, and the program edits it there.

Each attempt is stored as a call before the program starts, with its cost limit reserved in the budget. The program's
result is stored before acceld uses it. The edited kernel is evaluated like any other source. The program itself has
the rights of the person who started acceld.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

from acceld.config import CommandConfig
from acceld.errors import ConfigError
from acceld.llm.calls import Purse
from acceld.llm.client import CompletionRequest
from acceld.llm.ledger import Ledger, prompt_sha256, question_key
from acceld.markup import fenced
from acceld.model import PROPOSERS, Attempt, Candidate, Kernel, Plan
from acceld.model_calls import CallIntent, CallOutcome, Usage
from acceld.proposers.interface import AttemptRequest, PlanRequest, Problem, Proposer
from acceld.proposers.llm.presentation import arithmetic_allowed, insight_lines, profile_lines, standing, tried_lines

TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "claude": "claude -p {prompt} --permission-mode acceptEdits --output-format json --max-budget-usd {usd}",
        "codex": "codex exec --sandbox workspace-write --skip-git-repo-check {prompt}",
        "gemini": "gemini -p {prompt} --approval-mode auto_edit",
        "kiro": "kiro-cli chat --no-interactive --trust-tools=fs_read,fs_write {prompt}",
        "aider": "aider --yes-always --no-git --message {prompt} {file}",
        "opencode": "opencode run {prompt}",
    }
)
"""Command lines of coding agents that edit files without a terminal, by name."""
PROMPT = "Read README.md in this folder and do what it says."
PLACEHOLDERS = ("prompt", "file", "folder", "usd", "seconds")
TITLE = "an agent's own idea"
TEXT_LIMIT = 1_000_000
OUTPUT_LIMIT = 1 << 20
"""Greatest number of bytes that are kept of a program's output."""
COSTS = ("total_cost_usd", "cost_usd")
"""Keys of JSON output in which a program may report its cost."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program: its exit code (None if it was stopped), its output, and its run time in seconds."""

    code: int | None
    output: str
    seconds: float


def command_words(configured: str) -> list[str]:
    """Return the program and its arguments from the setting ``run``, which is a template's name or a command line.

    Raise ConfigError for an empty setting, an unclosed quote or an unknown placeholder.
    """
    line = TEMPLATES.get(configured.strip(), configured)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"[command] run: {error}", hint="quote the command line as in a shell") from error
    if not words:
        raise ConfigError(
            "run in [command] is empty",
            hint=f"set it in acceld.toml to one of {', '.join(TEMPLATES)}, or to a command line",
        )
    for word in words:
        try:
            word.format(**dict.fromkeys(PLACEHOLDERS, ""))
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigError(
                f"[command] run: {word!r} has an unknown placeholder", hint=f"Use one of {', '.join(PLACEHOLDERS)}."
            ) from error
    return words


class CommandProposer(Proposer):
    """Let a program write the attempts. The plans say only that the program decides what to change."""

    name = "command"
    abilities = PROPOSERS[name]

    def __init__(
        self,
        settings: CommandConfig,
        *,
        ledger: Ledger,
        purse: Purse,
        plans: int,
        accuracy: Callable[[], str] = lambda: "",
    ) -> None:
        """Prepare the proposer.

        ``plans`` is the number of plans for each parent. ``accuracy`` returns a text on the accuracy that the gate
        demands of a result. Raise ConfigError if no command is configured.
        """
        self._words = command_words(settings.run)
        self._settings, self._ledger, self._purse = settings, ledger, purse
        self._plans, self._accuracy = plans, accuracy
        self._model = f"command:{Path(self._words[0]).name}"
        self._places = asyncio.Semaphore(settings.at_once)

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return a plan whose text only says that the program decides what to change. The plan's ``data`` has what
        the program is told.
        """
        evaluation = request.parent.evaluation
        reported = {
            "profile": f"{standing(evaluation, request.problem.floor, request.parent.kernel.lnc)}\n\n"
            + profile_lines(evaluation.profile if evaluation else None, request.seed, request.parent.kernel.text),
            "insights": insight_lines(request.insights, request.seed),
            "hints": "\n".join((*request.hints, *request.notes)),
            "tried": tried_lines(request.earlier, request.outcomes),
        }
        text = (
            f"There is no plan. Decide yourself what makes this kernel faster. This is version {request.index + 1} of "
            f"{self._plans} from this kernel, so prefer an idea that is not the most obvious one."
        )
        insights = tuple(insight.id for insight in request.insights)
        return request.planned(text, title=TITLE, insights=insights, data=reported, partner=request.partner_id)

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return an attempt with the kernel that the program left in its folder. If the program changed nothing or was
        stopped, the attempt has the reason and no code.
        """
        plan, kernel = request.plan, request.parent.kernel
        files = self._files(request.problem, kernel, plan, request.partner)
        question = CompletionRequest(
            role="executor",
            model=self._model,
            system=files["README.md"],
            user="\n\n".join(f"==== {name}\n{text}" for name, text in files.items() if name != "README.md"),
            max_output_tokens=0,
            seed=request.seed,
            tags={
                "run": plan.run,
                "iteration": plan.iteration,
                "parent": plan.parent,
                "plan": plan.index,
                "attempt": request.index,
            },
        )
        key = question_key(question)
        stored = await self._ledger.answer(key)
        text = stored.text if stored is not None else await self._called(question, key, files, kernel)
        if text == kernel.text:
            return Attempt(plan.id, request.index, None, "the command changed nothing")
        if not text:
            return Attempt(plan.id, request.index, None, "the command was stopped, failed, or left no kernel")
        return Attempt(plan.id, request.index, text)

    async def _called(self, question: CompletionRequest, key: str, files: Mapping[str, str], kernel: Kernel) -> str:
        """Run the program, record its cost, and return the kernel that it left; "" if it left no usable kernel."""
        run = question.tags["run"]
        cap = None if self._settings.usd is None else Decimal(str(self._settings.usd))
        reservation = await self._purse.reserve(run if isinstance(run, int) else None, cap, question.role)
        cost: Decimal | None = Decimal(0)
        try:
            async with self._places:
                intent = CallIntent(
                    key=key,
                    role=question.role,
                    model=question.model,
                    provider="command",
                    prompt_sha256=prompt_sha256(question),
                    system=question.system,
                    user=question.user,
                    max_output_tokens=0,
                    reserved_usd=self._settings.usd,
                    tags=question.tags,
                )
                call = await self._ledger.intend(intent)
                cost = cap  # the whole limit counts as spent, unless the program reports its cost
                started = time.monotonic()
                try:
                    await self._ledger.sent(call)
                    text, ended = await self._in_folder(files, kernel)
                except asyncio.CancelledError:
                    latency_s = time.monotonic() - started
                    outcome = CallOutcome("cancelled", Usage(estimated=True), self._settings.usd, latency_s=latency_s)
                    await asyncio.shield(asyncio.ensure_future(self._ledger.settle(call, outcome)))
                    raise
                reported = reported_usd(ended.output)
                cost = cap if reported is None else reported
                outcome = CallOutcome(
                    "answered",
                    Usage(estimated=reported is None),
                    None if cost is None else float(cost),
                    text=text,
                    reasoning=ended.output[-20_000:],
                    answered_by=question.model,
                    finish_reason="stop"
                    if ended.code == 0
                    else "deadline"
                    if ended.code is None
                    else f"exit {ended.code}",
                    latency_s=ended.seconds,
                )
                await self._ledger.settle(call, outcome)
                return text
        finally:
            reservation.settle(cost)

    async def _in_folder(self, files: Mapping[str, str], kernel: Kernel) -> tuple[str, Ended]:
        name = Path(kernel.filename).name
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="acceld-command-"))
        try:
            await asyncio.to_thread(_write_all, folder, {**files, name: kernel.text})
            values = {
                "prompt": PROMPT,
                "file": name,
                "folder": str(folder),
                "usd": f"{self._settings.usd:g}" if self._settings.usd is not None else "1000000",
                "seconds": f"{self._settings.time_s:g}",
            }
            ended = await run_program([word.format(**values) for word in self._words], folder, self._settings.time_s)
            text = "" if ended.code is None else await asyncio.to_thread(read_kernel, folder / name)
            failed = ended.code != 0 and text == kernel.text
            return "" if failed else text, ended
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    def _files(self, problem: Problem, kernel: Kernel, plan: Plan, partner: Candidate | None) -> dict[str, str]:
        name = Path(kernel.filename).name
        limit = self._accuracy() or f"relative L2 error at most {problem.tolerance or 0:g} against a float64 reference"
        lines = [
            f"# Make {name} faster",
            "",
            f"Edit {name} in this folder so that it takes less time on {problem.chip}. Keep its name, its parameters, what it",
            f"returns and what it imports. It is written for {problem.api}. Results are checked on inputs you do not see:",
            f"{limit}. {arithmetic_allowed(problem.precision, problem.chip)}",
            "",
            plan.text,
            "",
            f"You have {self._settings.time_s:g} seconds"
            + ("" if self._settings.usd is None else f" and {self._settings.usd:g} USD")
            + ". The file's content when you end is evaluated.",
            "",
            "| file | has |",
            "|---|---|",
            f"| {name} | the kernel |",
            "| profile.md | the kernel's latency, what bounds it, its hottest lines |",
            "| problem.md | the operator, its arguments and a numpy reference |",
            "| notes.md | insights of earlier rewrites, hints of a person, what was proposed before |",
        ]
        if partner is not None:
            lines.append(
                f"| partner_{name} | another fast kernel for this problem: bring what makes it fast into {name} |"
            )
        notes = [
            f"## {title}\n\n{plan.data.get(key) or 'none'}"
            for title, key in (("Insights", "insights"), ("Hints", "hints"), ("Proposed before", "tried"))
        ]
        problem_lines = [
            problem.description,
            "",
            *(one.text for one in problem.arguments),
            "",
            fenced(problem.reference_source, "python"),
        ]
        return {
            "README.md": "\n".join(lines) + "\n",
            "profile.md": str(plan.data.get("profile") or "It has not been timed.") + "\n",
            "problem.md": "\n".join(problem_lines) + "\n",
            "notes.md": "\n\n".join(notes) + "\n",
        } | ({} if partner is None else {f"partner_{name}": partner.kernel.text})


async def run_program(words: list[str], folder: Path, limit_s: float) -> Ended:
    """Run a program in a folder with an empty standard input, and return how it ended.

    The program's whole process group is killed after ``limit_s`` seconds, or when the program itself ends. Raise
    ConfigError if the program can not be started.
    """
    started = time.monotonic()
    printed = await asyncio.to_thread(tempfile.TemporaryFile)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(
                f"[command] run: {words[0]} can not be started: {error.strerror}",
                hint="install the program or write its path; acceld doctor tells whether it is found",
            ) from error
        code: int | None = None
        try:
            async with asyncio.timeout(limit_s):
                code = await process.wait()
        except TimeoutError:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        size = os.fstat(printed.fileno()).st_size
        raw = os.pread(printed.fileno(), OUTPUT_LIMIT, max(0, size - OUTPUT_LIMIT))
        return Ended(code, raw.decode("utf-8", "replace"), time.monotonic() - started)
    finally:
        printed.close()


def reported_usd(output: str) -> Decimal | None:
    """Return the USD that the last JSON object in a program's output states as cost; None if it states no cost."""
    for line in reversed(output.strip().splitlines()[-200:]):
        try:
            reported = json.loads(line)
        except ValueError:
            continue
        if isinstance(reported, dict):
            for key in COSTS:
                value = reported.get(key)
                if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
                    return Decimal(str(value))
    return None


def read_kernel(path: Path) -> str:
    """Return the text of a kernel file; "" if the file is missing, too long, a link, or not text."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        raw = file.read(TEXT_LIMIT + 1)
    if len(raw) > TEXT_LIMIT:
        return ""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _write_all(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
