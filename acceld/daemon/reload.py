"""Follow saves of acceld.toml, prompts and workloads while the daemon runs, and record the outcome of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acceld.events import Watch
from acceld.store.changes.runs import write_event
from acceld.store.database import Store
from acceld.watch.files import SavedFiles
from acceld.watch.settings import SettingsFiles, Validation

STAGE = "settings"


async def follow_settings(settings: SettingsFiles, store: Store, take: Callable[[Validation], None]) -> None:
    """Call ``take`` with each valid change of the settings, and record every change, valid or not, until the caller
    cancels the task.
    """
    files = await asyncio.to_thread(settings.files)
    saved = await asyncio.to_thread(SavedFiles, files, quiet_s=settings.settings.watch.debounce_ms / 1000)
    async for batch in saved.batches():
        for found in await asyncio.to_thread(settings.check, batch):
            if found.good:
                take(found)
            await store.change(write_event, Watch(str(found.path), STAGE, found.text, found.good))
        saved.watch(await asyncio.to_thread(settings.files))
