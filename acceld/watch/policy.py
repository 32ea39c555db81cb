"""Decide whether a search may start after a save.

No search may start in the mode ``off``. The caps hold in ``auto``, where searches start by themselves, and in ``ask``,
where a person starts them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

HOUR_S = 3600.0
COOL_DOWN_S = 10.0


@dataclass(slots=True)
class Policy:
    """Allow or refuse searches, by the mode (ask, auto or off) and by the caps."""

    mode: str = "ask"
    runs_per_hour: int = 6
    usd_per_save: float | None = 0.5
    usd_per_hour: float | None = 5.0
    _starts: deque[float] = field(default_factory=deque)

    def refusal(self, now: float) -> str:
        """Return the reason why no search may start now; "" if a search may start.

        ``now`` is in seconds of a monotonic clock.
        """
        while self._starts and now - self._starts[0] > HOUR_S:
            self._starts.popleft()
        if self.mode == "off":
            return "re-optimizing is off"
        if len(self._starts) >= self.runs_per_hour:
            return f"{self.runs_per_hour} searches were started in the last hour"
        if self._starts and now - self._starts[-1] < COOL_DOWN_S:
            return f"the last search was started less than {COOL_DOWN_S:.0f} s ago"
        spent = (len(self._starts) + 1) * (self.usd_per_save or 0.0)
        if self.usd_per_hour is not None and spent > self.usd_per_hour:
            return f"the cap of ${self.usd_per_hour:.2f} an hour is used up"
        return ""

    def started(self, now: float) -> None:
        """Record that a search was started."""
        self._starts.append(now)
