"""Tell from the installed packages' own tables whether a model is about to be withdrawn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version

from acceld.llm.settings import ModelSettings


def anthropic_table() -> Mapping[str, str]:
    """Return a dict from each model that Anthropic's SDK lists as withdrawn to its last day of service."""
    from anthropic.resources.messages import messages

    table: Mapping[str, str] = vars(messages).get("DEPRECATED_MODELS", {})
    return table


def retirement(settings: ModelSettings) -> str:
    """Return a warning that a model is or will be withdrawn, with the date and its source; "" if no table lists the
    model.
    """
    name = re.sub(r"-v\d+(:\d+)?$", "", settings.model.replace("@", "-"))
    name = name[max(0, name.find("claude")) :]
    if settings.api == "messages" and (day := anthropic_table().get(name)):
        return f"the model is withdrawn on {day} (anthropic {version('anthropic')}): choose a newer model"
    return ""
