"""``acceld attach`` opens the screen that its argument names."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.cli.commands.attach import _apply, _asked
from acceld.errors import UsageError
from acceld.http.client import HttpClient
from acceld.http.server import HistoryServer
from tests.store.records import fill
from tests.tui.canned import CannedClient


async def test_a_run_is_named_by_its_number_its_name_or_one_of_its_candidates() -> None:
    client = CannedClient()
    client.extra["/v1/runs"] = {"runs": [{"id": 1, "name": "old"}, {"id": 2, "name": "old"}, {"id": 3, "name": ""}]}
    asked = {text: await _asked(client, text) for text in ("r2", "2", "c1003", "old")}
    assert asked == {"r2": (2, None), "2": (2, None), "c1003": (2, 1003), "old": (2, None)}
    with pytest.raises(UsageError, match="'nothing' is not a run"):
        await _asked(client, "nothing")


async def test_without_a_daemon_the_console_applies_as_the_command_does(tmp_path: Path) -> None:
    database, file = tmp_path / "state" / "acceld.db", tmp_path / "kernel.py"
    database.parent.mkdir(mode=0o700)
    await fill(database, best_us=99.5)
    async with HistoryServer(database) as server:
        client = HttpClient(socket_path=server.socket_path, token=server.token)
        best = (await client.get("/v1/runs/1"))["best"]
        file.write_text((await client.get(f"/v1/candidates/{best}"))["text"])
        with pytest.raises(UsageError, match=f"c{best} of r1 is no win"):
            await _apply(client, str(database.parent), 1, file, False)
        told = await _apply(client, str(database.parent), 1, file, True)
        assert told == f"{file} already is c{best}; nothing was written"
        await client.close()
