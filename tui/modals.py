"""Define small windows over a screen: a question, a field for a text, help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from acceld.tui.palette import palette_of
from acceld.tui.terminal import bindings_of


class Confirm(ModalScreen[bool]):
    """Window with a question to answer by yes or no. Escape and n mean no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("n,escape", "answer(False)", "No", id="confirm.no", key_display="n"),
    ]

    def __init__(self, text: str, title: str) -> None:
        super().__init__()
        self._text, self._title = text, title

    def compose(self) -> ComposeResult:
        with Vertical(classes="modal") as box:
            box.border_title = self._title
            yield Static(self._text, markup=False)
            yield Footer(compact=True, show_command_palette=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Field(Input):
    """Field for one line of text. The arrow keys fill in the other ``choices``, one after another."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "OK", id="ask.ok"),
        Binding("down,up", "choose", "Next choice", id="ask.choose", key_display="↓"),
    ]

    def __init__(self, value: str, placeholder: str, choices: Sequence[str]) -> None:
        super().__init__(value, placeholder=placeholder, compact=True)
        self._choices = choices

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return len(self._choices) > 1 if action == "choose" else super().check_action(action, parameters)

    def action_choose(self) -> None:
        place = self._choices.index(self.value) + 1 if self.value in self._choices else 0
        self.value = self._choices[place % len(self._choices)]
        self.cursor_position = len(self.value)


class Ask(ModalScreen[str | None]):
    """Window with a field for one line of text. Its result is None if the person cancels.

    ``choices`` are the likely answers; the first of them is in the field when the window opens. ``about`` is a text
    that says what the answer does.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Back", id="ask.back")]

    def __init__(self, title: str, placeholder: str, choices: Sequence[str] = (), about: str = "") -> None:
        super().__init__()
        self._title, self._placeholder, self._choices, self._about = title, placeholder, choices, about

    def compose(self) -> ComposeResult:
        with Vertical(classes="modal") as box:
            box.border_title = self._title
            yield Field(next(iter(self._choices), ""), self._placeholder, self._choices)
            if self._about:
                yield Static(self._about, markup=False, classes="about")
            yield Footer(compact=True, show_command_palette=False)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self.dismiss(message.value.strip() or None)

    def action_give_up(self) -> None:
        self.dismiss(None)


class Help(ModalScreen[None]):
    """Window that lists every key of the screen below the window."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "app.pop_screen", "Back", id="help.back", key_display="esc")
    ]

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        self._below = below

    def compose(self) -> ComposeResult:
        palette = palette_of(self.app)
        text = Text()
        for title, node in (("This screen", self._below), ("Everywhere", self.app)):
            text.append(f"{title}\n", palette.accent)
            for binding in bindings_of(node):
                if binding.description and binding.id:
                    shown = self.app.get_key_display(binding)
                    text.append(f"  {shown:<10}", palette.strong).append(f"{binding.description:<24}")
                    text.append(f"{binding.id}\n", palette.muted)
            text.append("\n")
        text.append("Lists\n", palette.accent)
        for keys, what in (
            ("↑ ↓ j k", "move"),
            ("g G", "first, last"),
            ("← →", "sideways"),
            ("enter", "open"),
            (":", "command palette"),
            ("1 … 9", "screens"),
        ):
            text.append(f"  {keys:<10}", palette.strong).append(f"{what}\n")
        text.append(
            "\nacceld.toml: [tui] keys = ['run.pause=f9'] changes keys by these names.\nThe daemon keeps running when you leave."
        )
        with VerticalScroll(classes="modal tall") as box:
            box.border_title = "Keys"
            yield Static(text)
