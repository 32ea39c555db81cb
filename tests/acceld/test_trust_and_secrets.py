"""Trust holds for a file's content; keys are removed from the environment and never appear in texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.config import Config, ModelConfig
from acceld.daemon.secrets import redactor, take_keys
from acceld.errors import UsageError
from acceld.trust import distrust, trust, trusted_folders


def test_trust_ends_when_the_file_changes(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    folder = tmp_path / "project"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"no acceld\.toml"):
        trust(folder, environ)
    (folder / "acceld.toml").write_text("[hooks]\non_best = 'true'\n")
    assert trusted_folders(environ) == frozenset()
    trust(folder, environ)
    assert trusted_folders(environ) == {folder}
    (folder / "acceld.toml").write_text("[hooks]\non_best = 'curl evil'\n")
    assert trusted_folders(environ) == frozenset()
    trust(folder, environ)
    assert distrust(folder, environ) is True
    assert trusted_folders(environ) == frozenset()


def test_keys_are_taken_out_of_the_environment() -> None:
    config = Config(models={"mine": ModelConfig(key_env="MY_KEY")})
    environ = {"MY_KEY": "secret-value-1", "OPENAI_API_KEY": "secret-value-2", "PATH": "/bin"}
    assert take_keys(config, environ) == {"MY_KEY": "secret-value-1", "OPENAI_API_KEY": "secret-value-2"}
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "text",
    [
        "401 for key canary-0123456789",
        "Authorization: Bearer abcdefghijklmnopqrstuvwx",
        "x-api-key: sk-" + "ab12" * 6,
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_no_key_stands_in_a_text(text: str) -> None:
    shown = redactor(["canary-0123456789"])(text)
    assert "[key " in shown
    for secret in ("canary-0123456789", "abcdefghijklmnopqrstuvwx", "ab12", "IOSFODNN7"):
        assert secret not in shown


def test_other_texts_stay_as_they_are() -> None:
    text = "for i in nl.affine_range(4): task-list, sketch, asking AKIA"
    assert redactor(["short"])(text) == text
