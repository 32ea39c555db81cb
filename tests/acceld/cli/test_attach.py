"""``acceld attach`` opens the screen that its argument names."""

from __future__ import annotations

import pytest

from acceld.cli.commands.attach import _asked
from acceld.errors import UsageError
from tests.tui.canned import CannedClient


async def test_a_run_is_named_by_its_number_its_name_or_one_of_its_candidates() -> None:
    client = CannedClient()
    client.extra["/v1/runs"] = {"runs": [{"id": 1, "name": "old"}, {"id": 2, "name": "old"}, {"id": 3, "name": ""}]}
    asked = {text: await _asked(client, text) for text in ("r2", "2", "c1003", "old")}
    assert asked == {"r2": (2, None), "2": (2, None), "c1003": (2, 1003), "old": (2, None)}
    with pytest.raises(UsageError, match="'nothing' is not a run"):
        await _asked(client, "nothing")
