"""Provide the facts in every prompt about kernels: the chip's figures, calls, and frequent mistakes with their remedy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from textwrap import wrap

from acceld.chips import API_CHIPS
from acceld.model import KnowledgeLevel
from acceld.nki import knowledge as nki
from acceld.targets import ALL_DEVICES

LINE = 120
"""Greatest number of characters in a line of facts."""


@lru_cache(maxsize=64)
def knowledge_of(api: str, chip: str, mistakes: str, level: KnowledgeLevel) -> str:
    """Return the facts that every prompt for a language and a chip has: the chip's figures and frequent mistakes.

    At the level ``full``, the facts also have all calls of the language.
    """
    if level == "none":
        return ""
    parts = ["The chip:", *_figures(api, chip)]
    if level == "full" and api in API_CHIPS:
        parts += ["", *_calls(nki.every_call(api, chip), api, chip)]
    return "\n".join([*parts, *(["", mistakes] if mistakes else [])])


@lru_cache(maxsize=256)
def calls_of(api: str, chip: str, source: str, level: KnowledgeLevel) -> str:
    """Return the facts about the calls that ``source`` uses, and about related calls. For a source without calls,
    return the facts about all calls.

    The text is empty if :func:`knowledge_of` gives these facts already, or if the level includes no facts about calls.
    """
    if level == "none":
        return ""
    if api not in API_CHIPS:
        return "\n".join(_device_lines("calls", api, chip, api))
    if level != "calls":
        return ""
    calls = nki.used_calls(source, api)
    calls |= nki.neighbours(calls, api, chip)
    return "\n".join(_calls(calls or nki.every_call(api, chip), api, chip))


def _calls(calls: Iterable[str], api: str, chip: str) -> list[str]:
    calls = frozenset(calls)
    facts = (*nki.call_lines(calls, api, chip), *nki.value_lines(calls, api), *nki.name_lines(calls, api, chip))
    return ["Calls with their arguments [engines; where tiles may lie]:", *_wrapped(facts)]


def _figures(api: str, chip: str) -> list[str]:
    if api in API_CHIPS:
        return _wrapped((*nki.chip_lines(api, chip), *nki.time_lines(api, chip)))
    return _device_lines("figures", api, chip, chip)


def _wrapped(facts: Iterable[str]) -> list[str]:
    """Return facts as lines of at most ``LINE`` characters; the further lines of a long fact are indented."""
    lines: list[str] = []
    for fact in facts:
        lines += wrap(fact, LINE, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return lines


def _device_lines(what: str, api: str, chip: str, argument: str) -> list[str]:
    """Return lines with the facts that a chip's device provides; [] if the device provides no facts.

    ``what`` names a field of the device's record. The field has the path of the function that returns the facts for
    ``argument``.
    """
    for device in ALL_DEVICES:
        place: str = getattr(device, what)
        if place and any(chip in target.chips.get(api, ()) for target in device.targets):
            module, _, name = place.partition(":")
            lines: list[str] = getattr(import_module(module), name)(argument)
            return lines
    return []
