"""Forecast a run before money is spent: calls, tokens, USD, device hours and time. Pure functions.

A forecast has expected figures, and the USD in the worst case, in which every call gives its longest answer. The number
of plans and attempts is exact, because the search parameters fix it; so are the lengths of the first prompts, if the
prompts are given. Repairs, insights and lengths of answers are rough estimates. Means of earlier calls make these
estimates better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from acceld.llm.client import ROLES, Role
from acceld.llm.pricing import Price
from acceld.llm.usage import CHARS_PER_TOKEN
from acceld.model import SearchParameters
from acceld.model_calls import Usage
from acceld.proposers.llm.roles import RoleTable
from acceld.search.strategies import strategy
from acceld.store.changes.runs import Spent

FRAME_TOKENS = 700
"""Tokens of a prompt without references and kernels: fixed text, profile, and the few lines about the language."""

INSIGHT_TOKENS = 150
PLAN_TOKENS = 250
"""Tokens of a plan, and of the answer that states an insight."""

CACHED_FROM_TOKENS = 1024
"""Length in tokens from which providers cache the beginning of a prompt; some cache only from 4,096 tokens on."""

FAILING = 0.2
"""Share of attempts that fail and get a repair, if there are no earlier calls of the models. Assumed, not measured."""

TAUGHT = 0.25
"""Number of insights that an iteration writes, as a share of the number that it may write. Assumed, not measured."""

WORST_TOKENS = 1.5
"""Length of later prompts in the worst case, as a multiple of the length of the first prompts. Prompts grow with
kernels and memory.
"""

WINDOW = 3
"""Number of newest iterations from which the cost of the next percent of speed-up is estimated."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Means of earlier calls and evaluations. The defaults are rough."""

    call_s: Mapping[Role, float] = field(
        default_factory=lambda: {"planner": 30.0, "executor": 45.0, "fixer": 45.0, "summarizer": 15.0}
    )
    answer_tokens: Mapping[Role, int] = field(default_factory=dict)
    """Mean tokens of the answers by role, with the tokens of reasoning."""
    failing: float = FAILING
    """Share of attempts that fail and get a repair."""
    taught: float = TAUGHT
    """Number of insights written, as a share of the number that the iterations may write."""
    evaluation_s: float = 5.0
    device_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class PromptLength:
    """The tokens of a role's prompt. The ``shared`` tokens are the same in all calls on one parent, so providers cache
    them.
    """

    shared: int
    own: int

    @property
    def whole(self) -> int:
        """Return the tokens of the whole prompt."""
        return self.shared + self.own


@dataclass(frozen=True, slots=True)
class RoleForecast:
    """The forecast for one role. ``cost_usd`` is None if a model's price is unknown."""

    role: Role
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    worst_usd: float | None
    cached_tokens: int = 0
    """Tokens of the prompts that are expected to come from the provider's cache."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected course of a run that makes all its iterations. Patience, target or budget may end the run earlier."""

    candidates: int
    roles: tuple[RoleForecast, ...]
    device_hours: float
    device_usd: float | None
    wall_s: float

    @property
    def calls(self) -> int:
        """Return the number of calls of all roles."""
        return sum(role.calls for role in self.roles)

    @property
    def cost_usd(self) -> float | None:
        """Return the expected USD for all models; None if a price is unknown."""
        costs = [role.cost_usd for role in self.roles if role.calls]
        return None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)

    @property
    def worst_usd(self) -> float | None:
        """Return the USD for all models if every answer has its full length; None if a price is unknown."""
        costs = [role.worst_usd for role in self.roles if role.calls]
        return None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)


