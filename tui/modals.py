"""Show small windows over a screen: confirm, ask for a text, help, a new run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from acceld import figures
from acceld.errors import AcceldError
from acceld.model import PROPOSERS
from acceld.tui.client import Client
from acceld.tui.estimate import at_most, estimate
from acceld.tui.palette import palette_of
from acceld.tui.widgets.columns import Column, header, line
from acceld.tui.widgets.lines import LineList


class Confirm(ModalScreen[bool]):
    """Ask yes or no. Escape and n mean no."""

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


class Ask(ModalScreen[str | None]):
    """Ask for one line of text; None if it was cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Back", id="ask.back")]

    def __init__(self, title: str, placeholder: str, value: str = "") -> None:
        super().__init__()
        self._title, self._placeholder, self._value = title, placeholder, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="modal") as box:
            box.border_title = self._title
            yield Input(self._value, placeholder=self._placeholder, compact=True)
            yield Footer(compact=True, show_command_palette=False)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self.dismiss(message.value.strip() or None)

    def action_give_up(self) -> None:
        self.dismiss(None)


class Help(ModalScreen[None]):
    """List every key of the screen below."""

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
            for _, binding in node._bindings:
                if binding.description and binding.id:
                    shown = binding.key_display or self.app.get_key_display(binding)
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


LARGE = 500
"""Number of candidates above which a new run needs a second confirmation."""
COLUMNS = (
    Column("workload", 24, keep=9, stretch=True),
    Column("runs", 5, keep=3, right=True),
    Column("best x", 7, keep=5, right=True),
)


class NewRun(ModalScreen[Mapping[str, Any] | None]):
    """Choose a workload and a preset for a new run, with an estimate before anything starts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Back", id="new.back"),
        Binding("s", "preset", "Preset", id="new.preset"),
        Binding("o", "proposer", "Proposals by", id="new.proposer"),
        Binding("c", "chip", "Chip", id="new.chip"),
        Binding("enter", "start", "Start", id="new.start", priority=True),
    ]
    PRESETS: ClassVar[tuple[str, ...]] = ("quick", "standard", "paper")
    CHIPS: ClassVar[tuple[str, ...]] = ("trn1", "trn2", "trn3")

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._workloads: dict[str, list[Mapping[str, Any]]] = {}
        self._spec: dict[str, Any] = {"preset": "standard", "proposer": "rules", "chip": "trn1"}

    def compose(self) -> ComposeResult:
        with Vertical(classes="modal tall") as box:
            box.border_title = "New run"
            yield LineList(id="workloads", empty="reading workloads")
            yield Static("", id="estimate", markup=False)
            yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(LineList).focus()
        self.run_worker(self._fill, exit_on_error=False)  # type: ignore[arg-type]  # Never is inferred

    async def _fill(self) -> None:
        try:
            earlier = (await self._client.get("/v1/runs", limit=500))["runs"]
        except AcceldError as error:
            self._say(error.message)
            return
        from acceld.workloads.discovery import workload_folders

        names = await asyncio.to_thread(workload_folders)
        self._workloads = {name: [] for name in (*names, *(row["workload"] for row in earlier))}
        for row in earlier:
            self._workloads[row["workload"]].append(row)
        palette = palette_of(self.app)
        self.query_one(LineList).show(
            sorted(self._workloads), self._row, header=lambda w: header(COLUMNS, w, palette.muted)
        )
        self._update()

    def _row(self, key: Any, width: int) -> Text:
        palette, rows = palette_of(self.app), self._workloads[key]
        won, best = max(((bool(row.get("improved")), row["speedup"] or 0.0) for row in rows), default=(False, 0.0))
        return line(
            COLUMNS,
            [
                (key, palette.text),
                (str(len(rows)) if rows else "—", palette.muted),
                (figures.brief_gain(best or None, won), palette.good if won else palette.muted),
            ],
            width,
        )

    @on(LineList.Moved)
    def _update(self) -> None:
        key = self.query_one(LineList).key
        if key is None:
            return
        self._spec["workload"] = key
        self._say(self._text())

    def _text(self) -> str:
        key, preset, proposer, chip = (str(self._spec[name]) for name in ("workload", "preset", "proposer", "chip"))
        head = f"{key} · {chip} · preset {preset} · proposals by {proposer}"
        return f"{head}\n{estimate(self._workloads[key], preset, proposer, chip)}"

    def _say(self, text: str) -> None:
        self.query_one("#estimate", Static).update(text)

    def _next(self, name: str, values: tuple[str, ...]) -> None:
        self._spec[name] = values[(values.index(self._spec[name]) + 1) % len(values)]
        self._update()

    def action_preset(self) -> None:
        self._next("preset", self.PRESETS)

    def action_proposer(self) -> None:
        self._next("proposer", tuple(PROPOSERS))

    def action_chip(self) -> None:
        self._next("chip", self.CHIPS)

    def action_start(self) -> None:
        if "workload" not in self._spec:
            return  # the list is not loaded yet
        if at_most(self._spec["preset"]) <= LARGE:
            self.dismiss(self._spec)
        else:
            self.app.push_screen(Confirm(self._text(), "Start a large run"), self._confirmed)

    def _confirmed(self, yes: bool | None) -> None:
        if yes:
            self.dismiss(self._spec)

    def action_give_up(self) -> None:
        self.dismiss(None)
