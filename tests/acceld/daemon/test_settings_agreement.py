"""A daemon and a command never use two configurations for one run in silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acceld import config
from acceld.cli.commands.optimize import settings_of
from acceld.config import Config
from acceld.daemon.parts import Parts
from acceld.daemon.service import Daemon
from acceld.errors import UsageError
from acceld.home import DaemonLock, Home
from acceld.http.client import HttpClient
from acceld.model import RunSpec
from acceld.trust import trust, trust_file
from acceld.watch.settings import SettingsFiles
from tests.acceld.daemon.scripted import scripted_parts

MODEL = '[models.m]\nname = "{name}"\nbase_url = "http://127.0.0.1:1/v1"\n[llm.planner]\nmodels = ["m"]\n'
RUN: dict[str, Any] = {"workload": "silu", "preset": "quick", "proposer": "llm", "search": {"iterations": 1}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a trusted folder whose configuration names a model."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "acceld.toml").write_text(MODEL.format(name="old"))
    trust(folder)
    monkeypatch.chdir(folder)
    return folder


def asked() -> dict[str, Any]:
    """Return the body that ``optimize`` sends from the current folder."""
    spec = RunSpec("silu", proposer="llm")
    return RUN | {"settings": settings_of(spec, config.load().config)}


@asynccontextmanager
async def serving(project: Path) -> AsyncIterator[tuple[HttpClient, list[Config]]]:
    """Yield the client of a daemon that follows the project's configuration, and what it took over."""
    home, taken = Home(project / ".acceld"), list[Config]()
    await asyncio.to_thread(home.prepare)
    lock = await asyncio.to_thread(DaemonLock, home)
    token = await asyncio.to_thread(lock.new_token)
    socket_path = await asyncio.to_thread(home.socket)
    resolved = await asyncio.to_thread(config.load, project)

    async def parts(*given: Any) -> Parts:
        made = await scripted_parts(*given)

        def reload(found: Any) -> None:
            taken.extend([found.config] if found.config else [])

        return Parts(made.evaluator, made.make_search, reload=reload)

    daemon = Daemon(home, resolved.config, parts, socket_path=socket_path, folder=project, files=resolved.files)
    running = asyncio.create_task(daemon.run())
    await daemon.ready.wait()
    client = HttpClient(socket_path=socket_path, token=token)
    try:
        yield client, taken
    finally:
        await client.close()
        daemon.stop(1.0)
        await running
        await asyncio.to_thread(lock.release)


async def test_a_run_right_after_trust_uses_what_was_trusted(project: Path) -> None:
    async with serving(project) as (client, taken):
        file = project / "acceld.toml"
        await asyncio.to_thread(file.write_text, MODEL.format(name="new"))
        await asyncio.to_thread(trust, project)
        await client.send("POST", "/v1/runs", await asyncio.to_thread(asked))
        assert taken[-1].models["m"].name == "new"


async def test_a_run_with_another_configuration_is_refused_and_names_both_files(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = project.parent / "elsewhere"
    await asyncio.to_thread(elsewhere.mkdir)
    await asyncio.to_thread((elsewhere / "acceld.toml").write_text, MODEL.format(name="other"))
    await asyncio.to_thread(trust, elsewhere)
    async with serving(project) as (client, _):
        monkeypatch.chdir(elsewhere)
        with pytest.raises(UsageError, match=r"differs from this command's in models\.m\.name") as refused:
            await client.send("POST", "/v1/runs", await asyncio.to_thread(asked))
        assert str(project / "acceld.toml") in refused.value.message
        assert str(elsewhere / "acceld.toml") in refused.value.message
        assert "acceld restart" in refused.value.hint
        ruled = RUN | {"proposer": "rules"}
        ruled["settings"] = settings_of(RunSpec("silu", proposer="rules"), config.load().config)
        assert (await client.send("POST", "/v1/runs", ruled))["id"] == 1, "models do not matter to rules"
        with pytest.raises(UsageError, match=r"digests \(an object\)"):
            await client.send("POST", "/v1/runs", RUN | {"settings": 5})


def test_a_saved_trust_makes_the_daemon_read_the_configuration_again(project: Path) -> None:
    settings = SettingsFiles(project, config.load(project).config)
    assert trust_file().resolve() in settings.files()
    (project / "acceld.toml").write_text(MODEL.format(name="new"))
    (untrusted,) = settings.check({project / "acceld.toml"})
    assert not untrusted.good and "acceld config trust" not in untrusted.text and "trusted folder" in untrusted.text
    trust(project)
    (found,) = settings.check({trust_file().resolve()})
    assert found.config is not None and found.config.models["m"].name == "new"
