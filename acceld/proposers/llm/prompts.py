"""Read prompt files from folders, check them, and fill in their placeholders.

A file has TOML front matter between ``+++`` lines, a system text, a line ``<!-- user -->`` and a user text.
Placeholders are written ``{{name}}``. The names in the text, the names in the front matter's ``placeholders`` and the
names of the given values must be the same; otherwise PromptError is raised. Inserted text is not searched for
placeholders, so braces in it stay as they are.

``prompts/<api>/<name>.md`` is used before ``prompts/shared/<name>.md``, and a user's folder before acceld's own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from acceld.errors import PromptError, did_you_mean
from acceld.proposers.llm.fencing import Data, delimiter, fenced

SHARED = "shared"
NAMES = ("planner", "executor", "fixer", "summarizer", "reask", "first", "tools")
CONTEXT = "context"
"""Name of the prompt file whose system text is used by every prompt without a system text of its own. All roles share
this text, so that a provider can cache it once for all roles.
"""
APIS = ("nki_legacy", "nki", "triton", "c", "numpy")
USER_MARK = "<!-- user -->"
PROBLEM_MARK = "<!-- problem -->\n"
"""Line between two parts of a system text: about the language, and about the problem. Providers cache the two parts
separately.
"""

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_BRACES = re.compile(r"\{\{.*?\}\}|\{\{|\}\}")
_BLANK_LINES = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with all values filled in."""

    system: str
    user: str
    shared_chars: int = 0
    """Length of the beginning of the system text that is equal for all problems of the language."""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A prompt file that was read and passed its checks."""

    path: Path
    settings: Mapping[str, str]
    placeholders: frozenset[str]
    system: str
    user: str

    @classmethod
    def load(cls, path: Path) -> PromptFile:
        """Return the prompt file at ``path``. Raise PromptError if the file is malformed, or if its text has other
        placeholders than its front matter lists.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"{path}: {error}") from error
        head, body = _split(path, text)
        listed = head.pop("placeholders", None)
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            found = ", ".join(f'"{name}"' for name in sorted(set(_PLACEHOLDER.findall(body))))
            raise PromptError(
                f"{path}: between the lines of +++ the key 'placeholders' must list the prompt's placeholders",
                hint=f"placeholders = [{found}]",
            )
        strange = [braces for braces in _BRACES.findall(body) if not _PLACEHOLDER.fullmatch(braces)]
        if strange:
            raise PromptError(
                f"{path}: {strange[0]!r} is not a placeholder", hint="write a placeholder as {{lower_case_name}}"
            )
        _match(path, set(listed), set(_PLACEHOLDER.findall(body)), "the text of the prompt")
        system, _, user = body.partition(USER_MARK)
        settings = {name: str(value) for name, value in head.items()}
        return cls(path, settings, frozenset(listed), system.strip(), user.strip())

    def render(self, values: Mapping[str, str | Data], secret: bytes = b"") -> Prompt:
        """Return the prompt with ``values`` in place of the placeholders. Values from outside (``Data``) are fenced.

        The fence of the system text depends only on the data in that text. So the system text stays the same while the
        user text changes, and a provider's prompt cache stays valid. Raise PromptError if a placeholder has no value,
        or if a value has no placeholder.
        """
        _match(self.path, set(self.placeholders), set(values), "the values that the prompt is given")

        def put_in(template: str) -> str:
            names = dict.fromkeys(_PLACEHOLDER.findall(template))
            data = {name: value for name in names if isinstance(value := values[name], Data)}
            mark = delimiter(secret, data.values())
            for name in names:
                if not values[name]:
                    template = template.replace(f"\n{{{{{name}}}}}\n", "\n")
            template = _BLANK_LINES.sub("\n\n", template)

            def text_of(name: str) -> str:
                value = values[name]
                return fenced(value, mark) if isinstance(value, Data) else value

            return _PLACEHOLDER.sub(lambda found: text_of(found.group(1)), template)

        language, mark, problem = put_in(self.system).partition(PROBLEM_MARK)
        return Prompt(language + problem, put_in(self.user), len(language) if mark else 0)


