"""Run a person's commands on certain events. A command gets a JSON object on its standard input.

``on_best`` runs when a kernel that passed the strict gate became a run's best. ``on_end`` runs when a run ended,
``on_alarm`` at a budget level, a sick device or a suspect candidate. Each command is recorded before it starts. Its
process group is ended after ``LIMIT_S`` seconds, and no run waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import signal

from acceld.alerts import alert_of
from acceld.config import HooksConfig, settings_file
from acceld.events import Event, to_json
from acceld.store.changes.runs import intend_effect, settle_effect, write_notice
from acceld.store.database import Store
from acceld.store.reads import listing

log = logging.getLogger(__name__)

LIMIT_S = 30.0


def hook_for(event: Event, hooks: HooksConfig) -> tuple[str, str]:
    """Return the name and command of the hook for an event; both empty for an event without a hook."""
    alert = alert_of(event)
    match alert.subject if alert else None:
        case None:
            return "", ""
        case "win":
            return "on_best", hooks.on_best
        case "end":
            return "on_end", hooks.on_end
        case _:
            return "on_alarm", hooks.on_alarm


async def run_hooks(store: Store, hooks: HooksConfig) -> None:
    """Run the hook of each new event, one after another, until the caller cancels the task."""
    if not (hooks.on_best or hooks.on_end or hooks.on_alarm):
        return
    async for event in store.subscribe(store.hub.last_seq):
        name, command = hook_for(event, hooks)
        if not command:
            continue
        entry, done = await store.change(intend_effect, "hook", f"{name} {event.seq}", event.run, {"event": event.seq})
        if done is not None:
            continue
        run = await store.read(listing.run_row, event.run) if event.run else None
        alert = alert_of(event)
        text = f"{alert.title}: {alert.text}" if alert else ""
        reported = {
            "version": 1,
            "hook": name,
            "text": text,
            "event": {"kind": event.kind, "data": to_json(event.data)},
            "run": run,
        }
        code = await run_command(command, json.dumps(reported).encode())
        await store.change(settle_effect, entry, {"exit_code": code})
        if code != 0:
            hint = f"Change [hooks] in {await asyncio.to_thread(settings_file)}, then: acceld restart."
            await store.change(write_notice, event.run, "warning", f"hook {name} ended with {code}: {command}", hint)


async def run_command(command: str, standard_input: bytes) -> int:
    """Run one command and return its exit code: 127 if the command's program does not exist, 124 if the command ran
    longer than ``LIMIT_S``.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log.warning("hook %r: %s", command, error)
        return 127
    try:
        async with asyncio.timeout(LIMIT_S):
            await process.communicate(standard_input)
    except TimeoutError:
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):  # the whole group has ended already
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return process.returncode or 0
