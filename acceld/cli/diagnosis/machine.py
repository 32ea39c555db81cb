"""Show what acceld can use of this machine, and what to do about each thing that is missing."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from acceld import config, figures, origins, plugins
from acceld.cli.commands.status import size
from acceld.cli.connect import records
from acceld.cli.output import print_json
from acceld.client import Client
from acceld.device import Finding
from acceld.errors import AcceldError, ConfigError, UsageError
from acceld.home import find_home
from acceld.private_files import no_access, other_owner
from acceld.targets import nki_version

SHOWN_OPINIONS = 5
"""Limit on the disagreements with AWS's tools that are shown; the latest come first."""
LARGEST_CHECKED = 2**30
"""Size in bytes above which ``acceld doctor`` without a part does not check the database, because that takes too long.
"""
_DISAGREEMENTS = """
SELECT min(c.id) AS candidate, e.source_sha256, e.workload, e.chip, e.failure_line AS line, e.failure_message AS message
FROM evaluations e LEFT JOIN candidates c ON c.evaluation = e.id
WHERE e.failure_rule = ? GROUP BY e.source_sha256, e.chip ORDER BY max(e.id) DESC LIMIT ?
"""
NEEDED = ("numpy", "ml_dtypes", "aiohttp", "tree_sitter", "textual")
EXTRAS: dict[str, tuple[str, int]] = {
    "mcp": ("mcp", 20),
    "cluster": ("ray", 214),
    "cuda": ("triton", 2800),
    "torch": ("torch", 735),
    "azure": ("azure.identity", 20),
    "bedrock": ("boto3", 23),
    "vertex": ("google.auth", 20),
    "keyring": ("keyring", 18),
    "parquet": ("pyarrow", 166),
    "otel": ("opentelemetry.exporter.otlp.proto.http", 9),
    "web": ("textual_serve", 2),
    "docs": ("zensical", 42),
}
"""By extra of the package: a module that it installs, and the megabytes that it adds to a plain installation (of 126
MB). Sizes were measured on Python 3.11, x86-64 Linux, without bytecode; for ``cuda``, the size is that of the
downloaded wheels.
"""
GLYPHS = {"ok": "✓", "note": "·", "fail": "✗"}


def run(arguments: argparse.Namespace) -> int:
    """Print the findings about this machine. Return 1 if kernels can not be optimized here."""
    if arguments.report is not None:
        return _show(_read(arguments.report), as_json=arguments.json)
    if arguments.neuron:
        return _show(_try_neuron(arguments), as_json=arguments.json)
    looks: tuple[Callable[[argparse.Namespace], Iterator[Finding]], ...] = (
        _python,
        _simulator,
        _versions,
        _configuration,
        _settings,
        _state,
        _history,
        _data,
        _sandbox,
        _models,
        _command,
        _devices,
        _opinions,
        _hosts,
        _plugins,
    )
    findings: list[Finding] = []
    for look in looks:
        try:
            findings += look(arguments)
        except ConfigError as error:  # the look at the configuration reports it, once
            if look is _configuration:
                findings.append(Finding("configuration", "fail", error.message, error.hint))
        except AcceldError as error:
            findings.append(Finding(look.__name__.strip("_"), "fail", error.message, error.hint))
        except PermissionError as error:
            refused = no_access(error)
            findings.append(Finding(look.__name__.strip("_"), "fail", refused.message, refused.hint))
    return _show(findings, as_json=arguments.json)


def _try_neuron(arguments: argparse.Namespace) -> list[Finding]:
    """Try each step of compiling and running on Trainium, write the report, and return the findings."""
    from acceld.devices.neuron.tools.advice import advice
    from acceld.devices.neuron.tools.trial import scrubbed, try_machine

    settings = config.load().config
    with tempfile.TemporaryDirectory(prefix="acceld-trial-") as folder:
        _, report = asyncio.run(
            try_machine(
                api=arguments.api,
                target=arguments.target,
                lnc=arguments.lnc,
                compile_python=settings.devices.compile_python,
                runner_python=settings.devices.runner_python,
                memory_bytes=int(settings.evaluate.memory_gib * 2**30),
                folder=Path(folder),
            )
        )
    arguments.out.write_text(scrubbed(report), encoding="utf-8")
    reported = Finding(
        "report", "ok", str(arguments.out), "send the report with an issue: it holds no key, no kernel and no name"
    )
    return [*advice(report), reported]


def _read(path: Path) -> list[Finding]:
    """Return the findings of a report that an earlier trial of compiling and running on Trainium has written. Raises
    UsageError if the report can not be read.
    """
    from acceld.devices.neuron.tools.advice import advice

    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can not read {path}: {error.strerror}", hint="acceld doctor --neuron writes one") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a report: {error}", hint="acceld doctor --neuron writes one") from error
    if not isinstance(report, dict):
        raise UsageError(f"{path} is not a report", hint="acceld doctor --neuron writes one")
    return list(advice(report))


