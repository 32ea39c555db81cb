"""Implement the agents' tools as calls of the daemon's API.

Answers are short; the full record is available by id. Kernels of an agent are evaluated like any candidate, in the jail
and under the policy. Paths must lie below the folders that its user opened (:mod:`acceld.agents.places`). Every answer
is JSON-able and small enough for a model's context.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from acceld import figures
from acceld.agents.places import Places
from acceld.daemon.launch import ensure
from acceld.drafts import parse_argument, parse_scalar
from acceld.errors import AcceldError, UsageError, did_you_mean
from acceld.evaluate import policy
from acceld.gains import gain, interleaved
from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.model import CANCELLING, Gate, Kernel, RunState, waits_for_remedy
from acceld.nki.frontend import reference
from acceld.roofline import floor_us, roofline_us
from acceld.watch.answers import evaluation_from
from acceld.watch.apply import seen
from acceld.workloads import Workload, find_workloads

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
GAIN = ("speedup", "improved", "tie_band")
"""Figures of a speed-up: it is a win if ``improved``, and a tie inside the band."""
HOT_LINES = 5
KEPT = 128
"""Number of full results that are kept for later questions by id."""
PAGE_CHARS = 12_000
"""Longest part of a full result in one answer, in characters."""
MOST_KERNELS = 64
MOST_SUGGESTIONS = 12
SUGGEST_CHARS = 200_000
ROWS = 200


async def _quiet(progress: float, total: float | None, message: str) -> None:
    """Ignore a progress report."""


class Toolbox:
    """Hold the tools over one state folder. Call ``await close()`` when done."""

    def __init__(self, home: Home, places: Places) -> None:
        self.home = home
        self.places = places
        self._client = HttpClient.of(home, timeout_s=ANSWER_S)
        self._whole: OrderedDict[str, Any] = OrderedDict()
        self._made = 0
        self._parting: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Finish the work of cancelled calls, and disconnect from the daemon."""
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
        """Return a kernel's predicted latency and its bound. The kernel is not run on data."""
        if arguments and not workload:
            return await self._profile_bare(source, path, arguments, chip, api)
        return await self._evaluate(source, path, workload, Gate.TIMING, chip, api)

    async def check_kernel(
        self, *, source: str = "", path: str = "", workload: str, strict: bool = False, chip: str = "", api: str = ""
    ) -> Json:
        """Return the result of a kernel against a workload's reference, with its latency if it passes."""
        return await self._evaluate(source, path, workload, Gate.STRICT if strict else Gate.SEARCH, chip, api)

    async def suggest_rewrites(
        self, *, source: str = "", path: str = "", workload: str = "", rule: str = "", api: str = ""
    ) -> Json:
        """Return the changes that the rewrite rules propose, best first, each with its diff. Changes nothing."""
        found = await self._workload(workload) if workload else None
        kernel = await asyncio.to_thread(self.places.kernel, source, path, api, found)
        if len(kernel.text) > SUGGEST_CHARS:
            raise UsageError(f"a kernel of {len(kernel.text)} characters is too long for the rules")
        refused = await asyncio.to_thread(policy.check, kernel.text, kernel.filename)
        if refused is not None and refused.rule == "syntax":
            raise UsageError(f"line {refused.line}: {refused.message}", hint="mend the source first")
        listed = await asyncio.to_thread(_suggested, kernel, rule or None, found)
        return {
            "api": kernel.api,
            "count": len(listed),
            "suggestions": [self._short_suggestion(one) for one in listed[:MOST_SUGGESTIONS]],
            "details": self._keep(listed),
            "next": "Apply a diff yourself and check_kernel it, or let optimize try and check them all.",
        }

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
        """Return both results, the ratio of their latencies, and the ratio up to which they tie."""
        found = await self._workload(workload)
        first = await asyncio.to_thread(self.places.kernel, first_source, first_path, api, found)
        second = await asyncio.to_thread(self.places.kernel, second_source, second_path, api or first.api, found)
        one = await self._evaluated(first, found, Gate.SEARCH, chip, against=(second,))
        other = await self._evaluated(second, found, Gate.SEARCH, chip)
        timed = one["paired"][0] if one["paired"] else None
        latencies = _latency_us(one), _latency_us(other)
        both = one["status"] == other["status"] == "passed" and latencies[0] and latencies[1]
        ratio = timed["ratio"] if timed else latencies[1] / latencies[0] if both else None
        same = one["program_sha256"] == other["program_sha256"]
        change = gain(evaluation_from(other).profile, evaluation_from(one).profile)
        news = None if same else interleaved(timed) if timed else change.faster if change else None
        band = timed["band_percent"] if timed else change.band_percent if change else None
        return {
            "first": self._short(one, first.text),
            "second": self._short(other, second.text),
            "ratio": ratio,
            "improved": bool(both and news),
            "tie_band_percent": band,
            "tie_reason": "" if timed or change is None else change.reason,
            "result": COMPARED[news] if both else "both have to pass before they can be compared",
        }

    async def evaluate_kernels(
        self, *, kernels: Sequence[Mapping[str, str]], strict: bool = False, chip: str = "", report: Report = _quiet
    ) -> Json:
        """Return a short result of each of many kernels, in their order."""
        if not 1 <= len(kernels) <= MOST_KERNELS:
            raise UsageError(f"give 1 to {MOST_KERNELS} kernels", hint="more go into several calls")
        gate, done, results = Gate.STRICT if strict else Gate.SEARCH, 0, [Json()] * len(kernels)
        places = asyncio.Semaphore(4)

        async def evaluator(place: int, item: Mapping[str, str]) -> None:
            nonlocal done
            async with places:
                try:
                    found = await self._workload(item.get("workload", ""))
                    kernel = await asyncio.to_thread(
                        self.places.kernel, item.get("source", ""), item.get("path", ""), item.get("api", ""), found
                    )
                    results[place] = self._short(await self._evaluated(kernel, found, gate, chip), kernel.text)
                except AcceldError as error:
                    results[place] = {"error": error.message, "hint": error.hint}
                done += 1
                await report(done, len(kernels), f"{done} of {len(kernels)} evaluated")

        async with asyncio.TaskGroup() as tasks:
            for place, item in enumerate(kernels):
                tasks.create_task(evaluator(place, item))
        return {"results": results, "passed": sum(one.get("status") == "passed" for one in results)}

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
        """Search for a faster version and return the outcome, or the state after ``wait_s``.

        A cancelled call pauses the run; :meth:`resume_run` continues it.
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
        """Wait for a run and return its outcome, or its state after ``wait_s``."""
        await self._ready()
        return await self._follow(_number(run, "r"), wait_s, report)

    async def resume_run(self, *, run: str, wait_s: float = 600.0, report: Report = _quiet) -> Json:
        """Continue a run that was paused or has failed, and wait for it."""
        number = _number(run, "r")
        await self._act(number, "resume")
        return await self._follow(number, wait_s, report)

    async def cancel_run(self, *, run: str) -> Json:
        """End a run once its current evaluations are done; its results are kept."""
        number = _number(run, "r")
        result = await self._act(number, "cancel")
        return {"run": f"r{number}", "result": result}

    async def list_runs(self, *, workload: str = "", limit: int = 20) -> Json:
        """Return the newest runs in short."""
        await self._ready()
        found = await self._client.get("/v1/runs", workload=workload or None, limit=max(1, min(limit, 100)))
        keys = ("workload", "state", "message", "proposer", "chip", "best_latency_us", *GAIN, "source")
        runs = [{"run": f"r{one['id']}", **{key: one[key] for key in keys}} for one in found["runs"]]
        return {"runs": runs, "total": found["total"]}

    async def best_kernel(self, *, run: str = "", workload: str = "", chip: str = "") -> Json:
        """Return the text of the best kernel of a run, or of a workload's fastest run, and its diff from the baseline."""
        found = await self._best(run, workload, chip)
        candidate = await self._client.get(f"/v1/candidates/{found['best']}")
        changed = await self._client.get(f"/v1/candidates/{found['best']}/diff", against="baseline")
        return {
            "run": f"r{found['id']}",
            "candidate": f"c{found['best']}",
            "latency_us": found["best_latency_us"],
            **{key: found[key] for key in GAIN},
            "source": found["source"],
            "gate": candidate["gate"],
            "text": candidate["text"],
            "diff": _cut(changed["diff"], PAGE_CHARS),
        }

    async def apply_best(self, *, run: str, path: str, even_if_tied: bool = False) -> Json:
        """Write a run's best kernel over a file and keep a copy of the old text beside it.

        UsageError if the kernel has not passed the strict gate, is not a drop-in for the file, does not pass now, or is
        no faster than the baseline beyond a tie, unless ``even_if_tied``.
        """
        found = await self._best(run, "", "")
        best = await self._client.get(f"/v1/candidates/{found['best']}")
        if best["gate"] != Gate.STRICT:
            raise UsageError(
                f"c{found['best']} has not passed the strict gate", hint="follow_run until the run has ended"
            )
        file = await asyncio.to_thread(self.places.kernel_file, path)
        asked: Json = {"path": str(file), "expected_sha256": await asyncio.to_thread(seen, file)}
        result = await self._act(found["id"], "apply", **asked, **({"even_if_tied": True} if even_if_tied else {}))
        gained = {key: found[key] for key in GAIN}
        return {"result": result, "latency_us": found["best_latency_us"], **gained, "gate": "strict"}

    # Tools that look things up.

    async def list_workloads(self, *, contains: str = "") -> Json:
        """Return short entries of the workloads whose name or description contains the words."""
        listed = await asyncio.to_thread(find_workloads, self.places.config.paths.workloads)
        words = contains.lower().split()
        chosen = [
            one for one in listed.values() if all(word in f"{one.name} {one.description}".lower() for word in words)
        ]
        rows = [{"name": one.name, "about": one.description, "apis": list(one.baselines)} for one in chosen]
        return {"workloads": rows, "total": len(listed)}

    async def show_workload(self, *, workload: str) -> Json:
        """Return a workload's arguments, outputs, tolerance, least times and reference."""
        return await asyncio.to_thread(_shown, await self._workload(workload))

    async def look_up(self, *, name: str) -> Json:
        """Return an NKI call's parameters in each API, and if the simulator supports it."""
        if not name.strip() or len(name) > 200:
            raise UsageError("give the name of one call", hint="such as nc_matmul or nl.load")
        found = await asyncio.to_thread(reference.look_up, name)
        if not found:
            like = await asyncio.to_thread(reference.near, name)
            raise UsageError(f"no NKI API documents {name!r}", hint=f"near: {', '.join(like)}" if like else "")
        keys = ("module", "name", "api", "signature", "state", "text")
        return {"calls": [{key: getattr(call, key) for key in keys} for call in found]}

    async def query_history(self, *, sql: str = "", saved: str = "", words: str = "", limit: int = 50) -> Json:
        """Return the rows of one SELECT or of a saved query, or the hits of a full-text search. Read-only."""
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
        """Return a full record as JSON text, a part at a time: r12, c345, e901, i38, or an id from another answer."""
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
        text = json.dumps(value, ensure_ascii=False, default=str)
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
        """Start a daemon for the folder if none is running; it ends when idle."""
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
        answer = self._short(await self._evaluated(kernel, found, gate, chip), kernel.text)
        least = {
            "roofline_us": roofline_us(found, answer["chip"]),
            "floor_us": floor_us(found, answer["chip"]),
        }
        return {"workload": found.name, **answer, **{name: us for name, us in least.items() if us is not None}}

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
        """Time a kernel from its arguments alone."""
        kernel = await asyncio.to_thread(self.places.kernel, source, path, api, None)
        body: Json = {"kernel": _plain(kernel), "arguments": [_argument(text, at) for at, text in enumerate(arguments)]}
        await self._ready()
        answer = await self._client.send("POST", "/v1/evaluations", body | ({"chip": chip} if chip else {}))
        return self._short(answer, kernel.text)

    async def _best(self, run: str, workload: str, chip: str) -> Json:
        if run:
            found: Json = await self._get(f"/v1/runs/{_number(run, 'r')}")
        else:
            if not workload:
                raise UsageError("give a run or a workload")
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
        """Pause a run that no client waits for any more, without delaying the caller."""

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
        if row["state"] == RunState.PAUSED:
            following = f"It is paused. resume_run r{run} continues it, cancel_run ends it."
        elif found["best"] is None:
            following = f"Nothing passed. details r{run} has more."
        elif found["improved"]:
            following = f"best_kernel r{run} shows it; apply_best r{run} writes it over its file."
        else:
            following = "Nothing faster beyond the uncertainty was found. Another proposer or preset may find more."
            if found["tie_reason"]:
                following = (
                    f"The speed-up is no win, because it is {found['tie_reason']}: measure the kernel on a device."
                )
        keys = (
            "state",
            "message",
            "workload",
            "source",
            "chip",
            "api",
            "proposer",
            "baseline_latency_us",
            "best_latency_us",
            *GAIN,
            "tie_reason",
            "timed_again",
            "percent_of_peak_after",
            "elapsed_s",
            "wins",
        )
        return {
            "run": f"r{run}",
            "best": None if found["best"] is None else f"c{found['best']}",
            **{key: found[key] for key in keys},
            "counts": {status: count for status, count in found["counts"].items() if count},
            "next": following,
        }

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

    def _short_suggestion(self, one: Mapping[str, Any]) -> Json:
        keys = ("rule", "line", "plan", "precondition", "reason", "gain_percent", "variants")
        return {**{key: one[key] for key in keys}, "diff": _cut(one["diff"], 2000)}

    def _short(self, reported: Mapping[str, Any], text: str) -> Json:
        """Return the main figures of an evaluation, and keep the full record for :meth:`details`."""
        profile, correctness, failure = reported.get("profile"), reported.get("correctness"), reported.get("failure")
        answer: Json = {"status": reported["status"], "chip": reported["chip"], "api": reported["api"]}
        if failure is not None:
            answer["failure"] = {key: failure[key] for key in ("rule", "message", "line", "hint") if failure[key]}
            answer["failure"]["message"] = _cut(failure["message"], 2000)
            lines = text.splitlines()
            if 0 < failure["line"] <= len(lines):
                answer["failure"]["source_line"] = _cut(lines[failure["line"] - 1].strip(), 200)
        if correctness is not None:
            answer |= {key: correctness[key] for key in ("gate", "rel_l2", "tolerance")}
        if profile is not None:
            answer |= {key: profile[key] for key in ("latency_us", "source", "interval_percent", "bound")}
            answer |= {
                key: reported[key] for key in ("percent_of_peak", "percent_of_attainable") if reported[key] is not None
            }
            busy = sorted(profile["engines_us"].items(), key=lambda item: -item[1])
            answer["engines_us"] = {name: round(us, 3) for name, us in busy if us}
            answer["hot_spots"] = _hot(profile["details"].get("hot_spots", ()), text)
            answer["notes"] = [_cut(note, 300) for note in profile["notes"][:5]]
        return answer | {"details": self._keep(reported)}

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
    from acceld.proposers.rules.suggested import suggested

    shapes, dtypes = (found.kernel_shapes, found.kernel_dtypes) if found else ((), ())
    try:
        return suggested(kernel.text, kernel.api, rule, shapes, dtypes, entry=kernel.entry)
    except RuleRefused as error:
        raise UsageError(
            f"the rules can not read this kernel: {error}", hint="check_kernel says if it is one"
        ) from error
    except RecursionError as error:
        raise UsageError("the source is nested too deep for the rules") from error


