"""Implement the tools for agents as calls of the daemon's API.

Answers are JSON-able and small enough for a model's context; the full record is available by its id. An agent's kernels
are evaluated like any candidate, in the sandbox and under the policy. Paths must lie below the folders that the
server's user opened (:mod:`acceld.agents.places`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import convert

from acceld import figures
from acceld.agents import authoring
from acceld.agents.places import Places
from acceld.chips import CHIPS
from acceld.daemon.launch import ensure
from acceld.drafts import parse_argument, parse_scalar
from acceld.errors import AcceldError, UsageError, did_you_mean
from acceld.evaluate import policy
from acceld.findings import binds, brief, core_words, finding, floor_share, moved, worth
from acceld.gains import RULE, Verdict, gain, interleaved, verdict
from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.model import CANCELLING, Evaluation, Gate, Kernel, Profile, RunState, waits_for_remedy
from acceld.nki.frontend import manual
from acceld.watch.answers import evaluation_from
from acceld.watch.apply import apply, check_drop_in, seen
from acceld.workloads import Workload, find_workloads
from acceld.workloads.records import PRECISIONS

Json = dict[str, Any]
Report = Callable[[float, float | None, str], Awaitable[None]]
"""Called with the progress, its final value if known, and a message for people."""

ANSWER_S = 1800.0
"""Longest wait for one evaluation, in seconds, its time in the queue included."""
EVENTS_S = 5.0
"""Longest wait of one request for new events, in seconds."""
COMPARED = {
    True: "the first is faster",
    False: "the second is faster",
    None: "a tie: the difference is within the uncertainty",
}
"""Result words by the outcome of a comparison of two kernels."""
KEPT = 128
"""Number of full results that are kept for later questions by id."""
PAGE_CHARS = 3_500
"""Longest part of a full result in one answer, in characters."""
ANSWER_CHARS = 4_000
"""Longest answer without a source text, in characters."""
LISTED_CHARS = 3_300
"""Longest list of lines in one answer, in characters."""
MOST_KERNELS = 64
MOST_SUGGESTIONS = 12
MOST_TIMED = 8
"""Number of suggested rewrites whose latency is predicted for a chip."""
SUGGEST_CHARS = 200_000
ROWS = 200
COMPARED_KEYS = ("status", "failure", "latency_us", "percent_of_floor", "rel_l2", "tolerance", "bound", "time")
"""Parts of a finding that a comparison shows of each kernel."""


async def _quiet(progress: float, total: float | None, message: str) -> None:
    """Do nothing with a report of progress, for callers that show none."""


class Toolbox:
    """The tools for agents, over one state folder. Await :meth:`close` at the end."""

    def __init__(self, home: Home, places: Places) -> None:
        self.home = home
        self.places = places
        self._client = HttpClient.of(home, timeout_s=ANSWER_S)
        self._whole: OrderedDict[str, Any] = OrderedDict()
        self._made = 0
        self._parting: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Wait for the work that cancelled calls left behind, and disconnect from the daemon."""
        await asyncio.gather(*self._parting, return_exceptions=True)
        await self._client.close()

    # Tools on one kernel.

    async def profile_kernel(
        self,
        *,
        source: str = "",
        path: str = "",
        workload: str = "",
        arguments: Sequence[str] = (),
        chip: str = "",
        api: str = "",
    ) -> Json:
        """Return a kernel's predicted latency, and what binds it. The kernel is not run on data."""
        if arguments:
            if workload:
                raise UsageError(
                    f"workload {workload} has its own arguments, and arguments are given too",
                    hint="give one of the two: workload, or arguments",
                )
            return await self._profile_bare(source, path, arguments, chip, api)
        return await self._evaluate(source, path, workload, Gate.TIMING, chip, api)

    async def check_kernel(
        self, *, source: str = "", path: str = "", workload: str, strict: bool = False, chip: str = "", api: str = ""
    ) -> Json:
        """Return the result of checking a kernel against a workload's reference, with its latency if the kernel passes."""
        return await self._evaluate(source, path, workload, Gate.STRICT if strict else Gate.SEARCH, chip, api)

    async def suggest_rewrites(
        self, *, source: str = "", path: str = "", workload: str = "", rule: str = "", chip: str = "", api: str = ""
    ) -> Json:
        """Return the changes that the rewrite rules propose, best first, one line each. With ``rule``, return only
        that rule's changes, with their diffs.

        With a workload and a chip, the changed kernels are timed. No file is changed.
        """
        found = await self._workload(workload) if workload else None
        kernel = await asyncio.to_thread(self.places.kernel, source, path, api, found)
        if len(kernel.text) > SUGGEST_CHARS:
            raise UsageError(
                f"a kernel of {len(kernel.text)} characters is too long for the rules",
                hint=f"at most {SUGGEST_CHARS:,} characters: send the function that is to be rewritten, without the rest",
            )
        refused = await asyncio.to_thread(policy.check, kernel.text, kernel.filename)
        if refused is not None and refused.rule == "syntax":
            raise UsageError(f"line {refused.line}: {refused.message}", hint="mend the source first")
        listed = await asyncio.to_thread(_suggested, kernel, rule or None, found)
        shown = listed[:MOST_SUGGESTIONS]
        timed = await self._timed(kernel, shown, found, chip) if found is not None and chip else {}
        rank = sorted(range(len(shown)), key=lambda at: timed.get(at, (float("inf"), ""))[0])
        lines = [
            f"{one['rule']} l.{one['line']}: {timed[at][1] if at in timed else _expected(one)}; {_cut(one['plan'], 160)}"
            for at in rank
            for one in (shown[at],)
        ]
        answer = {"api": kernel.api, "count": len(listed), "suggestions": _within(lines, LISTED_CHARS)}
        answer |= {"details": self._keep(listed)}
        if rule:
            return answer | {"text": _within_text([shown[at]["diff"] for at in rank])}
        return answer | {"next": "With rule, the diffs of one rule. optimize tries and checks them all."}

    async def _timed(
        self, kernel: Kernel, listed: Sequence[Mapping[str, Any]], found: Workload, chip: str
    ) -> dict[int, tuple[float, str]]:
        """Return, as a dict by position in ``listed``, the predicted latency in microseconds and a text on the gain.

        Only the first few changed kernels are timed.
        """
        before = evaluation_from(await self._evaluated(kernel, found, Gate.TIMING, chip)).profile
        answers: dict[int, tuple[float, str]] = {}
        for at, one in enumerate(listed[:MOST_TIMED]):
            changed = replace(kernel, text=one["changed"])
            after = evaluation_from(await self._evaluated(changed, found, Gate.TIMING, chip)).profile
            change = gain(before, after)
            if after is None or after.latency_us is None or change is None:
                continue
            word = verdict(change.ratio, change.improved, change.band_percent, after.source)
            answers[at] = (after.latency_us, f"{after.latency_us:.1f} µs, x{change.ratio:.3f} {word}")
        return answers

    async def compare_kernels(
        self,
        *,
        workload: str,
        first_source: str = "",
        first_path: str = "",
        second_source: str = "",
        second_path: str = "",
        chip: str = "",
        api: str = "",
    ) -> Json:
        """Return both kernels' results, the ratio of their latencies, and the ratio up to which they count as equal."""
        found = await self._workload(workload)
        first = await asyncio.to_thread(self.places.kernel, first_source, first_path, api, found)
        second = await asyncio.to_thread(self.places.kernel, second_source, second_path, api or first.api, found)
        one = await self._evaluated(first, found, Gate.SEARCH, chip, against=(second,))
        other = await self._evaluated(second, found, Gate.SEARCH, chip)
        timed = one["paired"][0] if one["paired"] else None
        results = evaluation_from(one), evaluation_from(other)
        both = all(result.status == "passed" and result.latency_us for result in results)
        change = gain(results[1].profile, results[0].profile)
        ratio = timed["ratio"] if timed else change.ratio if change and both else None
        same = one["program_sha256"] == other["program_sha256"]
        news = None if same or not both else interleaved(timed) if timed else change.faster if change else None
        band = timed["band_percent"] if timed else change.band_percent if change else None
        answer: Json = {
            name: {key: value for key, value in short.items() if key in COMPARED_KEYS} | {"details": self._keep(whole)}
            for name, whole, kernel, result in (
                ("first", one, first, results[0]),
                ("second", other, second, results[1]),
            )
            for short in (finding(result, kernel.text, found, whole["chip"], kernel.lnc),)
        }
        answer |= {"on": core_words(one["chip"], first.lnc)}
        answer |= {"ratio": None if ratio is None else round(ratio, 4), "tie_band": band}
        if ratio is None or not both:
            return answer | {"result": "both have to pass before they can be compared"}
        profile = results[0].profile
        assert profile is not None
        word = Verdict.TIE if same else verdict(max(ratio, 1 / ratio), news is not None, band, profile.source)
        answer |= {"verdict": word, "tie_reason": "" if timed or change is None else change.reason}
        if word is Verdict.TIE or word is None:
            answer["result"] = "the same program" if same else COMPARED[None]
        else:
            answer["result"] = f"{COMPARED[ratio > 1]} ({word})"
        slow, fast, text = (1, 0, second.text) if ratio > 1 else (0, 1, first.text)
        if reason := moved(results[fast].profile, results[slow].profile, text):
            answer["why"] = f"the {'second' if ratio > 1 else 'first'} takes {reason}"
        return answer

    async def evaluate_kernels(
        self, *, kernels: Sequence[Mapping[str, str]], strict: bool = False, chip: str = "", report: Report = _quiet
    ) -> Json:
        """Return one line for each kernel: first those that pass, the fastest first, then those that fail."""
        if not 1 <= len(kernels) <= MOST_KERNELS:
            raise UsageError(f"give 1 to {MOST_KERNELS} kernels", hint="divide more kernels among several calls")
        gate, done = Gate.STRICT if strict else Gate.SEARCH, 0
        rows: list[_Row] = []
        used: set[str] = set()
        places = asyncio.Semaphore(4)

        async def evaluator(place: int, item: Mapping[str, str]) -> None:
            nonlocal done
            async with places:
                name = f"{place + 1} {item.get('path', '')}".strip()
                try:
                    found = await self._workload(item.get("workload", ""))
                    kernel = await asyncio.to_thread(
                        self.places.kernel, item.get("source", ""), item.get("path", ""), item.get("api", ""), found
                    )
                    whole = await self._evaluated(kernel, found, gate, chip)
                    result = evaluation_from(whole)
                    short = brief(finding(result, kernel.text, found, whole["chip"], kernel.lnc))
                    rows.append(_Row(place, name, short, self._keep(whole), found.name, result, kernel.text))
                    used.add(core_words(whole["chip"], kernel.lnc))
                except AcceldError as error:
                    rows.append(_Row(place, name, f"error: {error.message.rstrip('.')}. {error.hint}"))
                done += 1
                await report(done, len(kernels), f"{done} of {len(kernels)} evaluated")

        async with asyncio.TaskGroup() as tasks:
            for place, item in enumerate(kernels):
                tasks.create_task(evaluator(place, item))
        rows.sort(key=_rank)
        width = max(48, LISTED_CHARS // len(rows) - 6)
        fastest: dict[str, _Row] = {}
        lines = []
        for row in rows:
            best = fastest.setdefault(row.workload, row) if row.passed else row
            why = "" if best is row else f": {moved(best.profile, row.profile, row.text)}"
            lines.append(figures.cut(f"{row.name}: {row.said} {row.details}{why}", width))
        return {"on": sorted(used), "ranked": lines, "passed": sum(row.passed for row in rows), "of": len(rows)}

    # Tools on runs.

    async def optimize(
        self,
        *,
        workload: str,
        source: str = "",
        path: str = "",
        proposer: str = "",
        preset: str = "",
        chip: str = "",
        api: str = "",
        backend: str = "",
        seed: int | None = None,
        budget_usd: float | None = None,
        time_limit_s: float | None = None,
        wait_s: float = 600.0,
        report: Report = _quiet,
    ) -> Json:
        """Search for a faster version of a kernel. Return the outcome; if the run goes on after ``wait_s`` seconds,
        its state.

        Cancelling the call pauses the run; :meth:`resume_run` continues it.
        """
        found = await self._workload(workload)
        search = {"seed": seed, "budget_usd": budget_usd, "time_limit_s": time_limit_s}
        body: Json = {"workload": found.name, "workload_folder": str(found.folder.resolve())}
        body["search"] = {name: value for name, value in search.items() if value is not None}
        kernel = None
        if source or path:
            kernel = await asyncio.to_thread(self.places.kernel, source, path, api, found)
            body["root"] = _plain(kernel)
        elif not api and self.places.config.search.api not in found.baselines:
            api = next(iter(found.baselines), "")
        asked = {"proposer": proposer, "preset": preset, "chip": chip, "backend": backend}
        body |= {name: value for name, value in asked.items() if value}
        body |= {"api": kernel.api} if kernel else {"api": api} if api else {}
        await self._ready()
        run = int((await self._client.send("POST", "/v1/runs", body))["id"])
        return await self._follow(run, wait_s, report)

    async def follow_run(self, *, run: str, wait_s: float = 600.0, report: Report = _quiet) -> Json:
        """Wait for a run, and return its outcome; if it goes on after ``wait_s`` seconds, its state."""
        await self._ready()
        return await self._follow(_number(run, "r"), wait_s, report)

    async def resume_run(self, *, run: str, wait_s: float = 600.0, report: Report = _quiet) -> Json:
        """Continue a run that is paused or has failed, and wait for it as :meth:`follow_run` does."""
        number = _number(run, "r")
        await self._act(number, "resume")
        return await self._follow(number, wait_s, report)

    async def cancel_run(self, *, run: str) -> Json:
        """End a run once its current evaluations are done. Their results are kept."""
        number = _number(run, "r")
        result = await self._act(number, "cancel")
        return {"run": f"r{number}", "result": result}

    async def list_runs(self, *, workload: str = "", limit: int = 20) -> Json:
        """Return the newest runs, each in one line."""
        await self._ready()
        found = await self._client.get("/v1/runs", workload=workload or None, limit=max(1, min(limit, 100)))
        lines = [
            f"r{one['id']} {one['workload']} {one['chip']} {one['proposer']}: {_standing(one).partition(' ')[2]}"
            for one in found["runs"]
        ]
        return {"runs": _within([_cut(line, 300) for line in lines], LISTED_CHARS), "total": found["total"]}

    async def best_kernel(self, *, run: str = "", workload: str = "", chip: str = "", show: str = "text") -> Json:
        """Return the best kernel of a run, or of a workload's fastest run: its text, or its diff from the baseline."""
        found = await self._best(run, workload, chip)
        candidate = await self._client.get(f"/v1/candidates/{found['best']}")
        text = candidate["text"]
        if show == "diff":
            text = (await self._client.get(f"/v1/candidates/{found['best']}/diff", against="baseline"))["diff"]
        return {
            "run": f"r{found['id']}",
            "candidate": f"c{found['best']}",
            "on": core_words(found["chip"], candidate["lnc"]),
            "latency_us": found["best_latency_us"],
            "source": found["source"],
            **worth(found),
            "gate": candidate["gate"],
            "text": text,
        }

    async def apply_best(
        self, *, path: str, run: str = "", source: str = "", workload: str = "", even_if_tied: bool = False
    ) -> Json:
        """Write a run's best kernel, or the agent's own, over a file. The old text is copied beside it.

        Raise UsageError if the kernel has not passed the strict gate, is no drop-in replacement for the file, does not
        pass now, or is no certain or likely gain; ``even_if_tied`` allows a tie. A run's kernel is compared with the
        run's baseline, the agent's own kernel with the text in the file.
        """
        file = await asyncio.to_thread(self.places.kernel_file, path)
        expected = await asyncio.to_thread(seen, file)
        if source:
            return await self._apply_source(file, expected, source, workload, even_if_tied)
        if not run:
            raise UsageError("give a run, or a source and its workload", hint="run=r12 writes the best kernel of r12")
        found = await self._best(run, "", "")
        best = await self._client.get(f"/v1/candidates/{found['best']}")
        if best["gate"] != Gate.STRICT:
            raise UsageError(
                f"c{found['best']} has not passed the strict gate", hint="follow_run until the run has ended"
            )
        asked: Json = {"path": str(file), "expected_sha256": expected}
        result = await self._act(found["id"], "apply", **asked, **({"even_if_tied": True} if even_if_tied else {}))
        return {"result": result, "latency_us": found["best_latency_us"], **worth(found), "gate": "strict"}

    async def _apply_source(self, file: Path, expected: str, source: str, workload: str, even_if_tied: bool) -> Json:
        """Write the agent's own kernel over a file, once it passed the strict gate and was compared with the kernel in
        the file.
        """
        found = await self._workload(workload)
        new = await asyncio.to_thread(self.places.kernel, source, "", "", found)
        old = await asyncio.to_thread(self.places.kernel, "", str(file), "", found)
        await asyncio.to_thread(check_drop_in, file, new)
        whole = await self._evaluated(new, found, Gate.STRICT, "", against=(old,))
        after = evaluation_from(whole)
        short = finding(after, new.text, found, whole["chip"], new.lnc)
        if after.status != "passed" or after.profile is None:
            raise UsageError(f"nothing was written: {brief(short)}", hint=(short.get("failure") or {}).get("hint", ""))
        before = evaluation_from(await self._evaluated(old, found, Gate.SEARCH, ""))
        answer: Json = {key: short[key] for key in ("gate", "on", "latency_us", "percent_of_floor") if key in short}
        if before.status == "passed":
            timed = whole["paired"][0] if whole["paired"] else None
            change = gain(before.profile, after.profile)
            ratio = timed["ratio"] if timed else change.ratio if change else None
            band = timed["band_percent"] if timed else change.band_percent if change else None
            improved = bool(interleaved(timed)) if timed else change is not None and change.improved
            word = verdict(ratio, improved, band, after.profile.source)
            answer |= {"speedup": None if ratio is None else round(ratio, 4), "verdict": word, "tie_band": band}
            if not even_if_tied and (word is None or not word.worth_applying):
                raise UsageError(
                    f"nothing was written: the kernel is a {word or 'tie'} over {file.name} (speed-up {ratio or 1.0:.3f}). {RULE}",
                    hint="even_if_tied=true writes it nevertheless",
                )
        backup = await asyncio.to_thread(apply, file, new.text, expected)
        return answer | {"result": f"wrote the kernel to {file}; the former content is in {backup}"}

    # Tools that look things up.

    async def list_workloads(self, *, contains: str = "") -> Json:
        """Return the workloads below the agent's folders, and one line for each installed workload whose name or
        description has the words.
        """
        listed = await asyncio.to_thread(find_workloads, self.places.config.paths.workloads)
        own = await asyncio.to_thread(self.places.own_workloads)
        words = contains.lower().split()
        lines = [
            f"{one.name}: {one.description} ({', '.join(one.baselines)})"
            for one in listed.values()
            if all(word in f"{one.name} {one.description}".lower() for word in words)
        ]
        if not words:
            lines = [line.partition(":")[0] for line in lines]
        answer: Json = {"own": _within(own, LISTED_CHARS // 4), "workloads": _within(lines, LISTED_CHARS)}
        return answer | {
            "total": len(listed),
            "next": "contains=words gives descriptions; create_workload makes a new one",
        }

    async def show_workload(self, *, workload: str, show: str = "facts") -> Json:
        """Return a workload's arguments, outputs, tolerance and floor; or the text of its reference or its baseline."""
        return await asyncio.to_thread(_shown, await self._workload(workload), show)

    async def create_workload(
        self,
        *,
        folder: str,
        reference: str,
        arguments: Sequence[str],
        precision: str = "",
        chip: str = "",
        api: str = "",
    ) -> Json:
        """Write a workload folder from a reference. If the reference can be lowered, add a first kernel and time it.

        Raise UsageError with everything that is wrong.
        """
        made = await asyncio.to_thread(authoring.made, self.places, folder, reference, arguments, precision)
        found = await self._workload(str(made.folder))
        answer: Json = {"workload": folder, **_facts(found), **made.told}
        if not found.baselines:
            return answer | {"next": "No kernel could be lowered: write one, and check_kernel it with strict=true."}
        chosen = api or next(iter(found.baselines))
        first = found.baselines[chosen]
        timed = await self._evaluate("", str(first), str(made.folder), Gate.TIMING, chip, chosen)
        keys = ("on", "latency_us", "floor_us", "floor_is", "percent_of_floor", "bound", "failure", "details")
        answer["first_kernel"] = {"path": str(first), **{key: timed[key] for key in keys if key in timed}}
        return answer | {
            "next": "check_kernel it with strict=true; optimize makes it faster; show_workload show=kernel is its text."
        }

    async def look_up(self, *, name: str) -> Json:
        """Return what the NKI manual says of a call or a topic: parameters by API, dtypes, buffers, limits, an
        example.
        """
        if not name.strip() or len(name) > 200:
            raise UsageError("give the name of a call or a topic", hint=f"topics: {', '.join(manual.TOPICS)}")
        found = await asyncio.to_thread(manual.looked_up, name)
        if found is None:
            like = await asyncio.to_thread(manual.near, name)
            raise UsageError(
                f"the manual has nothing on {name!r}",
                hint=(f"near: {', '.join(like)}; " if like else "") + f"topics: {', '.join(manual.TOPICS)}",
            )
        return {"found": found}

    async def query_history(self, *, sql: str = "", saved: str = "", words: str = "", limit: int = 50) -> Json:
        """Return the rows of one SELECT or of a saved query, or the hits of a full-text search. Nothing can be changed."""
        if [bool(sql), bool(saved), bool(words)].count(True) != 1:
            names = [one["name"] for one in (await self._get("/v1/history"))["saved"]]
            raise UsageError("give one of sql, saved and words", hint=f"saved queries: {', '.join(names)}")
        limit = max(1, min(limit, ROWS))
        if words:
            return {"found": (await self._get("/v1/search", q=words, limit=limit))["found"]}
        if saved:
            names = [one["name"] for one in (await self._get("/v1/history"))["saved"]]
            if saved not in names:
                raise UsageError(
                    f"there is no saved query {saved!r}. {did_you_mean(saved, names)}", hint=", ".join(names)
                )
            return self._table(await self._get(f"/v1/history/{saved}", limit=limit))
        await self._ready()
        return self._table(await self._client.send("POST", "/v1/query", {"sql": sql, "limit": limit}))

    async def details(self, *, id: str, offset: int = 0) -> Json:
        """Return part of a full record as JSON text, from character ``offset`` on. ``id`` is r12, c345, e901, i38, or
        an id from another answer.
        """
        if id in self._whole:
            value = self._whole[id]
        else:
            routes = {"r": "runs", "c": "candidates", "e": "evaluations", "i": "insights"}
            kind = id[:1]
            if kind not in routes:
                raise UsageError(
                    f"{id[:40]!r} is not an id", hint="such as r12, c345, e901, i38, or details of an answer"
                )
            value = await self._get(f"/v1/{routes[kind]}/{_number(id, kind)}")
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        offset = max(0, offset)
        following = offset + PAGE_CHARS
        return {
            "id": id,
            "text": text[offset:following],
            "next_offset": following if following < len(text) else None,
            "total_chars": len(text),
        }

    # Helpers of the tools.

    async def _ready(self) -> None:
        """Make sure that a daemon serves the state folder. A daemon started here ends when it is idle."""
        if await asyncio.to_thread(self.home.daemon) is None:
            await asyncio.to_thread(ensure, self.home, idle_exit_s=self.places.config.daemon.idle_exit_s)

    async def _get(self, path: str, **parameters: Any) -> Any:
        await self._ready()
        return await self._client.get(path, **parameters)

    async def _workload(self, name: str) -> Workload:
        if not name:
            raise UsageError(
                "a workload is needed",
                hint="list_workloads lists them; the path of a folder with workload.toml is accepted too",
            )
        return await asyncio.to_thread(self.places.workload, name)

    async def _evaluate(self, source: str, path: str, workload: str, gate: Gate, chip: str, api: str) -> Json:
        found = await self._workload(workload)
        kernel = await asyncio.to_thread(self.places.kernel, source, path, api, found)
        whole = await self._evaluated(kernel, found, gate, chip)
        answer = finding(evaluation_from(whole), kernel.text, found, whole["chip"], kernel.lnc)
        return {"workload": found.name, **answer, "details": self._keep(whole)}

    async def _evaluated(
        self, kernel: Kernel, found: Workload, gate: Gate, chip: str, *, against: Sequence[Kernel] = ()
    ) -> Json:
        await self._ready()
        body = {
            "workload": found.name,
            "workload_folder": str(found.folder.resolve()),
            "gate": gate.value,
            "kernel": _plain(kernel),
            "against": [_plain(one) for one in against],
        }
        answer: Json = await self._client.send("POST", "/v1/evaluations", body | ({"chip": chip} if chip else {}))
        return answer

    async def _profile_bare(self, source: str, path: str, arguments: Sequence[str], chip: str, api: str) -> Json:
        """Return the predicted latency of a kernel that has no workload, for the given arguments."""
        kernel = await asyncio.to_thread(self.places.kernel, source, path, api, None)
        body: Json = {"kernel": _plain(kernel), "arguments": [_argument(text, at) for at, text in enumerate(arguments)]}
        await self._ready()
        whole = await self._client.send("POST", "/v1/evaluations", body | ({"chip": chip} if chip else {}))
        answer = finding(evaluation_from(whole), kernel.text, None, whole["chip"], kernel.lnc)
        return {**answer, "details": self._keep(whole)}

    async def _best(self, run: str, workload: str, chip: str) -> Json:
        if run:
            found: Json = await self._get(f"/v1/runs/{_number(run, 'r')}")
        else:
            if not workload:
                raise UsageError(
                    "give a run or a workload", hint="such as run: r12, or workload: softmax; list_runs lists runs"
                )
            listed = await self._get("/v1/runs", workload=workload, chip=chip or None, sort="speedup", limit=1)
            if not listed["runs"]:
                raise UsageError(f"no run of workload {workload!r} yet", hint="optimize begins one")
            found = listed["runs"][0]
        if found["best"] is None:
            raise UsageError(
                f"r{found['id']} has no kernel that passed", hint=found["message"] or "follow_run waits for it"
            )
        return found

    async def _act(self, run: int, action: str, **arguments: Any) -> str:
        await self._ready()
        asked = {"action": action, "by": "agent", **arguments}
        return str((await self._client.send("POST", f"/v1/runs/{run}/actions", asked))["result"])

    async def _follow(self, run: int, wait_s: float, report: Report) -> Json:
        deadline = time.monotonic() + max(0.0, min(wait_s, 86_400.0))
        seq, reported = 0, ""
        try:
            while True:
                row = await self._client.get(f"/v1/runs/{run}")
                state = RunState.RUNNING if row["state"] == CANCELLING else RunState(row["state"])
                line = _standing(row)
                if line != reported:
                    reported = line
                    await report(float(row["evaluated"]), None, line)
                if state.ended or waits_for_remedy(state, row["message"]) or state is RunState.PAUSED:
                    return await self._outcome(run, row)
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return self._running(row)
                page = await self._client.get(
                    f"/v1/runs/{run}/events", after=seq, wait_s=round(min(EVENTS_S, left_s), 3), limit=500
                )
                seq = page["events"][-1]["seq"] if page["events"] else seq
        except asyncio.CancelledError:
            self._part(run)
            raise

    def _part(self, run: int) -> None:
        """Pause a run for which no client waits any more. The pause is sent in the background, so the caller does
        not wait for it.
        """

        async def pause() -> None:
            with suppress(AcceldError):  # the run has ended meanwhile
                await self._act(run, "pause")

        task = asyncio.get_running_loop().create_task(pause())
        self._parting.add(task)
        task.add_done_callback(self._parting.discard)

    def _running(self, row: Mapping[str, Any]) -> Json:
        return {
            "run": f"r{row['id']}",
            "state": row["state"],
            "message": _standing(row),
            "next": f"The run continues. follow_run r{row['id']} waits for it, cancel_run ends it.",
        }

    async def _outcome(self, run: int, row: Mapping[str, Any]) -> Json:
        found = await self._client.get(f"/v1/runs/{run}/outcome")
        gained = worth(found) if found["best"] is not None else {}
        word = gained.get("verdict")
        if row["state"] == RunState.PAUSED:
            following = f"The run is paused. resume_run r{run} continues it, cancel_run ends it."
        elif found["best"] is None:
            following = f"Nothing passed. details r{run} has more."
        elif word is not None and word.worth_applying:
            following = f"best_kernel r{run} shows it; apply_best r{run} writes it over its file. {RULE}"
        elif found["tie_reason"]:
            following = (
                f"The speed-up is a tie, because it is {found['tie_reason']}: measure the kernel on a device. {RULE}"
            )
        else:
            following = f"Nothing faster than a tie was found. Edit by hand: profile_kernel says what binds. {RULE}"
        keys = (
            "state",
            "message",
            "workload",
            "source",
            "chip",
            "api",
            "baseline_latency_us",
            "best_latency_us",
            "elapsed_s",
        )
        answer: Json = {
            "run": f"r{run}",
            "best": None if found["best"] is None else f"c{found['best']}",
            **{key: round(found[key], 2) if isinstance(found[key], float) else found[key] for key in keys},
            **gained,
            "tie_reason": found["tie_reason"],
            "steps": [_step(one, found["source"]) for one in found["wins"]],
            "counts": {status: count for status, count in found["counts"].items() if count},
        }
        if found["best"] is not None:
            answer |= await self._binding_of(row, found)
        return {name: value for name, value in answer.items() if value not in ("", [])} | {"next": following}

    async def _binding_of(self, row: Mapping[str, Any], found: Mapping[str, Any]) -> Json:
        """Return the physical least time of a run's best kernel, and what binds the kernel."""
        candidate = await self._client.get(f"/v1/candidates/{found['best']}")
        answer: Json = {}
        with suppress(AcceldError):  # the workload's folder may be gone
            loaded = await self._workload(row.get("workload_folder") or row["workload"])
            answer |= {"on": core_words(found["chip"], loaded.lnc)}
            answer |= floor_share(loaded, found["chip"], found["best_latency_us"], loaded.lnc)
        record = candidate["evaluation_record"]
        if record and record["profile"]:
            told = binds(convert(record["profile"], Profile), candidate["text"])
            answer |= {key: told[key] for key in ("time", "waits", "peaks") if key in told}
        return answer

    def _table(self, table: Mapping[str, Any]) -> Json:
        rows = [[_cut(cell, 400) for cell in row] for row in table["rows"]]
        shown, size = list[list[Any]](), 0
        for row in rows:
            size += len(json.dumps(row, default=str))
            if size > PAGE_CHARS:
                break
            shown.append(row)
        more = table["truncated"] or len(shown) < len(rows)
        return {"columns": table["columns"], "rows": shown, "truncated": more, "details": self._keep(table)}

    def _keep(self, value: Any) -> str:
        self._made += 1
        name = f"d{self._made}"
        self._whole[name] = value
        if len(self._whole) > KEPT:
            self._whole.popitem(last=False)
        return name


def _plain(kernel: Kernel) -> Json:
    names = ("text", "api", "entry", "lnc", "filename", "trusted")
    return {name: getattr(kernel, name) for name in names} | {"grid": list(kernel.grid)}


def _suggested(kernel: Kernel, rule: str | None, found: Workload | None) -> list[Json]:
    from acceld.errors import RuleRefused
    from acceld.nki.source.launches import Launch, launch_of
    from acceld.proposers.rules.suggested import suggested

    launch = (
        launch_of(kernel, found.kernel_facts, found.kernel_dtypes) if found else Launch(kernel.api, entry=kernel.entry)
    )
    try:
        return suggested(kernel.text, launch, rule)
    except RuleRefused as error:
        raise UsageError(
            f"the rules can not read this kernel: {error}", hint="check_kernel says what is wrong with the kernel"
        ) from error
    except RecursionError as error:
        raise UsageError(
            "the source is nested too deep for the rules", hint="write long expressions as several statements"
        ) from error


def _shown(found: Workload, show: str) -> Json:
    if show == "reference":
        text = found.reference.read_text(encoding="utf-8") if found.reference else ""
        return {
            "name": found.name,
            "text": text or "The kernel's own execution in float64 takes the place of the reference.",
        }
    if show == "kernel":
        api, path = next(iter(found.baselines.items()), ("", None))
        return {"name": found.name, "api": api, "text": path.read_text(encoding="utf-8") if path else ""}
    return {"name": found.name, "about": found.description, **_facts(found)}


def _facts(found: Workload) -> Json:
    """Return a workload's arguments, outputs and accuracy, and its floor on each chip."""
    work = found.work
    answer: Json = {
        "arguments": [
            f"{a.name} = {a.value}" if a.is_scalar else f"{a.name} {a.dtype}{list(a.kernel_shape)}"
            for a in found.arguments
        ],
        "outputs": [f"{one.name} {one.dtype}{list(one.kernel_shape)}" for one in found.outputs],
        "precision": f"{found.precision}: {PRECISIONS[found.precision]}",
        "tolerance": (
            f"{found.tolerance:g} relative L2 at most. Each data set allows 20 times the error of float32 arithmetic measured on "
            "it, if that is less; check_kernel says which held."
        ),
        "work": None
        if work is None
        else f"{work.matmul_flops:,} operations in products, {work.vector_flops:,} others, {work.hbm_bytes:,} bytes",
        "floor_us": {chip: share["floor_us"] for chip in CHIPS if (share := floor_share(found, chip, None, found.lnc))},
        "cores": found.lnc,
        "entry": found.entry,
        "grid": list(found.grid),
        "kernels": {api: path.name for api, path in found.baselines.items()},
        "distributions": ", ".join(one for one in found.distributions),
    }
    return {name: value for name, value in answer.items() if value}


def _argument(text: str, place: int) -> Json | float | int:
    """Return an argument that a text describes: shape and dtype for ``128x512:float32``, the number for ``eps=1e-6``."""
    if ":" in text:
        draft = parse_argument(text, place)
        return {"shape": draft.shape, "dtype": draft.dtype}
    value = parse_scalar(text).value
    assert value is not None
    return value


@dataclass(frozen=True, slots=True)
class _Row:
    """One kernel of a call that evaluates many, with its result."""

    place: int
    name: str
    said: str
    details: str = ""
    workload: str = ""
    result: Evaluation | None = None
    text: str = ""

    @property
    def passed(self) -> bool:
        """Return True if the kernel passed."""
        return self.result is not None and self.result.status == "passed"

    @property
    def profile(self) -> Profile | None:
        """Return the kernel's profile; None if the kernel was not evaluated."""
        return self.result.profile if self.result is not None else None


def _rank(row: _Row) -> tuple[str, bool, float, int]:
    latency_us = row.result.latency_us if row.result is not None and row.passed else None
    return (row.workload if row.passed else "~", latency_us is None, latency_us or 0.0, row.place)


def _step(one: Mapping[str, Any], source: str) -> str:
    """Return one line about a step on the way from the baseline to the best kernel."""
    word = verdict(one["speedup"], one["improved"], one["tie_band"], source)
    speedup = "" if one["speedup"] is None else f" x{one['speedup']:.3f} {word}"
    latency = "" if one["latency_us"] is None else f" {one['latency_us']:.1f} µs"
    return f"c{one['candidate']} {one['title'] or one['rule']}:{latency}{speedup}"


def _expected(one: Mapping[str, Any]) -> str:
    low, high = one["gain_percent"]
    return f"{low:g} to {high:g} % expected"


def _standing(row: Mapping[str, Any]) -> str:
    """Return the state of a run in one line."""
    text = (
        f"r{row['id']} {row['state']}: iteration {row['iteration']}/{row['iterations']}, {row['evaluated']} evaluated"
    )
    if row["best_latency_us"] is not None:
        text += f", best {figures.brief_latency(row['best_latency_us'], row['source'], row['chip'])}"
    if row["speedup"] is not None:
        text += f" ({row['speedup']:.2f}x {worth(row)['verdict']})"
    return text + (f"; {row['message']}" if row["message"] else "")


def _number(text: str, letter: str) -> int:
    digits = text.strip().removeprefix(letter)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise UsageError(f"{text[:40]!r} is not an id", hint=f"write the id as {letter}12")
    return int(digits)


def _cut(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]}… ({len(value) - limit} characters more)"
    return value


def _within(lines: Sequence[str], room: int) -> list[str]:
    """Return the first lines that fit in ``room`` characters. If lines are left out, a last line says how many."""
    kept: list[str] = []
    for line in lines:
        room -= len(json.dumps(line, ensure_ascii=False)) + 2
        if room < 0:
            return [*kept, f"and {len(lines) - len(kept)} more"]
        kept.append(line)
    return kept


def _within_text(parts: Sequence[str]) -> str:
    """Return as many whole texts as fit in one part of an answer. If not even the first text fits, return its
    beginning.
    """
    kept: list[str] = []
    for part in parts:
        if kept and sum(map(len, kept)) + len(part) > PAGE_CHARS:
            return "\n".join([*kept, f"({len(parts) - len(kept)} more in details)"])
        kept.append(_cut(part, PAGE_CHARS))
    return "\n".join(kept)


def fitted(answer: Json, limit: int = ANSWER_CHARS) -> str:
    """Return an answer as JSON text of at most ``limit`` characters. A longer answer is shortened: its longest texts
    are cut, and its longest lists lose their last entries.
    """
    text = json.dumps(answer, ensure_ascii=False, default=str)
    while len(text) > limit and _shortened(answer, len(text) - limit):
        text = json.dumps(answer, ensure_ascii=False, default=str)
    return text


def _shortened(value: Any, excess: int) -> bool:
    """Shorten the longest part of a container by about ``excess`` characters. Return False if no part can be shortened."""
    places = list(value) if isinstance(value, dict) else range(len(value))
    sized = sorted(places, key=lambda at: -len(json.dumps(value[at], ensure_ascii=False, default=str)))
    for at in sized:
        part = value[at]
        if isinstance(part, str) and len(part) > 200:
            value[at] = f"{part[: max(160, len(part) - excess - 40)]}… (cut; details has all)"
            return True
        if isinstance(part, list) and len(part) > 1:
            part[-2:] = ["…"]
            return True
        if isinstance(part, dict) and _shortened(part, excess):
            return True
    return False
