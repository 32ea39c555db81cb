"""Translate commands of the previous version that are now parts of other commands.

A former command line still works. A message on standard error shows its new form, so that people and scripts
can change within one version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_SETTINGS = ("config", "models", "prompts", "workloads")


@dataclass(frozen=True, slots=True)
class Former:
    """A former command. ``words`` translates the words that follow the command's name; it returns None if these words
    belong to a current command.
    """

    words: Callable[[list[str]], list[str] | None]
    now: str
    """The current command that replaces this one, as the message shows it."""


def current_words(name: str, rest: Sequence[str]) -> tuple[list[str], str]:
    """Translate a command that may be a former one.

    Return the words of the current command, and a message that names it. If ``name`` is a current command, return its
    own words and an empty text.
    """
    former = FORMER.get(name)
    found = former.words(list(rest)) if former is not None else None
    if former is None or found is None:
        return [name, *rest], ""
    return found, f"acceld {name} is now {former.now}; this version still understands the old name"


def _prefixed(*words: str) -> Callable[[list[str]], list[str]]:
    return lambda rest: [*words, *rest]


def _without(words: Sequence[str], flags: Mapping[str, bool]) -> tuple[list[str], dict[str, str]]:
    """Return the words without certain flags, and these flags with their values. ``flags`` says for each flag
    whether a value follows.
    """
    left, found, waiting = [], {}, ""
    for word in words:
        name, sign, value = word.partition("=")
        if waiting:
            found[waiting], waiting = word, ""
        elif name in flags and sign:
            found[name] = value
        elif word in flags:
            found[word] = ""
            waiting = word if flags[word] else ""
        else:
            left.append(word)
    return left, found


def _history(rest: list[str]) -> list[str]:
    """Return the current form of ``acceld history``: ``acceld runs`` with a condition. Without a condition the table of
    ``acceld runs`` lacks columns of ``acceld history``.
    """
    conditions = ("--sort", "--saved", "--search")
    asked = any(word.partition("=")[0] in (*conditions, "-h", "--help") for word in rest)
    return ["runs", *rest] if asked else ["runs", *rest, "--sort=-id"]


def _report(rest: list[str]) -> list[str]:
    left, found = _without(rest, {"--md": False, "--png": True, "--json": False})
    for flag in found:
        left += ["--format", flag[2:], *(["-o", found[flag]] if flag == "--png" else [])]
    return ["export", *left]


def _best(rest: list[str]) -> list[str] | None:
    left, found = _without(rest, {"--apply": True})
    if found:
        return ["apply", *left, found["--apply"]]
    writes = any(word.startswith("-o") or word.partition("=")[0] in ("--output", "--export") for word in rest)
    return ["apply", *rest] if writes else None


def _check(rest: list[str]) -> list[str] | None:
    left, _ = _without(rest, {"--home": True, "--json": False})
    if {"-h", "--help"} & set(rest):
        return None
    if not left:
        return ["doctor", *_SETTINGS, *rest]
    return ["doctor", *rest] if set(left) & {*_SETTINGS, "--call", "--admit"} else None


def _second(word: str, *instead: str) -> Callable[[list[str]], list[str] | None]:
    """Return a translation for former commands whose first argument is ``word``. The translation puts the words
    ``instead`` in the place of command and first argument.
    """
    return lambda rest: [*instead, *rest[1:]] if rest[:1] == [word] else None


FORMER: dict[str, Former] = {
    "best": Former(_best, "acceld apply, where it writes a file"),
    "check": Former(_check, "acceld doctor config models prompts workloads, where it checks no kernel"),
    "ci": Former(_prefixed("check", "--changed"), "acceld check --changed"),
    "db": Former(_second("check", "doctor", "database"), "acceld doctor database, where it checks"),
    "evaluate": Former(_prefixed("profile"), "acceld profile --jsonl IN --out OUT"),
    "history": Former(_history, "acceld runs"),
    "report": Former(_report, "acceld export"),
    "selftest": Former(_prefixed("doctor", "selftest"), "acceld doctor selftest"),
    "suite": Former(_second("compare", "compare"), "acceld compare A.json B.json, where it compares"),
    "trust": Former(_prefixed("config", "trust"), "acceld config trust"),
    "tui": Former(_prefixed("attach"), "acceld attach"),
    "verify": Former(_prefixed("check"), "acceld check"),
}
"""Former commands by their first word. A word may also be a current command; then only some of its command lines are
former ones.
"""