class PromptLibrary:
    """The prompts in one or more folders. If several folders have a prompt's file, the first folder's file is used."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._loaded: dict[tuple[str, str], PromptFile] = {}
        self._newer: PromptLibrary | None = None
        self._iteration = 0

    def offer(self, newer: PromptLibrary) -> None:
        """Replace the prompts by those of ``newer`` when the next iteration begins."""
        self._newer = newer

    def begin(self, iteration: int) -> None:
        """Switch to the prompts that were offered last, because an iteration begins."""
        if iteration != self._iteration and self._newer is not None:
            self._folders, self._loaded, self._newer = self._newer._folders, dict(self._newer._loaded), None
        self._iteration = iteration

    def get(self, api: str, name: str) -> PromptFile:
        """Return the prompt file ``name`` for an API. Raise PromptError if the file is missing or malformed."""
        if (api, name) not in self._loaded:
            file = PromptFile.load(self._find(api, name))
            if not file.system:
                context = PromptFile.load(self._find(api, CONTEXT))
                placeholders = file.placeholders | context.placeholders
                file = replace(file, placeholders=placeholders, system=context.system)
            self._loaded[api, name] = file
        return self._loaded[api, name]

    def mistakes(self, api: str) -> str:
        """Return the text on frequent mistakes in an API and their remedy; "" if no folder has that file."""
        if not any((folder / part / "mistakes.md").is_file() for folder in self._folders for part in (api, SHARED)):
            return ""
        return self.get(api, "mistakes").system

    def language(self, api: str) -> PromptFile:
        """Return the prompt file that describes an API's language. Its settings give the language's ``name`` and code
        ``fence``.
        """
        found = self.get(api, "language")
        missing = {"name", "fence"} - set(found.settings)
        if missing:
            raise PromptError(
                f"{found.path}: the front matter lacks {', '.join(sorted(missing))}",
                hint="add what is missing, as in name = 'NKI' and fence = 'python'",
            )
        return found

    def check(self, apis: Iterable[str] = APIS) -> list[str]:
        """Return the faults of the prompts of these APIs, one line each; [] if the prompts have no faults."""
        problems: list[str] = []
        for api in apis:
            for name in NAMES:
                try:
                    self.get(api, name)
                except PromptError as error:
                    problems.append(str(error))
            try:
                self.language(api)
                self.mistakes(api)
            except PromptError as error:
                problems.append(str(error))
        return list(dict.fromkeys(problems))

    def _find(self, api: str, name: str) -> Path:
        places = [folder / part / f"{name}.md" for folder in self._folders for part in (api, SHARED)]
        for place in places:
            if place.is_file():
                return place
        known = {path.parent.name for folder in self._folders for path in folder.glob("*/language.md")}
        raise PromptError(
            f"there is no prompt {name!r} for {api!r}: looked for {', '.join(map(str, places))}",
            hint=did_you_mean(api, known) if api not in known else "",
        )


def _split(path: Path, text: str) -> tuple[dict[str, object], str]:
    parts = text.split("+++\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise PromptError(
            f"{path}: the settings between two lines of +++ are missing",
            hint="begin the file with a line +++, the settings and a line +++, as the files in prompts/ do",
        )
    try:
        return tomllib.loads(parts[1]), parts[2]
    except tomllib.TOMLDecodeError as error:
        raise PromptError(f"{path}: front matter: {error}", hint="write the settings as TOML: key = value") from error


def _match(path: Path, listed: set[str], other: set[str], where: str) -> None:
    for name in sorted(listed ^ other):
        if name in listed:
            raise PromptError(
                f"{path}: `placeholders` in the front matter lists {name!r}, which is not in {where}",
                hint=did_you_mean(name, other) or f"remove {name!r} from `placeholders`",
            )
        raise PromptError(
            f"{path}: {name!r} is in {where}, but not in `placeholders` of the front matter",
            hint=did_you_mean(name, listed) or f"add {name!r} to `placeholders`",
        )
