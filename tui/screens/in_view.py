"""Define the base of the screens that show the candidate in view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.session import Session


class CandidateInView(ConsoleScreen):
    """Screen that loads all that is known about the candidate in view, and loads it again when the candidate
    has a new result.

    If no candidate is in view, the screen shows the run's best candidate.
    """

    WANTS: ClassVar[frozenset[str]] = frozenset({"run"})

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._answer: Mapping[str, Any] = {}
        self._asked: tuple[int, int] | None = None
        self._shown: int | None = None
        """The candidate whose facts are drawn."""

    def show(self) -> None:
        run = self.run_view
        if self.session.candidate is None and run is not None and run.best:
            self.session.candidate = run.best.candidate
        number = self.session.candidate
        if number is not None:
            node = run.candidates.get(number) if run else None
            wanted = (number, node.result_seq if node else -1)
            if wanted != self._asked:
                self._asked = wanted
                self.fetch(f"/v1/candidates/{number}", self._take)
        if (self.facts.get("id")) != self._shown:
            self._draw()
        self.query_one("#details").refresh()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return the daemon's answer about the candidate in view; empty until it arrives."""
        return self._answer if self._answer.get("id") == self.session.candidate else {}

    @property
    def unknown(self) -> str:
        """Return why nothing is known about the candidate: it is being read, could not be read, or does not
        exist.
        """
        return self.nothing("Choose a candidate on the Beam screen.", "candidates")

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._answer = answer
        self._draw()

    def _draw(self) -> None:
        self._shown = self.facts.get("id")
        self.draw()

    def draw(self) -> None:
        """Draw what is known about the candidate in view; without such a candidate, empty widgets."""
        raise NotImplementedError

    @property
    def evaluation(self) -> Mapping[str, Any]:
        """Return the result of the candidate in view; empty if it has none yet."""
        return self.facts.get("evaluation_record") or {}

    @property
    def profile(self) -> Mapping[str, Any]:
        """Return the profile of the candidate in view; an empty mapping if it has no profile."""
        return self.evaluation.get("profile") or {}
