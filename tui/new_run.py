"""Define the window that starts a run. A person chooses a workload or a kernel's file, a preset, a proposer and
a chip, and sees an estimate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from acceld import config, figures
from acceld.errors import AcceldError, UsageError, WorkloadError
from acceld.kernel_files import api_of_file, load_kernel
from acceld.model import PRESETS, PROPOSERS, Kernel
from acceld.targets import CHIPS, Choice, choose, default_choice
from acceld.tui.client import Client
from acceld.tui.estimate import at_most, estimate
from acceld.tui.modals import Ask, Confirm
from acceld.tui.palette import palette_of
from acceld.tui.widgets.columns import Column, header, line
from acceld.tui.widgets.lines import LineList
from acceld.tui.work import start
from acceld.workloads import Workload, load_workload
from acceld.workloads.discovery import workload_folders
from acceld.workloads.loading import FILE

LARGE = 500
"""Number of candidates above which a new run needs a second confirmation."""
WIDE = 90
"""From this width in cells on, the chips of every workload are named whole."""


def columns(width: int) -> tuple[Column, ...]:
    """Return the columns of the list of workloads for a window of ``width`` cells."""
    return (
        Column("workload", 24, keep=9, stretch=True),
        Column("chips", 28 if width >= WIDE else 14, keep=4),
        Column("runs", 5, keep=3, right=True),
        Column("best x", 12, keep=5, right=True),
    )


@dataclass(slots=True)
class Offer:
    """A workload that the window offers for a new run."""

    folder: str = ""
    """Folder of the workload, if a person has named the folder; else empty."""
    elsewhere: int | None = None
    """Id of an earlier run, if the workload lies in a folder that is not searched for workloads; else None."""
    chips: tuple[str, ...] = CHIPS
    """Chips on which a run of the workload can be started, the default first."""
    earlier: list[Mapping[str, Any]] = field(default_factory=list)
    """Rows of earlier runs, the newest first."""


def chips_of(found: Workload, resolved: config.Resolved) -> tuple[str, ...]:
    """Return the chips that the workload's kernels run on. The configured chip comes first, if it is one of them.

    If the kernels run on no known chip, return all chips; the daemon's refusal of the run then says what is wrong.
    """
    settings = resolved.config
    configured = Choice(settings.devices.backend, settings.search.api, settings.search.chip)
    default = default_choice(configured, resolved.sets, found.baselines)

    def fits(chip: str | None) -> str | None:
        try:
            return choose(default, chip=chip, offered=tuple(found.baselines), runs_on=found.chips).chip
        except UsageError:
            return None

    first = fits(None)
    rest = (chip for chip in CHIPS if fits(chip) == chip)
    return tuple(dict.fromkeys(chip for chip in (first, *rest) if chip)) or CHIPS


def offers(earlier: list[Mapping[str, Any]]) -> dict[str, Offer]:
    """Return, as a dict by name, the workloads of this machine and of earlier runs."""
    resolved = config.load()
    found: dict[str, Offer] = {}
    for name, folder in workload_folders(resolved.config.paths.workloads).items():
        try:
            loaded = load_workload(folder)
        except WorkloadError:  # starting a run reports the problem
            found[name] = Offer()
        else:
            found[loaded.name] = Offer(chips=chips_of(loaded, resolved))
    for row in earlier:
        name = row["workload"]
        offer = found.setdefault(name, Offer(elsewhere=row["id"], chips=(row["chip"],)))
        offer.earlier.append(row)
    return found


class NewRun(ModalScreen[int | None]):
    """Window that starts a run. Its result is the run's id. If the daemon refuses the run, the window stays open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Back", id="new.back"),
        Binding("slash", "filter", "Find", id="new.filter", key_display="/"),
        Binding("s", "preset", "Preset", id="new.preset"),
        Binding("p", "proposer", "Proposals by", id="new.proposer"),
        Binding("c", "chip", "Chip", id="new.chip"),
        Binding("f", "file", "File", id="new.file"),
        Binding("enter", "start", "Start", id="new.start", priority=True),
    ]

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._offers: dict[str, Offer] = {}
        self._preset, self._proposer, self._chip = "standard", "rules", ""
        self._root: tuple[Path, Kernel] | None = None
        """A kernel to begin with, in place of the workload's own kernel; None without one."""
        self._refusal = ""
        self._starting = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="modal tall") as box:
            box.border_title = "New run"
            yield Input(placeholder="words of a name", id="words", compact=True)
            yield LineList(id="workloads", empty="reading workloads")
            yield Static("", id="estimate", markup=False)
            yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#words", Input).display = False
        self.query_one(LineList).focus()
        start(self, self._fill)

    async def _fill(self) -> None:
        try:
            earlier = sorted((await self._client.get("/v1/runs", limit=500))["runs"], key=lambda row: -row["id"])
            self._offers = await asyncio.to_thread(offers, earlier)
        except AcceldError as error:
            self._say(error.message)
            return
        if earlier:  # begin with the choices of the last run
            last = earlier[0]
            self._preset = last["preset"] if last["preset"] in PRESETS else self._preset
            self._proposer = last["proposer"] if last["proposer"] in PROPOSERS else self._proposer
            self._chip = last["chip"]
        self._list(earlier[0]["workload"] if earlier else "")

    def _list(self, chosen: str = "") -> None:
        """Show the workloads that match the filter, and put the cursor on the workload called ``chosen``."""
        palette, listed = palette_of(self.app), self.query_one(LineList)
        words = self.query_one("#words", Input).value.lower().split()
        names = sorted(name for name in self._offers if all(word in name.lower() for word in words))
        listed.empty = "No workload matches."
        listed.show(names, self._row, header=lambda w: header(columns(w), w, palette.muted))
        if chosen:
            listed.move_to_key(chosen)
        self._update()

    def _row(self, key: Any, width: int) -> Text:
        palette, offer = palette_of(self.app), self._offers[key]
        gains = ((bool(row["improved"]), row["speedup"] or 0.0, row["verdict"]) for row in offer.earlier)
        won, best, verdict = max(gains, default=(False, 0.0, None), key=lambda gain: gain[:2])
        return line(
            columns(width),
            [
                (key, palette.text),
                (" ".join(offer.chips), palette.muted),
                (str(len(offer.earlier)) if offer.earlier else "—", palette.muted),
                (figures.brief_gain(best or None, verdict), palette.good if won else palette.muted),
            ],
            width,
        )

    @property
    def _workload(self) -> str:
        """Return the name of the workload under the cursor; empty if none matches the filter, or if the list is not
        read yet.
        """
        return str(self.query_one(LineList).key or "")

    @property
    def chip(self) -> str:
        """Return the chip of the new run: the chip that was chosen last if the workload runs on it, else the workload's
        first chip.
        """
        chips = self._offers[self._workload].chips
        return self._chip if self._chip in chips else chips[0]

    @on(LineList.Moved)
    def _moved(self) -> None:
        self._refusal = ""
        self._update()

    def _update(self) -> None:
        self._say(self._text() if self._workload else "")

    def _text(self) -> str:
        key = self._workload
        begins = f" · from {self._root[0].name}" if self._root else ""
        head = f"{key} · {self.chip} · preset {self._preset} · proposals by {self._proposer}{begins}"
        known = estimate(self._offers[key].earlier, self._preset, self._proposer, self.chip)
        return f"{head}\n{self._refusal or known}"

    def _say(self, text: str) -> None:
        self.query_one("#estimate", Static).update(text)

    def _after(self, values: tuple[str, ...], value: str) -> str:
        self._refusal = ""
        return values[(values.index(value) + 1) % len(values)]

    def action_preset(self) -> None:
        self._preset = self._after(tuple(PRESETS), self._preset)
        self._update()

    def action_proposer(self) -> None:
        self._proposer = self._after(tuple(PROPOSERS), self._proposer)
        self._update()

    def action_chip(self) -> None:
        if self._workload:
            self._chip = self._after(self._offers[self._workload].chips, self.chip)
            self._update()

    def action_filter(self) -> None:
        words = self.query_one("#words", Input)
        words.display = True
        words.focus()

    @on(Input.Changed, "#words")
    def _typed(self) -> None:
        self._list()

    def action_file(self) -> None:
        """Ask for a path: a kernel's file to start from, or a workload's folder to add to the list."""

        def take(name: str | None) -> None:
            if name:
                try:
                    self._take_file(Path(name).expanduser().absolute())
                except AcceldError as error:
                    self._refuse(error)

        asked = "kernel.py, or the folder of a workload.toml; empty: the workload's own kernel"
        self.app.push_screen(Ask("Begin with which file?", asked), take)

    def _take_file(self, path: Path) -> None:
        resolved = config.load()
        folder = path if path.is_dir() else path.parent
        name = self._workload
        if (folder / FILE).is_file():
            loaded = load_workload(folder)
            name = loaded.name
            offer = self._offers.setdefault(name, Offer())
            offer.folder, offer.chips = str(folder), chips_of(loaded, resolved)
        elif path.is_dir():
            raise UsageError(f"{path} has no {FILE}", hint="acceld init makes one")
        if path.is_dir():
            self._root = None
        else:
            if not name:
                raise UsageError(
                    "choose the workload of the kernel first", hint="its name or folder goes into the first field"
                )
            self._root = (path, load_kernel(path, api=api_of_file(path) or resolved.config.search.api))
        self._refusal = ""
        self.query_one("#words", Input).value = ""
        self._list(name)

    def _refuse(self, error: AcceldError) -> None:
        self._refusal = "\n".join(filter(None, (f"not started: {error.message}", error.hint)))
        self._update()

    def spec(self) -> dict[str, Any]:
        """Return the body of the request that starts the run."""
        name = self._workload
        offer = self._offers[name]
        body: dict[str, Any] = {
            "workload": name,
            "preset": self._preset,
            "proposer": self._proposer,
            "chip": self.chip,
        }
        if offer.folder:
            body["workload_folder"] = offer.folder
        if self._root is not None:
            body["root"] = {**asdict(self._root[1]), "closure": dict(self._root[1].closure)}
        return body

    def action_start(self) -> None:
        if self.query_one("#words", Input).has_focus:
            self.query_one(LineList).focus()
        elif self._workload and not self._starting:
            if at_most(self._preset) <= LARGE:
                self._start()
            else:
                self.app.push_screen(Confirm(self._text(), "Start a large run"), lambda yes: self._start(bool(yes)))

    def _start(self, yes: bool = True) -> None:
        async def send() -> None:
            self._starting = True
            try:
                body = self.spec()
                elsewhere = self._offers[body["workload"]].elsewhere
                if elsewhere is not None and "workload_folder" not in body:
                    row = await self._client.get(f"/v1/runs/{elsewhere}")
                    body["workload_folder"] = row.get("workload_folder") or ""
                made = await self._client.send("POST", "/v1/runs", body)
            except AcceldError as error:
                self._refuse(error)
            else:
                self.dismiss(made["id"])
            finally:
                self._starting = False

        if yes:
            self._say(f"{self._text()}\nstarting")
            start(self, send)

    def action_give_up(self) -> None:
        words = self.query_one("#words", Input)
        if words.display:
            words.value, words.display = "", False
            self.query_one(LineList).focus()
        else:
            self.dismiss(None)
