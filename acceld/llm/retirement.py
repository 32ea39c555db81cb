"""Tell from the installed packages' own tables whether a model is about to be withdrawn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version

from acceld.llm.settings import ModelSettings


def anthropic_table() -> Mapping[str, str]:
    """Return the last day of each model that Anthropic withdraws, as its SDK lists them."""
    from anthropic.resources.messages import messages

    table: Mapping[str, str] = vars(messages).get("DEPRECATED_MODELS", {})
    return table


def retirement(settings: ModelSettings) -> str:
    """Return a warning that the model is withdrawn, with its date and its source; empty if no table lists
    the model.
    """
    name = re.sub(r"-v\d+(:\d+)?$", "", settings.model.replace("@", "-"))
    name = name[max(0, name.find("claude")) :]
    if settings.api == "messages" and (day := anthropic_table().get(name)):
        return f"it is withdrawn on {day} (anthropic {version('anthropic')}): choose a newer model"
    return ""