def calls_by_role(parameters: SearchParameters, habits: Habits | None = None) -> dict[Role, int]:
    """Return the number of calls of each role. For the fixer and the summarizer it is an expected value."""
    plan, habits = strategy(parameters), habits or Habits()
    attempts = plan.attempts_in_all
    if parameters.candidates is not None:
        attempts = min(attempts, parameters.candidates)
    plans = -(-attempts // plan.attempts)
    repairs = sum(attempts * habits.failing ** (step + 1) for step in range(parameters.fixer_steps))
    if parameters.candidates is not None and attempts == parameters.candidates:
        attempts = round(attempts * attempts / (attempts + repairs))  # repairs are candidates too
        plans, repairs = -(-attempts // plan.attempts), parameters.candidates - attempts
    iterations = max(1, round(plan.iterations * attempts / plan.attempts_in_all))
    insights = 0.0 if parameters.memory in ("off", "") else iterations * parameters.top_k * habits.taught
    if not parameters.planner:
        plans = 0
    return {"planner": plans, "executor": attempts, "fixer": round(repairs), "summarizer": math.ceil(insights)}


def prompt_lengths(parameters: SearchParameters, kernel_chars: int, reference_chars: int) -> dict[Role, PromptLength]:
    """Return estimates of the lengths of prompts that were not rendered."""
    kernel = int(kernel_chars / CHARS_PER_TOKEN)
    shared = int(reference_chars / CHARS_PER_TOKEN) + FRAME_TOKENS + kernel
    memory = 0 if parameters.memory in ("off", "") else parameters.memory_size * INSIGHT_TOKENS
    return {
        "planner": PromptLength(shared, memory),
        "executor": PromptLength(shared, PLAN_TOKENS),
        "fixer": PromptLength(shared, 2 * kernel + PLAN_TOKENS),
        "summarizer": PromptLength(0, FRAME_TOKENS + 3 * kernel),
    }


def forecast(
    parameters: SearchParameters,
    roles: RoleTable | None,
    price: Callable[[str, int], Price | None],
    *,
    dearest: Callable[[str, int], Price | None] | None = None,
    kernel_chars: int,
    reference_chars: int,
    prompts: Mapping[Role, PromptLength] | None = None,
    habits: Habits | None = None,
    share: float = 1.0,
    concurrency: Mapping[str, int] | None = None,
) -> Forecast:
    """Return the forecast of a run. If ``roles`` is None, rules make the proposals, which cost nothing.

    ``price`` returns a model's price for a prompt of some tokens, as :meth:`acceld.llm.calls.Calls.price` does.
    ``dearest`` returns the highest price that a model may have; by default it is ``price``. ``prompts`` has the lengths
    of rendered prompts. ``share`` is the expected share of the plans that models make; in the worst case models make
    all plans. ``concurrency`` has the number of calls to each model that run at once, by default one. Kernels are
    assumed to run one after another.
    """
    habits = habits or Habits()
    most = calls_by_role(parameters, habits)
    counts = {role: math.ceil(count * (1.0 if role == "summarizer" else share)) for role, count in most.items()}
    kernel = int(kernel_chars / CHARS_PER_TOKEN)
    lengths = prompt_lengths(parameters, kernel_chars, reference_chars) | dict(prompts or {})
    answers: dict[Role, int] = {
        "planner": PLAN_TOKENS,
        "executor": kernel + PLAN_TOKENS // 2,
        "fixer": kernel + PLAN_TOKENS // 2,
        "summarizer": PLAN_TOKENS,
    }
    plan = strategy(parameters)
    parents = max(1, round(most["executor"] / (plan.plans * plan.attempts)))
    sharing = sum(counts[role] for role in ("planner", "executor", "fixer"))
    read = 1.0 - min(1.0, parents / sharing) if sharing else 0.0
    shares: list[RoleForecast] = []
    for role in ROLES if roles is not None else ():
        assert roles is not None
        models, length = roles.of(role), lengths[role]
        answer = min(habits.answer_tokens.get(role, answers[role]), models.max_output_tokens)
        is_cached = length.shared >= CACHED_FROM_TOKENS and not models.batch
        cached = round(length.shared * read) if is_cached else 0
        usual = Usage(length.whole, cached, length.shared - cached if is_cached else 0, answer)
        longest = Usage(int(length.whole * WORST_TOKENS), output_tokens=models.max_output_tokens)
        shares.append(
            RoleForecast(
                role,
                counts[role],
                counts[role] * length.whole,
                counts[role] * answer,
                _cost(roles, role, price, counts[role], usual, highest=False),
                _cost(roles, role, dearest or price, most[role], longest, highest=True),
                counts[role] * cached,
            )
        )
    candidates = most["executor"] + counts["fixer"]
    device_s = candidates * habits.evaluation_s
    model_s = 0.0
    for found in shares:
        assert roles is not None
        at_once = sum((concurrency or {}).get(name, 1) for name, _ in roles.of(found.role).models)
        model_s += found.calls * habits.call_s.get(found.role, 30.0) / at_once
    chain_s = habits.evaluation_s + sum(habits.call_s.get(role, 0.0) for role in ("planner", "executor") if shares)
    hours = device_s / 3600.0
    return Forecast(
        candidates=candidates,
        roles=tuple(shares),
        device_hours=hours,
        device_usd=None if habits.device_usd_per_hour is None else hours * habits.device_usd_per_hour,
        wall_s=max(model_s, device_s) + plan.iterations * chain_s,
    )


def _cost(
    roles: RoleTable,
    role: Role,
    price: Callable[[str, int], Price | None],
    calls: int,
    usage: Usage,
    *,
    highest: bool,
) -> float | None:
    """Return the USD of a role's calls; None if a price is unknown.

    The calls are spread over the role's models by weight. With ``highest``, all calls go to the most expensive model.
    """
    models = roles.of(role).models
    total_weight = sum(weight for _, weight in models)
    mean, worst = Decimal(0), Decimal(0)
    for name, weight in models:
        found = price(name, usage.input_tokens)
        if found is None:
            return None
        found = found.batched() if roles.of(role).batch else found
        dear = found.worst_cost_usd(usage.input_tokens, usage.output_tokens)
        one = dear if highest else found.cost_usd(usage)
        mean += one * Decimal(weight / total_weight)
        worst = max(worst, one)
    return float((worst if highest else mean) * calls)


def next_percent_usd(iterations: Sequence[Spent], device_usd_per_hour: float | None = None) -> float | None:
    """Return what the next percent of speed-up costs in USD, if the trend of the last ``WINDOW`` iterations continues.

    Infinity means that money was spent without any speed-up. None means too few iterations, an unknown price, or no
    money spent.
    """
    if len(iterations) < WINDOW:
        return None
    recent = iterations[-WINDOW:]
    before = iterations[-WINDOW - 1].speedup if len(iterations) > WINDOW else 1.0
    cost_usd = 0.0
    for one in recent:
        if one.cost_usd is None:
            return None
        cost_usd += one.cost_usd + one.evaluation_s / 3600.0 * (device_usd_per_hour or 0.0)
    if cost_usd <= 0:
        return None
    percent = 100.0 * (recent[-1].speedup / before - 1.0)
    return cost_usd / percent if percent > 0 else float("inf")
