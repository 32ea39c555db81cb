"""Configuration: order of sources, errors that name the nearest key, the trust rule, the commented file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from acceld import config
from acceld.errors import ConfigError

ROOT = Path(__file__).parents[2]


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "acceld.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_commented_file_is_current_and_equals_the_defaults(tmp_path: Path) -> None:
    text = (ROOT / "acceld.toml").read_text(encoding="utf-8")
    assert text == config.default_toml()
    write(tmp_path, text)
    assert config.load(tmp_path, environ={}).config == config.Config()


@pytest.mark.parametrize("key", [key for key, _, _ in config.every_key()])
def test_the_text_of_a_key_is_sentences_that_name_each_value(key: str) -> None:
    doc = next(text for name, _, text in config.every_key() if name == key)
    assert doc.endswith(".") and len(doc.split()) > 3, doc
    hint, _ = config._find(key, "")
    values = get_args(hint) if get_origin(hint) is Literal and key not in ("search.chip", "evaluate.nki") else ()
    assert [value for value in values if value and not re.search(rf"\b{value}\b", doc)] == []


def test_every_section_of_the_commented_file_says_what_it_is_for() -> None:
    text = config.default_toml()
    for section, purpose in config.every_section():
        assert purpose.endswith(".") and (f"[{section}]" in text or section == "models.NAME"), section


def test_flags_win_over_variables_over_project_over_user_over_defaults(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    write(project, "[search]\nseed = 2\npatience = 2\nfixer_steps = 2\n")
    write(home / ".config" / "acceld", "[search]\nseed = 1\npatience = 1\nfixer_steps = 1\ntime_limit_s = 9\n")
    environ = {"HOME": str(home), "ACCELD_SEARCH_SEED": "3", "ACCELD_SEARCH_PATIENCE": "3"}
    resolved = config.load(project / "deeper", environ=environ, flags={"search.seed": 4})
    search = resolved.config.search
    assert (search.seed, search.patience, search.fixer_steps, search.time_limit_s) == (4, 3, 2, 9.0)
    assert resolved.origins["search.seed"] == "flag"
    assert resolved.origins["search.patience"] == "variable ACCELD_SEARCH_PATIENCE"
    assert resolved.origins["search.fixer_steps"] == str(project / "acceld.toml")
    assert search.preset == "standard" and "search.preset" not in resolved.origins


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[serch]\nseed = 1", ("serch.seed", "search.seed")),
        ("[search]\npresett = 'quick'", ("search.presett", "search.preset")),
        ("[search]\npreset = 'quikc'", ("quikc", "quick")),
        ("[search]\nseed = 'one'", ("search.seed", "whole number")),
        ("[search]\nseed = true", ("search.seed", "whole number")),
        ("[devices]\ncores = [0, 'one']", ("devices.cores", "list of whole numbers")),
        ("[search]\nbeem = 3", ("search.beem", "no key sets it: acceld optimize --beam does")),
        ("[search]\nsandbox = 'L2'", ("search.sandbox", "'evaluate.sandbox'")),
        ("[models.m]\nproviderr = 'openai'", ("models.m.providerr", "models.m.provider")),
        ("[search]\nllm = 1\nseed 2", ("acceld.toml", "TOML")),
        ("search = 3", ("search", "section")),
    ],
)
def test_a_wrong_file_gets_an_error_naming_file_and_key(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path, environ={})
    message = str(caught.value)
    assert str(path) in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "text",
    [
        "[models.evil]\nbase_url = 'http://127.0.0.1:1/v1'",
        "[models.evil]\nkey_env = 'AWS_SECRET_ACCESS_KEY'",
        "[hooks]\non_best = 'curl example.invalid'",
        "[evaluate]\nallow_unsandboxed = true",
        "[evaluate]\nsandbox = 'L1'",
    ],
)
def test_a_project_may_not_redirect_keys_or_run_hooks_until_trusted(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match="acceld config trust"):
        config.load(tmp_path, environ={})
    config.load(tmp_path, environ={}, trusted_folders=frozenset({tmp_path.resolve()}))


def test_the_user_file_may_set_trusted_keys_and_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "acceld"
    write(folder, "[hooks]\non_end = 'true'\n[paths]\nworkloads = ['mine']\n[models.a]\nbase_url = 'http://x'\n")
    loaded = config.load(tmp_path / "elsewhere", environ={"XDG_CONFIG_HOME": str(tmp_path)}).config
    assert loaded.hooks.on_end == "true"
    assert loaded.paths.workloads == (str(folder / "mine"),)
    assert loaded.models["a"].base_url == "http://x"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ACCELD_SEARCH_PATIENSE", "Did you mean ACCELD_SEARCH_PATIENCE?"),
        ("ACCELD_SERCH_PATIENCE", "Did you mean ACCELD_SEARCH_PATIENCE?"),
        ("ACCELD_SEARCH_QQ", "acceld config show search lists the keys"),
        ("ACCELD_MODELS_FAST_BASE_URL", "[models.NAME]"),
    ],
)
def test_a_variable_that_no_setting_has_is_named_with_the_nearest(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path, environ={name: "1"})
    assert f"variable {name}: no setting" in str(caught.value) and words in str(caught.value)


def test_variables_are_read_by_type(tmp_path: Path) -> None:
    environ = {
        "ACCELD_EVALUATE_ALLOW_UNSANDBOXED": "yes",
        "ACCELD_DEVICES_CORES": "0, 2",
        "ACCELD_BUDGET_RUN_USD": "1.5",
        "ACCELD_UNRELATED": "kept alone",
    }
    loaded = config.load(tmp_path, environ=environ).config
    assert loaded.evaluate.allow_unsandboxed is True
    assert loaded.devices.cores == (0, 2)
    assert loaded.budget.run_usd == 1.5
    with pytest.raises(ConfigError, match="ACCELD_DEVICES_SCREEN"):
        config.load(tmp_path, environ={"ACCELD_DEVICES_SCREEN": "sometimes"})
