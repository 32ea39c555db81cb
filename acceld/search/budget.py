"""Keep spending below caps: reserve the worst case of each call before the call, and book its true cost afterwards.

Amounts are exact: whole micro-dollars, rounded up. A cap holds for a role of a run, a run, a UTC day or the daemon.
In each of these, spent and reserved money together never exceed the cap. While an answer that is longer than its
limit arrives, more money is reserved for it. If no money is left, the answer is cut off. So no cap is exceeded as
long as no provider bills more than the answer that arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from acceld.errors import BudgetError, PriceError
from acceld.llm.calls import RoleBudgetError
from acceld.llm.pricing import micro_usd

LEVELS = (50, 80, 100)
"""Percentages of a cap at which an event is published."""

MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class LevelPassed:
    """Report that ``percent`` of a cap has been used.

    100 percent is also reported if some money is left, but too little for the next call.
    """

    scope: str
    spent_usd: float
    cap_usd: float
    percent: int
    run: int | None = None


@dataclass(slots=True)
class Account:
    """The cap, the spent and the reserved money of a role, a run, a day or the daemon, in micro-dollars."""

    scope: str
    cap: int | None = None
    run: int | None = None
    refusal: type[BudgetError] = BudgetError
    """Class of the error that is raised for a call that does not fit under the cap."""
    spent: int = 0
    reserved: int = 0
    unpriced_calls: int = 0
    reported: set[int] = field(default_factory=set)

    def fits(self, amount: int) -> bool:
        """Return True if a call that costs at most ``amount`` fits below the cap now."""
        return self.cap is None or self.spent + self.reserved + amount <= self.cap

    def could_fit(self, amount: int) -> bool:
        """Return True if a call that costs at most ``amount`` would fit below the cap if the running calls cost
        nothing.
        """
        return self.cap is None or self.spent + amount <= self.cap


@dataclass(slots=True)
class BudgetReservation:
    """Money reserved for one call. Its holder calls ``settle`` exactly once."""

    budget: Budget
    accounts: tuple[Account, ...]
    amount: int
    open: bool = True

    def grow(self, more_usd: Decimal) -> bool:
        """Set more money aside for the call. Return False, and set nothing aside, if a cap would be exceeded."""
        more = micro_usd(more_usd)
        if not all(account.fits(more) for account in self.accounts):
            return False
        for account in self.accounts:
            account.reserved += more
        self.amount += more
        return True

    def settle(self, cost_usd: Decimal | None) -> None:
        """Book the cost of the call, None if the cost is unknown. Raise RuntimeError if the call was settled before."""
        if not self.open:
            raise RuntimeError("this reservation was settled before: settle each reservation once")
        self.open = False
        self.budget.settled(self, cost_usd)


class Budget:
    """The caps of a daemon, and the money spent and reserved below them. ``on_level`` is called once when 50, 80 and
    100 % of a cap are used.
    """

    def __init__(
        self,
        *,
        day_usd: float | None = None,
        daemon_usd: float | None = None,
        allow_unknown_price: bool = False,
        spent_today_usd: float = 0.0,
        on_level: Callable[[LevelPassed], None] | None = None,
        today: Callable[[], str] = lambda: datetime.now(UTC).date().isoformat(),
    ) -> None:
        self._allow_unknown_price = allow_unknown_price
        self._on_level = on_level
        self._today = today
        self._day_cap = _cap(day_usd)
        self._daemon = Account("daemon", _cap(daemon_usd))
        self._days: dict[str, Account] = {}
        self._last_day = ""
        """The day on which an account of a day was used last."""
        self._runs: dict[int, Account] = {}
        self._roles: dict[tuple[int, str], Account] = {}
        self._returned: dict[asyncio.Future[None], None] = {}
        self._day().spent = micro_usd(spent_today_usd)

    def set_caps(self, day_usd: float | None, daemon_usd: float | None, allow_unknown_price: bool) -> None:
        """Change the caps of the day and of the daemon. What was spent still counts."""
        self._allow_unknown_price = allow_unknown_price
        self._day_cap = self._day().cap = _cap(day_usd)
        self._daemon.cap = _cap(daemon_usd)
        for account in (self._day(), self._daemon):
            account.reported = {level for level in account.reported if _used(account, level)}
        self._wake()

    def open_run(self, run: int, cap_usd: float | None, spent_usd: float = 0.0) -> None:
        """Open a run's account, or change its cap. ``spent_usd`` is what the run had spent before the daemon started."""
        account = self._runs.get(run)
        if account is None:
            account = self._runs[run] = Account(f"run r{run}", run=run, spent=micro_usd(spent_usd))
        account.cap = _cap(cap_usd)
        account.reported = {level for level in account.reported if _used(account, level)}
        self._wake()

    def change_run(self, run: int, cap_usd: float | None) -> None:
        """Change the cap of a run whose account is open.

        A run without an account gets its cap when its account is opened.
        """
        if run in self._runs:
            self.open_run(run, cap_usd)

    def open_role(self, run: int, role: str, cap_usd: float | None, spent_usd: float = 0.0) -> None:
        """Open the account of one role of a run, or change its cap. What the role spends counts for the run too."""
        account = self._roles.get((run, role))
        if account is None:
            scope = f"the {role} of r{run}"
            account = Account(scope, run=run, refusal=RoleBudgetError, spent=micro_usd(spent_usd))
            self._roles[run, role] = account
        account.cap = _cap(cap_usd)
        self._wake()

    def spent_usd(self, run: int | None = None) -> float:
        """Return the USD that a run has spent. Without ``run``, or for a run without an account, return the USD that
        the daemon has spent.
        """
        account = self._daemon if run is None else self._runs.get(run, self._daemon)
        return account.spent / MICRO

    async def reserve(self, run: int | None, worst_usd: Decimal | None, role: str = "") -> BudgetReservation:
        """Reserve the worst case of a call. Wait as long as running calls may still return parts of their
        reservations.

        Raise RoleBudgetError if the role's own cap would be exceeded. Raise BudgetError if another cap would be
        exceeded even if the running calls cost nothing, or if the price is unknown and there is a cap.
        """
        while True:
            reservation = self.try_reserve(run, worst_usd, role)
            if reservation is not None:
                return reservation
            returned = asyncio.get_running_loop().create_future()
            self._returned[returned] = None
            try:
                await returned
            finally:
                self._returned.pop(returned, None)

    def try_reserve(self, run: int | None, worst_usd: Decimal | None, role: str = "") -> BudgetReservation | None:
        """Reserve the worst case of a call as :meth:`reserve` does, but return None instead of waiting."""
        accounts = self._accounts(run, role)
        if worst_usd is None:
            capped = [account for account in accounts if account.cap is not None]
            if capped and not self._allow_unknown_price:
                raise PriceError(
                    f"{capped[0].scope} has a budget in USD, but the model's price is unknown",
                    hint="Set input_usd_per_mtok and output_usd_per_mtok in the model's section, or "
                    "allow_unknown_price = true under [budget].",
                )
            return BudgetReservation(self, accounts, 0)
        amount = micro_usd(worst_usd)
        for account in accounts:
            if not account.could_fit(amount):
                self._report(account, 100)
                under_way = (
                    f"{account.reserved / MICRO:.4f} set aside for calls under way, " if account.reserved else ""
                )
                raise account.refusal(
                    f"{account.scope}: {account.spent / MICRO:.4f} of {(account.cap or 0) / MICRO:.4f} USD spent, "
                    f"{under_way}and the next call could cost {amount / MICRO:.4f}",
                    hint="The most that a call can cost is set aside before it: its prompt, and an answer of "
                    "max_output_tokens. Raise the budget and resume, choose a cheaper model, or lower "
                    "max_output_tokens of its role.",
                )
        if not all(account.fits(amount) for account in accounts):
            return None
        for account in accounts:
            account.reserved += amount
        return BudgetReservation(self, accounts, amount)

    def settled(self, reservation: BudgetReservation, cost_usd: Decimal | None) -> None:
        """Book a call's cost in every account in which its reservation was made. Callers use
        :meth:`BudgetReservation.settle` instead.
        """
        for account in reservation.accounts:
            account.reserved -= reservation.amount
            if cost_usd is None:
                account.unpriced_calls += 1
            else:
                account.spent += micro_usd(cost_usd)
            for level in LEVELS:
                if _used(account, level):
                    self._report(account, level)
        self._wake()

    def _accounts(self, run: int | None, role: str) -> tuple[Account, ...]:
        accounts = (self._day(), self._daemon)
        if run is None:
            return accounts
        if run not in self._runs:
            self.open_run(run, None)
        own = self._roles.get((run, role))
        return (*([own] if own else []), self._runs[run], *accounts)

    def _day(self) -> Account:
        """Return the account of today. A day to which the clock was set back shares the account of the day before the
        change, because this daemon does not know what that day has spent.
        """
        day = self._today()
        if day not in self._days:
            went_back = bool(self._last_day) and day < self._last_day
            self._days[day] = self._days[self._last_day] if went_back else Account(f"day {day}", self._day_cap)
        self._last_day = day
        return self._days[day]

    def _report(self, account: Account, level: int) -> None:
        if account.cap is None or level in account.reported:
            return
        account.reported.add(level)
        if self._on_level is not None:
            spent, cap = account.spent / MICRO, account.cap / MICRO
            self._on_level(LevelPassed(account.scope, spent, cap, level, account.run))

    def _wake(self) -> None:
        for returned in self._returned:
            if not returned.done():
                returned.set_result(None)


def _cap(usd: float | None) -> int | None:
    """Return a cap in micro-dollars, rounded down; None if there is no cap."""
    return None if usd is None else int(Decimal(str(usd)) * MICRO)


def _used(account: Account, level: int) -> bool:
    return account.cap is not None and account.spent * 100 >= level * account.cap
