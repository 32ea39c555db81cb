"""Provide the facts in every prompt about kernels: the chip's figures, calls, and frequent mistakes with their cure."""

from __future__ import annotations

from importlib import import_module
from textwrap import wrap

from acceld.chips import API_CHIPS
from acceld.model import KnowledgeLevel
from acceld.nki import knowledge as nki
from acceld.targets import ALL_DEVICES

LINE = 120
"""Limit on the characters of a line of facts."""


def knowledge_of(api: str, chip: str, source: str, mistakes: str, level: KnowledgeLevel) -> str:
    """Return the facts of a level: none, those of the calls in ``source`` and related calls, or those of all calls.

    Without a source, all calls are shown.
    """
    if level == "none":
        return ""
    parts = ["The chip:", *_figures(api, chip)]
    if api in API_CHIPS:
        calls = nki.used_calls(source, api)
        calls |= nki.neighbours(calls, api, chip)
        if level == "full" or not calls:
            calls = nki.every_call(api, chip)
        parts += ["", "Calls with their arguments [engines; where tiles may lie]:"]
        for line in (*nki.call_lines(calls, api), *nki.value_lines(calls, api), *nki.name_lines(api, chip)):
            parts += wrap(line, LINE, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join([*parts, *(["", mistakes] if mistakes else [])])


def _figures(api: str, chip: str) -> list[str]:
    if api in API_CHIPS:
        return [*nki.chip_lines(api, chip), *nki.time_lines(api, chip)]
    for device in ALL_DEVICES:
        if device.figures and any(chip in target.chips.get(api, ()) for target in device.targets):
            module, _, name = device.figures.partition(":")
            lines: list[str] = getattr(import_module(module), name)(chip)
            return lines
    return []