def _show(findings: list[Finding], *, as_json: bool) -> int:
    """Print the findings. Return 1 if a finding prevents optimizing, else 0."""
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [{k: getattr(f, k) for k in Finding.__slots__} for f in findings]})
        return int(failed)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{GLYPHS[finding.state]} {finding.name:{width}}  {finding.text}")
        if finding.todo:
            print(f"  {'':{width}}  → {finding.todo}")
    return int(failed)


def _python(_: argparse.Namespace) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(
        "python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {cores} cores"
    )
    missing = [name for name in NEEDED if not _importable(name)]
    if missing:
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", "pip install acceld, in this environment")
    else:
        yield Finding("packages", "ok", "all that acceld needs")
    extras = {name: f"{name} {megabytes:,} MB" for name, (_, megabytes) in EXTRAS.items()}
    there = [text for name, text in extras.items() if _importable(EXTRAS[name][0])]
    absent = [text for text in extras.values() if text not in there]
    told = f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(absent) or 'none'}"
    yield Finding("extras", "ok", told, "pip install 'acceld[NAME]' adds one" if absent else "")


def _simulator(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.nki.timing import passes

    if passes.COMPILED:
        yield Finding("simulator", "ok", "its performance model is compiled")
    else:
        text = "its performance model runs in Python, which takes about ten times longer"
        todo = "install a C++ compiler, then acceld again"
        if passes.STALE:
            text += ": its compiled part was built before this checkout changed"
            todo = "pip install -e . builds it anew"
        yield Finding("simulator", "note", text, todo)


def _versions(_: argparse.Namespace) -> Iterator[Finding]:
    asked = config.load().config.evaluate.nki
    why = "evaluate.nki" if asked != "auto" else "evaluate.nki = auto: the package of this machine, else the default"
    yield Finding(
        "nki", "ok", f"kernels of nki are checked against version {nki_version(asked)} of the package ({why})"
    )


def _opinions(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yield the latest kernels that acceld accepted and AWS's tools refused. Each such kernel shows a rule of AWS's
    tools that acceld does not check.
    """
    from acceld.evaluate.opinion import RULE

    if not find_home(arguments.home).database.is_file():
        return
    for one in records(arguments.home, _DISAGREEMENTS, (RULE, SHOWN_OPINIONS)):
        kernel = f"c{one['candidate']}" if one["candidate"] else f"kernel {one['source_sha256'][:12]}"
        text = f"{kernel} of {one['workload']} on {one['chip']}, line {one['line']}: {one['message']}"
        yield Finding(
            "second opinion", "note", text, "acceld lacks this rule of the chip: please send the kernel with an issue"
        )


def _importable(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package of the module is missing
        return False


def _configuration(_: argparse.Namespace) -> Iterator[Finding]:
    resolved = config.load()
    files = ", ".join(map(str, resolved.files)) or "no file: defaults"
    yield Finding("configuration", "ok", files)


def _settings(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yield a finding for each problem of prompts and workloads."""
    from acceld.cli.diagnosis.settings import findings

    config.load()  # an error of the configuration is no problem of prompts or workloads
    for one in findings(("prompts", "workloads"), find_home(arguments.home), None, False):
        if one.problem:
            remedy = f"mend the file; acceld doctor {one.part} then shows whether it is right"
            yield Finding(one.part, "note", f"{one.name}: {one.problem}", remedy)


def _history(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yield the state of the database, if there is a database."""
    from acceld.store.maintenance import check, size_bytes

    home = find_home(arguments.home)
    if not home.database.exists():
        yield Finding("history", "note", f"{home.database} does not exist yet", "acceld optimize WORKLOAD begins it")
        return
    used = size_bytes(home.database)
    if used > LARGEST_CHECKED:
        yield Finding("history", "note", f"{size(used)} in {home.database}, not checked", "acceld doctor database")
        return
    report = check(home.database, quick=True)
    text = f"{figures.many(report.rows.get('runs', 0), 'run')}, {size(used)} in {home.database}"
    if report.problems:
        remedy = f"acceld db restore FILE puts a copy in its place; copies are in {home.backups}"
        yield Finding("history", "fail", f"{text} is damaged: {report.problems[0]}", remedy)
    else:
        yield Finding("history", "ok", text)


def _state(arguments: argparse.Namespace) -> Iterator[Finding]:
    from acceld.evaluate.correctness.datasets import size_bytes
    from acceld.nki.timing import calibration

    home = find_home(arguments.home)
    reported = home.daemon()
    yield Finding(
        "daemon",
        "ok" if reported else "note",
        f"pid {reported['pid']}" if reported else "no daemon runs; acceld optimize starts one",
    )
    folder = home.path if home.path.exists() else home.path.parent
    if not os.access(folder, os.W_OK):
        other = other_owner(folder)
        text = f"{home.path} can not be written" + (f"; {folder} belongs to {other}" if other else "")
        yield Finding("state folder", "fail", text, "choose another: --home DIR")
    elif not origins.can_adopt():
        text = f"{origins.records()}, where acceld notes which state folders are yours, can not be made or is not yours alone"
        yield Finding("state folder", "fail", text, "XDG_STATE_HOME=DIR names another place")
    else:
        free = shutil.disk_usage(folder).free / 2**30
        yield Finding("state folder", "ok" if free > 2 else "note", f"{home.path}, {free:.0f} GiB free")
    place, cap = home.datasets, config.load().config.evaluate.cache_bytes
    used = size_bytes(place)
    text = f"{size(used)} of {size(cap)} in {place}"
    yield Finding("data sets", "ok" if used <= cap else "note", text, "" if used <= cap else "acceld clean")
    yield Finding("sqlite", "ok", sqlite3.sqlite_version)
    for one in calibration.read(home.path):
        text = f"{one.chip} {one.api}: calibrated on {figures.many(one.kernels, 'kernel')}, {one.text}"
        stale = f"of version {one.params_version} of the parameters: not used"
        todo = "" if one.current else "acceld calibrate --fit"
        yield Finding(
            "performance model", "ok" if one.current else "note", text if one.current else f"{text}; {stale}", todo
        )


def _data(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.resources import prompts_folder
    from acceld.workloads import find_workloads

    extra = config.load().config.paths.workloads
    yield Finding("workloads", "ok", f"{len(find_workloads(extra))} found")
    yield Finding("prompts", "ok", str(prompts_folder()))


def _sandbox(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.evaluate.sandbox.jail import Level
    from acceld.evaluate.sandbox.ladder import probe_level

    report = asyncio.run(probe_level())
    state: Literal["ok", "note", "fail"] = (
        "ok" if report.level >= Level.L2 else "note" if report.untrusted_allowed else "fail"
    )
    refused = "; ".join(f"{level.name}: {why}" for level, why in report.refused)
    yield Finding("sandbox", state, f"level {report.level.name}", refused)


def _models(_: argparse.Namespace) -> Iterator[Finding]:
    settings = config.load().config
    if not settings.models:
        yield Finding(
            "models",
            "note",
            "no model is configured; rewrite rules need no model",
            f"a section [models.NAME] in {config.settings_file()} (docs/models.md)",
        )
    for name, model in settings.models.items():
        default = "ANTHROPIC_API_KEY" if model.provider == "anthropic" else "OPENAI_API_KEY"
        variable = model.key_env or default
        if os.environ.get(variable) or model.base_url:
            yield Finding(f"model {name}", "ok", model.base_url or f"key in {variable}")
        else:
            yield Finding(f"model {name}", "note", f"no key: {variable} is not set", f"export {variable}=...")


def _command(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.proposers.command import command_words

    settings = config.load().config
    if not settings.command.run:
        return
    program = command_words(settings.command.run)[0]
    found = shutil.which(program)
    if found is None:
        yield Finding("command", "note", f"{program} is not found", "install it, or change [command] run")
        return
    caps = f"{settings.command.time_s:g} s"
    if settings.command.usd is not None:
        caps += f" and {settings.command.usd:g} USD"
    yield Finding("command", "ok", f"{found} runs with your own rights, outside of the sandbox; {caps} an attempt")


def _devices(arguments: argparse.Namespace) -> Iterator[Finding]:
    from acceld.evaluate.local import findings

    yield from findings(config.load().config, find_home(arguments.home).path)


def _hosts(arguments: argparse.Namespace) -> Iterator[Finding]:
    cluster, home = config.load().config.devices.cluster, find_home(arguments.home)
    if not cluster:
        return
    found = "installed" if _importable("ray") else "missing"
    todo = "" if found == "installed" else "pip install 'acceld[cluster]'"
    if not todo and cluster.startswith("ray://") and not _importable("grpc"):
        found, todo = (
            "installed without its client",
            "pip install 'ray[client]', or give the address of the head's port 6379",
        )
    yield Finding("Ray", "fail" if todo else "ok", f"{found}; devices.cluster is {cluster}", todo)
    if home.daemon() is None:
        yield Finding("hosts", "note", "no daemon runs, so no host is asked", "acceld start")
        return
    client = Client(home)
    for host in client.get("/v1/hosts")["hosts"]:
        name, standing = host["host"], host["standing"]
        reported = f"{standing}: {host['reason']}".rstrip(": ")
        todo = f"acceld hosts undrain {name}" if standing == "aside" else ""
        yield Finding(f"host {name}", "ok" if standing == "active" else "note", reported, todo)
        for backend, why in host["unfit"].items():
            yield Finding(f"host {name}", "note", f"{backend}: {why}")
        if standing != "silent":
            for one in client.get(f"/v1/hosts/{quote(name, safe='')}/doctor")["findings"]:
                yield Finding(f"host {name}: {one['name']}", one["state"], one["text"], one["todo"])


def _plugins(_: argparse.Namespace) -> Iterator[Finding]:
    for group in plugins.GROUPS:
        for plugin in plugins.plugins(group):
            yield Finding("plug-in", "ok", f"{plugin.name} of {plugin.package} in {group}")
    for one in plugins.broken():
        yield Finding("plug-in", "note", f"{one.name} of {one.package} in {one.group} is not used: {one.reason}")
