"""Saves of acceld.toml, prompts and workloads are used as a whole, or rejected with the reason while the old ones stay
in use.
"""

from __future__ import annotations

import asyncio
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from acceld import config
from acceld.daemon.reload import follow_settings
from acceld.events import Watch
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.resources import prompts_folder, workloads_folder
from acceld.search.budget import Budget
from acceld.store.database import Store
from acceld.trust import trust_file
from acceld.watch.settings import SettingsFiles, Validation


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with acceld.toml, prompts and a workload."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    shutil.copytree(prompts_folder(), folder / "prompts")
    shutil.copytree(workloads_folder() / "nkibench" / "silu", folder / "mine" / "silu2")
    toml = folder / "mine" / "silu2" / "workload.toml"
    toml.write_text(toml.read_text().replace('name = "silu"', 'name = "silu2"'))
    (folder / "acceld.toml").write_text('[paths]\nprompts = ["prompts"]\nworkloads = ["mine"]\n')
    return folder


def settings_of(project: Path) -> SettingsFiles:
    found = SettingsFiles(project, config.load(project).config)
    assert {project / "acceld.toml", project / "mine" / "silu2" / "reference.py"} <= found.files()
    return found


def test_a_valid_configuration_says_what_holds_from_when(project: Path) -> None:
    settings = settings_of(project)
    file = project / "acceld.toml"
    file.write_text(
        file.read_text() + "[budget]\nday_usd = 3.0\n[search]\npatience = 9\n[evaluate]\nslots = 3\n[hooks]\n"
    )
    (found,) = settings.check({file})
    assert found.good and found.config is not None and found.config.budget.day_usd == 3.0
    assert found.text == (
        "in force: budget.day_usd; after acceld restart: evaluate.slots; for what starts from now on: search.patience"
    )


def test_a_configuration_that_is_wrong_anywhere_changes_nothing(project: Path) -> None:
    settings = settings_of(project)
    file = project / "acceld.toml"
    file.write_text(file.read_text() + "[search]\npatience = 9\npresett = 'quick'\n")
    (found,) = settings.check({file})
    assert not found.good and found.config is None
    assert "rejected, the former file stays in use" in found.text and "presett" in found.text
    assert settings.settings.search.patience == 3


def test_a_configuration_with_the_same_values_is_told_only_after_a_rejected_one(project: Path) -> None:
    """A checkout by git and a trusted file of another folder touch files without a change of the settings."""
    settings = settings_of(project)
    file, text = project / "acceld.toml", (project / "acceld.toml").read_text()
    file.write_text(text + "# a comment that came by git\n")
    assert settings.check({file}) == [] and settings.check({trust_file().resolve()}) == []
    file.write_text(text + "[search]\npresett = 'quick'\n")
    (found,) = settings.check({file})
    assert not found.good
    file.write_text(text)
    (found,) = settings.check({file})
    assert found.good and found.text == "valid: the settings in use are those of the file"
    assert settings.check({file}) == []


def test_a_broken_prompt_keeps_all_old_ones_and_a_mended_one_holds_from_the_next_iteration(project: Path) -> None:
    settings = settings_of(project)
    running = PromptLibrary([project / "prompts"])
    assert not running.check()
    running.begin(1)
    file = project / "prompts" / "shared" / "planner.md"
    good = file.read_text()
    file.write_text(good.replace("{{profile}}", "{{profle}}"))
    (found,) = settings.check({file})
    assert not found.good and found.prompts is None and "profle" in found.text
    file.write_text(good.replace("+++\n\n", "+++\n\nBe bold.\n", 1) if "+++\n\n" in good else good + "\nBe bold.\n")
    (found,) = settings.check({file})
    assert found.good and found.prompts is not None
    running.offer(found.prompts)
    api = "nki_legacy"
    before = running.get(api, "planner")
    running.begin(1)
    assert running.get(api, "planner") is before, "the same iteration goes on with what it began with"
    running.begin(2)
    after = running.get(api, "planner")
    assert "Be bold." in after.system + after.user


def test_a_broken_workload_is_reported_with_its_reason(project: Path) -> None:
    settings = settings_of(project)
    file = project / "mine" / "silu2" / "workload.toml"
    good = file.read_text()
    file.write_text(good.replace("float32", "float33"))
    (found,) = settings.check({file})
    assert not found.good and "float33" in found.text
    file.write_text(good)
    (found,) = settings.check({file})
    assert found.good and "workload silu2 is valid" in found.text


async def test_the_daemon_takes_over_what_is_valid_and_records_both(project: Path, tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    taken: list[Validation] = []
    settings = (await asyncio.to_thread(config.load, project)).config
    following = asyncio.create_task(follow_settings(SettingsFiles(project, settings), store, taken.append))
    file = project / "acceld.toml"
    text = await asyncio.to_thread(file.read_text)
    reported = []
    saves = iter((text + "[search]\npreset = 1\n", text + "[search]\npatience = 7\n"))
    await asyncio.sleep(0.7)
    await asyncio.to_thread(file.write_text, next(saves))
    async with asyncio.timeout(300):
        async for event in store.subscribe(0):
            if isinstance(event.data, Watch):
                reported.append((event.data.good, event.data.text))
                if len(reported) == 2:
                    break
                await asyncio.to_thread(file.write_text, next(saves))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()
    assert [good for good, _ in reported] == [False, True]
    assert reported[1][1] == "for what starts from now on: search.patience"
    assert [found.config.search.patience for found in taken if found.config] == [7]


def test_caps_can_be_raised_while_money_is_spent() -> None:
    budget = Budget(day_usd=1.0, spent_today_usd=0.9)
    budget.set_caps(2.0, None, True)
    assert budget.try_reserve(None, None) is not None, "an unknown price is allowed now"
    assert budget.try_reserve(None, Decimal("1.05")) is not None