def _shown(found: Workload) -> Json:
    arguments = [
        {"name": a.name, "value": a.value}
        if a.is_scalar
        else {"name": a.name, "shape": list(a.kernel_shape), "dtype": a.dtype}
        for a in found.arguments
    ]
    text = found.reference.read_text(encoding="utf-8") if found.reference else ""
    return {
        "name": found.name,
        "about": found.description,
        "arguments": arguments,
        "outputs": [{"name": o.name, "shape": list(o.kernel_shape), "dtype": o.dtype} for o in found.outputs],
        "tolerance_rel_l2": found.tolerance,
        "precision": str(found.precision),
        "entry": found.entry,
        "grid": list(found.grid),
        "baselines": list(found.baselines),
        "roofline_us": {chip: us for chip in ("trn1", "trn2", "trn3") if (us := roofline_us(found, chip)) is not None},
        "reference": _cut(text, PAGE_CHARS),
    }


def _argument(text: str, place: int) -> Json | float | int:
    """Return ``128x512:float32`` as an array's shape and dtype, ``eps=1e-6`` as a number."""
    if ":" in text:
        draft = parse_argument(text, place)
        return {"shape": draft.shape, "dtype": draft.dtype}
    value = parse_scalar(text).value
    assert value is not None
    return value


def _hot(lines: Sequence[Mapping[str, Any]], text: str) -> list[Json]:
    source = text.splitlines()
    return [
        {
            "line": one["line"],
            "engine": one["engine"],
            "busy_us": round(one["busy_us"], 3),
            "source": source[one["line"] - 1].strip()[:120] if 0 < one["line"] <= len(source) else "",
        }
        for one in lines[:HOT_LINES]
    ]


def _latency_us(reported: Mapping[str, Any]) -> float:
    return float((reported["profile"] or {}).get("latency_us") or 0.0)


def _standing(row: Mapping[str, Any]) -> str:
    """Return the state of a run in one line."""
    text = (
        f"r{row['id']} {row['state']}: iteration {row['iteration']}/{row['iterations']}, {row['evaluated']} evaluated"
    )
    if row["best_latency_us"] is not None:
        text += f", best {figures.brief_latency(row['best_latency_us'], row['source'], row['chip'])}"
    if row["speedup"] is not None:
        text += f" ({figures.brief_gain(row['speedup'], row['improved'])})"
    return text + (f"; {row['message']}" if row["message"] else "")


def _number(text: str, letter: str) -> int:
    digits = text.strip().removeprefix(letter)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise UsageError(f"{text[:40]!r} is not an id", hint=f"one is written {letter}12")
    return int(digits)


def _cut(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]}… ({len(value) - limit} characters more)"
    return value
