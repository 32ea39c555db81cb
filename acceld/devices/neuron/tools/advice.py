"""Draw conclusions from a trial's report: what works, what is missing, and what to set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from acceld.device import Finding
from acceld.errors import UsageError

JAILS = ("strict", "wide", "off")


def advice(report: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the conclusions from a report of ``acceld doctor --neuron``. Raise UsageError if ``report`` is not such a
    report.
    """
    steps = report.get("steps")
    if not isinstance(steps, list) or "missing" not in report:
        raise UsageError(
            "the file is not a report of acceld doctor --neuron", hint="acceld doctor --neuron writes such a report."
        )
    where = f"{report.get('instance') or 'a machine whose firmware names none'}, {report['api']} for {report['target']}"
    yield Finding("machine", "ok", f"{where}, LNC {report.get('lnc', 1)}")
    for one in report["missing"]:
        yield Finding("missing", "note", str(one["what"]), str(one["todo"]))
    results = {str(step["name"]): step for step in steps if isinstance(step, dict) and "name" in step}
    for name in ("neuron-ls", "cores"):
        if "error" in results.get(name, {}):
            yield Finding(name, "fail", _last(results[name]["error"]))
    yield from _compiling(results)
    if "simulate" in results:
        step = results["simulate"]
        failed = "error" in step
        text = _last(step["error"]) if failed else f"nki.simulate works in {step['result']}"
        yield Finding("simulate", "note" if failed else "ok", text)
    yield from _running(results, report)


def _compiling(results: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    works: dict[str, list[str]] = {}
    failures: list[tuple[str, Mapping[str, Any]]] = []
    for name, step in results.items():
        if not name.startswith("compile, jail "):
            continue
        jail, _, route = name.removeprefix("compile, jail ").partition(", ")
        if "error" not in step:
            works.setdefault(jail, []).append(f"{route} ({step.get('seconds', 0):g} s)")
        elif not step.get("absent"):
            failures.append((f"{jail}, {route}", step))
    jail = next((one for one in JAILS if one in works), "")
    for what, step in failures:
        lacks = f"; the jail refuses {step['missing']}" if step.get("missing") else ""
        yield Finding("compile", "note", f"{what}: {_last(step['error'])}{lacks}")
    if not jail:
        yield Finding("compile", "fail", "a known-good kernel compiles in no jail", "send the report with an issue")
        return
    todo = {
        "strict": "",
        "wide": 'devices.compile_jail = "auto" finds this jail; set "wide" to skip the try of "strict"',
        "off": 'the kernel compiles only without a jail: with devices.compile_jail = "off" candidates\' Python runs as your user',
    }[jail]
    yield Finding("compile", "ok" if jail != "off" else "fail", f"jail {jail}: {', '.join(works[jail])}", todo)


def _running(results: Mapping[str, Mapping[str, Any]], report: Mapping[str, Any]) -> Iterator[Finding]:
    timed = []
    for name, step in results.items():
        kind = name.partition(", ")[0]
        if kind not in ("run", "time"):
            continue
        if "error" in step:
            yield Finding(name, "note", _last(step["error"]))
        elif kind == "time":
            timed.append(step["result"])
            least = step["result"].get("resolution_us")
            seen = "of unknown resolution" if least is None else f"least visible win {2 * least:g} µs"
            yield Finding(name, "ok", f"{step['result']['latency_us']:.4g} µs by {step['result']['method']}, {seen}")
    if not timed:
        yield Finding("timing", "fail", "nothing could be timed", "send the report with an issue")
        return
    settings = [
        f'devices.{name} = "{report[name]}"' for name in ("compile_python", "runner_python") if report.get(name)
    ]
    backend = "neuron_legacy" if report["api"] == "nki_legacy" else "neuron"
    yield Finding("set", "ok", f'devices.backend = "{backend}"; {"; ".join(settings)}')


def _last(text: object) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
