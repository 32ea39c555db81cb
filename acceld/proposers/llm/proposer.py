"""Fill the roles planner, executor, fixer and summarizer with models.

The system text is the same for all calls on one parent, whichever role asks, so that a provider can cache it. The user
text differs: by role, by the order of counters and insights, by earlier plans, and by the number of the plan or
attempt. So models that take no sampling parameters give different answers too. All random choices come from the
request's seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from acceld.chips import API_CHIPS
from acceld.config import ToolsConfig
from acceld.llm.calls import RoleBudgetError
from acceld.llm.client import Completion, CompletionRequest, LLMClient, Role
from acceld.llm.errors import (
    LLMEmpty,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMTimedOut,
    LLMUnavailable,
)
from acceld.llm.pricing import Price
from acceld.model import PROPOSERS, Attempt, Candidate, Insight, InsightKind, Kernel, KnowledgeLevel, Plan
from acceld.model_calls import Usage
from acceld.proposers.interface import (
    NO_PLAN,
    AppliedPlan,
    AttemptRequest,
    FirstRequest,
    FixRequest,
    PlanRequest,
    Problem,
    RewritePair,
    SummaryRequest,
)
from acceld.proposers.llm.directions import change_classes, direction
from acceld.proposers.llm.extraction import (
    DIVIDER,
    REPLACE,
    SEARCH,
    PlanText,
    extract_kernel,
    parse_insight,
    parse_plan,
)
from acceld.proposers.llm.fencing import KERNEL_CHARS, LOG_CHARS, NOTE_CHARS, Data, capped
from acceld.proposers.llm.knowledge import calls_of, knowledge_of
from acceld.proposers.llm.presentation import (
    arithmetic_allowed,
    difference,
    failure_lines,
    insight_lines,
    lineage_lines,
    profile_lines,
    standing,
    tried_lines,
)
from acceld.proposers.llm.prompts import Prompt, PromptLibrary
from acceld.proposers.llm.roles import RoleTable
from acceld.proposers.llm.tools import TEXTS, Spent, Workbench, tool_calls, without_tools

WARM_S: Final = 5.0
"""Seconds for which calls wait for the first call with the same system text, so that the provider has cached the text
by then.
"""

HOPELESS: Final = 6
"""Number of calls of a role that may fail in a row before the run pauses, since further calls would fail too."""

EDIT_LINES: Final = 120
"""Least number of lines of a kernel for which an answer may consist of edits instead of the whole file."""

TO_CROSS: Final = (
    "Another kernel of this search, made fast by other steps. Your plan brings its gain into the working kernel: say "
    "what to take from it, where that belongs, and what it must not undo:"
)
CROSSED: Final = "Another fast kernel of this search, whose gain is to come into the working kernel:"

SEED_BITS: Final = 0x7FFF_FFFF

Values = dict[str, str | Data]
Tags = dict[str, int | str]


class LLMProposer:
    """Ask models for plans, kernels, repairs and insights.

    BudgetError and LLMError are raised to the caller. If a call of the summarizer fails, there is no insight, and only
    a ``lasting`` LLMError is raised.
    """

    name = "llm"
    abilities = PROPOSERS[name]

    def __init__(
        self,
        client: LLMClient,
        roles: RoleTable,
        prompts: PromptLibrary,
        *,
        plans: int,
        fixer_steps: int = 0,
        planner: bool = True,
        knowledge: KnowledgeLevel = "calls",
        shares: Callable[[Role, int], Awaitable[Mapping[str, float]]] | None = None,
        accuracy: Callable[[], str] = lambda: "",
    ) -> None:
        """Prepare the proposer.

        ``plans`` is the number of plans for each parent. Without ``planner`` the executor gets no plan, and changes
        the kernel as it likes. ``knowledge`` says how many facts prompts have. ``shares`` returns the share with which
        each model of a role is drawn in an iteration, for roles that draw models by gain. ``accuracy`` returns a text
        on the accuracy that the gate demands, "" until that is known.
        """
        self._accuracy = accuracy
        self._client = client
        self._roles = roles
        self._prompts = prompts
        self._plans = plans
        self._fixer_steps = fixer_steps
        self._planner = planner
        self._shares = shares
        self._knowledge: KnowledgeLevel = knowledge
        self._bench: Workbench | None = None
        self._tool_caps = ToolsConfig()
        self._price: Callable[[str, int], Price | None] = lambda name, tokens: None
        self._warming: dict[str, asyncio.Event] = {}
        self._failed_in_a_row: Counter[Role] = Counter()

    def equip(self, bench: Workbench, caps: ToolsConfig, price: Callable[[str, int], Price | None]) -> None:
        """Let the executor use the tools of ``bench`` in its attempts, within ``caps``.

        ``price`` returns the price of a model for a prompt with a number of tokens; None if the price is not known.
        """
        self._bench, self._tool_caps, self._price = bench, caps, price

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return one plan from the planner's answer; None if the answer has no plan."""
        self._prompts.begin(request.iteration)
        if not self._planner:
            return self._no_plan(request)
        problem, parent = request.problem, request.parent
        values = self._problem_values(problem, parent.kernel)
        profile = parent.evaluation.profile if parent.evaluation else None
        values |= {
            "standing": standing(parent.evaluation, problem.floor, parent.kernel.lnc),
            "profile": profile_lines(profile, request.seed, parent.kernel.text),
            "insights": _optional(
                "Insights from earlier rewrites of kernels:",
                "insights",
                insight_lines(request.insights, request.seed, request.playbook),
            ),
            "notes": _optional("Observations of the search:", "notes", "\n".join(request.notes)),
            "hints": _optional("Hints of a person who watches this search:", "hints", "\n".join(request.hints)),
            "tried": _optional(
                "Already proposed for this kernel with the result, so propose something else:",
                "earlier proposals",
                tried_lines(request.earlier, request.outcomes),
            ),
            "nearby": _optional(
                "Proposed for the kernels from which this kernel was made, with the result:",
                "proposals nearby",
                tried_lines(request.nearby, request.outcomes),
            ),
            "classes": ", ".join(change_classes(problem.api)),
            "direction": direction(problem.api, request.index),
            "ancestors": _optional("The steps that led to this kernel:", "steps", lineage_lines(request.lineage)),
            "partner": "",
            "plan_number": str(request.index + 1),
            "plan_count": str(self._plans),
        }
        if request.partner is not None:
            values["partner"] = _partner(TO_CROSS, parent, request.partner.candidate, request.partner.steps)
        tags: Tags = {"run": request.run, "iteration": request.iteration, "parent": parent.id, "index": request.index}
        completion, parsed = await self._parsed_plan(request, values, tags)
        return request.planned(
            parsed.text,
            title=parsed.title,
            change_class=parsed.change_class,
            insights=tuple(insight.id for insight in request.insights),
            data={"cited": list(parsed.cited), "model": completion.model},
            partner=request.partner_id,
        )

    async def _parsed_plan(self, request: PlanRequest, values: Values, tags: Tags) -> tuple[Completion, PlanText]:
        """Return the planner's answer, and the plan in it.

        If the answer is empty or has nothing but a header, the model is asked once more. If a resumed run finds two
        such answers stored, the model is asked a third time, because a stored answer never gets better.

        Raise LLMEmpty if the last answer too was empty, or had nothing but a header.
        """
        api, asked, longer = request.problem.api, 0, False
        while True:
            question = tags | {"reask": asked} if asked else tags
            asked += 1
            try:
                completion = await self._ask("planner", api, values, request.seed, question, longer=longer)
            except LLMEmpty as error:
                if error.lasting or asked > 1:
                    raise
                longer = error.exhausted
                continue
            parsed = parse_plan(completion.text, change_classes(api))
            if parsed is not None:
                return completion, parsed
            if asked > 1 and not completion.is_stored:
                raise LLMEmpty(f"model {completion.model!r} answered with the header of a plan, and no plan")
            longer = completion.finish_reason == "length"

    async def first(self, request: FirstRequest) -> str | None:
        """Return the text of a first kernel; None if the model gave no code, or if the money for repairs is used up."""
        values = self._problem_values(request.problem, request.blank)
        earlier = [
            f"version {number}: {result.status}\n{failure_lines(result, text)}\n\n{text}"
            for number, (text, result) in enumerate(request.earlier, 1)
        ]
        values |= {
            "earlier": _optional("Your earlier versions, which failed:", "earlier versions", "\n\n".join(earlier)),
            "attempt_number": str(request.index + 1),
            "answer_form": self._answer_form(request.problem.api),
        }
        tags: Tags = {"run": request.run, "iteration": 0, "attempt": request.index, "step": request.step}
        role: Role = "fixer" if request.step else "executor"
        api, blank = request.problem.api, request.blank
        try:
            text, _ = await self._kernel(role, api, values, request.seed, tags, blank, name="first")
        except RoleBudgetError:
            return None
        return text

    def _no_plan(self, request: PlanRequest) -> Plan:
        """Return the plan of a run without planner, which says that the executor decides what to change."""
        text = (
            "There is no plan. Decide yourself how to make this kernel faster, and write it.\n"
            f"This is version {request.index + 1} of {self._plans} from this kernel, so prefer an idea that is not "
            "the most obvious one."
        )
        return request.planned(text, title=NO_PLAN, partner=request.partner_id)

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return the executor's attempt at a plan: a kernel, or the reason why its answer has no code."""
        plan, parent = request.plan, request.parent
        values = self._problem_values(request.problem, parent.kernel)
        values |= {
            "plan": Data("plan", _told(plan), LOG_CHARS),
            "partner": _partner(CROSSED, parent, request.partner) if request.partner is not None else "",
            "attempt_number": str(request.index + 1),
            "answer_form": self._answer_form(request.problem.api, "the working kernel", parent.kernel.text),
        }
        tags = _tags(plan, attempt=request.index)
        answer: Completion | LLMEmpty | LLMInterrupted | None = None
        if self._bench is not None:
            try:
                answer = await self._worked(self._bench, request, values, tags)
            except (LLMEmpty, LLMInterrupted) as error:
                answer = error
        text, reason = await self._kernel(
            "executor", request.problem.api, values, request.seed, tags, parent.kernel, answer=answer
        )
        return Attempt(plan=plan.id, index=request.index, text=text, reason=reason)

    async def _worked(self, bench: Workbench, request: AttemptRequest, values: Values, tags: Tags) -> Completion:
        """Let the executor use tools, and return its final answer. Each answer on the way is a call of the model that
        is recorded and paid like any other.
        """
        spent, done = Spent(), list[str]()
        while True:
            used_up = spent.exceeds(self._tool_caps)
            left = (
                f"Your tools are used up ({used_up}): answer with the kernel now."
                if used_up
                else f"You have used {spent.turns} of {self._tool_caps.turns} turns with tools."
            )
            further: Values = {
                "tools": "\n".join(TEXTS.values()),
                "left": left,
                "transcript": _optional("Your calls of tools, with their answers:", "tools", "\n\n".join(done)),
            }
            turn = tags | {"turn": spent.turns}
            answer = await self._ask(
                "executor", request.problem.api, values, request.seed, turn, behind=("tools", further)
            )
            calls = tool_calls(answer.text)
            if not calls or used_up:
                return replace(answer, text=without_tools(answer.text))
            started_s = time.monotonic()
            for call in calls:
                reported = await bench.use(call, request.parent.kernel)
                done.append(f"{call.name}\n{call.text}\n{call.name} answers:\n{reported}")
            spent.add(answer.usage, self._cost_usd(answer.usage, request.seed), time.monotonic() - started_s)

    def _cost_usd(self, usage: Usage, seed: int) -> float | None:
        """Return the greatest cost of the used tokens in USD, at the price of the executor's most expensive model.

        Return None if the price of one of its models is not known.
        """
        prices = [self._price(name, usage.input_tokens) for name in self._roles.of("executor").order(seed)]
        known = [price.cost_usd(usage) for price in prices if price is not None]
        return float(max(known)) if known and len(known) == len(prices) else None

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Return the fixer's attempt at a repair; None if the money for repairs is used up."""
        plan, parent, failed = request.plan, request.parent, request.failed
        values = self._problem_values(request.problem, parent.kernel)
        earlier = [
            f"try {number}: {result.status}\n{failure_lines(result, text)}\n{difference(parent.kernel.text, text)}"
            for number, (text, result) in enumerate(request.earlier, 1)
        ]
        values |= {
            "plan": Data("plan", _told(plan), LOG_CHARS),
            "failed": Data("failing kernel", failed.kernel.text),
            "diff": Data("difference", difference(parent.kernel.text, failed.kernel.text), LOG_CHARS),
            "status": request.evaluation.status.value,
            "failure": Data("failure", failure_lines(request.evaluation, failed.kernel.text), 2 * LOG_CHARS),
            "earlier": _optional("Repairs tried before, which failed too:", "earlier tries", "\n\n".join(earlier)),
            "step": str(request.step),
            "steps": str(max(self._fixer_steps, request.step)),
            "answer_form": self._answer_form(request.problem.api, "the failing kernel", failed.kernel.text),
        }
        attempt = failed.order[2]
        tags = _tags(plan, attempt=attempt, step=request.step)
        try:
            text, reason = await self._kernel("fixer", request.problem.api, values, request.seed, tags, failed.kernel)
        except RoleBudgetError:
            return None
        return Attempt(plan=plan.id, index=attempt, text=text, reason=reason, fix_of=failed.attempt)

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Return an insight that the summarizer finds in a rewrite; None if the summarizer finds no insight."""
        pair = request.rewrite
        slow, fast = pair.slow, pair.fast
        values: Values = {
            "chip": request.problem.chip,
            "speedup": _pair_speedup(pair),
            "slow": Data("slower kernel", slow.kernel.text),
            "fast": Data("faster kernel", fast.kernel.text),
            "diff": Data("difference", difference(slow.kernel.text, fast.kernel.text), 2 * LOG_CHARS),
            "plan": _optional(
                "The newer of the two kernels was written to this plan:", "plan", pair.plan.text if pair.plan else ""
            ),
            "slow_profile": profile_lines(slow.evaluation.profile if slow.evaluation else None, None, slow.kernel.text),
            "fast_profile": profile_lines(fast.evaluation.profile if fast.evaluation else None, None, fast.kernel.text),
        }
        tags: Tags = {"run": request.run, "iteration": request.iteration, "slow": slow.id, "fast": fast.id}
        try:
            completion = await self._ask("summarizer", request.problem.api, values, request.seed, tags)
        except LLMError as error:
            if error.lasting:
                raise
            return None
        parsed = parse_insight(completion.text)
        if parsed is None:
            return None
        kind = InsightKind.POSITIVE if pair.positive else InsightKind.NEGATIVE
        return Insight(parsed.title, parsed.strategy, parsed.slow, parsed.fast, pair.speedup, kind)

    def _problem_values(self, problem: Problem, kernel: Kernel) -> Values:
        """Return the values of the placeholders that all roles' prompts share: workload, kernel, facts. An empty
        kernel is left out.
        """
        language = self._prompts.language(problem.api)
        mistakes = self._prompts.mistakes(problem.api)
        limit = "float32 rounding" if problem.tolerance is None else f"{problem.tolerance:g}"
        published = f"its relative L2 error against a float64 evaluation is at most {limit}"
        return {
            "language_name": language.settings["name"],
            "language": language.system,
            "knowledge": knowledge_of(problem.api, problem.chip, mistakes, self._level(problem.api)),
            "calls": calls_of(problem.api, problem.chip, kernel.text, self._level(problem.api)),
            "chip": problem.chip,
            "problem": Data("problem", f"{problem.description}\n\n{problem.reference_source}"),
            "arguments": Data("arguments", "\n".join(one.text for one in problem.arguments), NOTE_CHARS),
            "tolerance": self._accuracy() or published,
            "arithmetic": arithmetic_allowed(problem.precision, problem.chip),
            "parent": Data("the working kernel", kernel.text) if kernel.text else "",
        }

    def _level(self, api: str) -> KnowledgeLevel:
        """Return how many facts the prompts for an API have: the configured level.

        If all models have a prompt cache, the level ``full`` takes the place of ``calls``. Some providers cache only
        prompts of at least 4,096 tokens, and only with all calls of NKI is the part that all problems share so long.
        A cached token costs a tenth of an uncached token.
        """
        return "full" if self._knowledge == "calls" and self._roles.all_warmed and api in API_CHIPS else self._knowledge

    def _answer_form(self, api: str, base: str = "", text: str = "") -> str:
        """Return the text that tells a model what to answer: a whole file, or edits of the kernel if that is long.
        The prompt calls this kernel ``base``.
        """
        fence = self._prompts.language(api).settings["fence"]
        whole = f"Answer with the complete file in one ```{fence} block. It is used as it stands."
        if text.count("\n") < EDIT_LINES:
            return whole
        return (
            f"{whole} As the kernel is long, you may answer with edits of {base} instead, one block each:\n"
            f"```\n{SEARCH}\nlines as they stand there, enough of them to be found once\n{DIVIDER}\n"
            f"the lines in their place\n{REPLACE}\n```"
        )

    async def _kernel(
        self,
        role: Role,
        api: str,
        values: Values,
        seed: int,
        tags: Tags,
        kernel: Kernel,
        *,
        name: str = "",
        answer: Completion | LLMEmpty | LLMInterrupted | None = None,
    ) -> tuple[str | None, str]:
        """Return (text of a kernel, ""). If the answer has no kernel, return (None, reason).

        A model whose answer has no kernel is asked once more before. Raise LLMError if the call failed, so that the
        search can ask again later.
        """
        if answer is None:
            try:
                answer = await self._ask(role, api, values, seed, tags, name=name)
            except (LLMEmpty, LLMInterrupted) as error:
                if error.lasting:
                    raise
                answer = error
        if not isinstance(answer, Completion):
            tags = tags | {"reask": 1}
            longer = isinstance(answer, LLMEmpty) and answer.exhausted
            answer = await self._ask(role, api, values, seed, tags, name=name, longer=longer)
        base = kernel.text
        found = extract_kernel(answer.text, kernel.entry, cut_off=answer.finish_reason == "length", base=base)
        if found.text is not None or "reask" in tags:
            return found.text, found.reason
        complaint: Values = {
            "fence": self._prompts.language(api).settings["fence"],
            "problem_with_answer": found.reason,
            "answer": Data("answer", answer.text),
        }
        behind = ("reask", complaint)
        try:
            longer = answer.finish_reason == "length"
            again = tags | {"reask": 1}
            second = await self._ask(role, api, values, seed, again, name=name, behind=behind, longer=longer)
        except LLMError as error:
            if error.lasting:
                raise
            return None, found.reason
        is_cut = second.finish_reason == "length"
        found = extract_kernel(second.text, kernel.entry, cut_off=is_cut, base=base)
        if found.text is None and is_cut:
            return None, f"{found.reason}, at twice the limit too: raise max_output_tokens in [llm.{role}]"
        return found.text, found.reason

    async def _ask(
        self,
        role: Role,
        api: str,
        values: Values,
        seed: int,
        tags: Tags,
        *,
        name: str = "",
        behind: tuple[str, Values] | None = None,
        longer: bool = False,
    ) -> Completion:
        """Return one answer of the model that the seed selects. If that model does not answer, ask the role's other
        models.

        ``behind`` names a second prompt that follows the question, about a faulty answer or about tools, and has its
        values. With ``longer`` the answer may have twice as many tokens, because an earlier answer was cut off. Raise
        LLMError if no model of the role answered; the error is ``lasting`` if further calls would fail too.
        """
        salt = str(tags["run"]).encode()
        prompt = self._prompts.get(api, name or role).render(values, salt)
        if behind is not None:
            again = self._prompts.get(api, behind[0]).render(behind[1], salt)
            prompt = replace(prompt, user=f"{prompt.user}\n\n{again.system}\n\n{again.user}")
        models = self._roles.of(role)
        failure: LLMError = LLMUnavailable(f"the {role} has no model")
        shares = None
        if models.by_gain and self._shares is not None:
            shares = await self._shares(role, int(tags["iteration"]))
        for model in models.order(seed, shares):
            request = CompletionRequest(
                role=role,
                model=model,
                system=prompt.system,
                user=prompt.user,
                max_output_tokens=models.max_output_tokens * (2 if longer else 1),
                temperature=models.temperature,
                seed=seed & SEED_BITS,
                tags=tags,
                shared_chars=prompt.shared_chars,
                batch=models.batch,
            )
            try:
                completion = await self._warmed(request, prompt)
            except LLMError as error:
                failure = error
                if error.lasting or not isinstance(error, LLMUnavailable | LLMRateLimited | LLMTimedOut):
                    break
            else:
                del self._failed_in_a_row[role]
                return completion
        self._count(role, failure)
        raise failure

    def _count(self, role: Role, error: LLMError) -> None:
        """Count a failed call of a role. After ``HOPELESS`` failures in a row, mark ``error`` as lasting."""
        self._failed_in_a_row[role] += 1
        failed = self._failed_in_a_row[role]
        if failed >= HOPELESS and not error.lasting:
            error.lasting = True
            error.message = f"{failed} calls of the {role} in a row failed, the last so: {error.message}"

    async def _warmed(self, request: CompletionRequest, prompt: Prompt) -> Completion:
        """Return the answer to a request. Calls with the same system text wait for the first of them, at most
        ``WARM_S`` seconds, so that they find the text in the provider's cache.
        """
        if request.batch or request.model not in self._roles.warmed:
            return await self._client.complete(request)
        key = hashlib.sha256(f"{request.model}\0{prompt.system}".encode("utf-8", "surrogatepass")).hexdigest()
        if key in self._warming:
            try:
                async with asyncio.timeout(WARM_S):
                    await self._warming[key].wait()
            except TimeoutError:
                pass
            return await self._client.complete(request)
        warm = self._warming[key] = asyncio.Event()
        try:
            return await self._client.complete(request)
        finally:
            warm.set()


def _pair_speedup(pair: RewritePair) -> str:
    """Return a sentence on the speed-up of a pair and on how certain it is."""
    if pair.tie_percent is None:
        return f"The second is {pair.speedup:.3f} times as fast as the first."
    return (
        f"The second is predicted to be {pair.speedup:.3f} times as fast as the first. That is less than the prediction's "
        f"uncertainty of {pair.tie_percent:.0f} %, so write a hypothesis, and say what would confirm it."
    )


def _told(plan: Plan) -> str:
    """Return a plan as the executor and the fixer read it: its title, if it has one, and its text."""
    has_title = plan.title and plan.title != NO_PLAN and not plan.text.startswith(plan.title.rstrip("…"))
    return f"{plan.title}\n\n{plan.text}" if has_title else plan.text


def _tags(plan: Plan, **more: int) -> Tags:
    return {"run": plan.run, "iteration": plan.iteration, "parent": plan.parent, "plan": plan.id, **more}


def _partner(introduction: str, parent: Candidate, partner: Candidate, steps: Sequence[AppliedPlan] = ()) -> Data:
    """Return the second parent of a crossover as data for a prompt: latency, steps and code.

    The code of both parents together is at most as long as one kernel may be. If hardly any room is left, the code of
    the second parent is left out.
    """
    parts = [standing(partner.evaluation)]
    if steps:
        listed = capped(lineage_lines(steps), LOG_CHARS)
        parts.append(f"Steps by which it came to be, from the last version that both share:\n{listed}")
    room = KERNEL_CHARS - len(parent.kernel.text)
    parts.append(capped(partner.kernel.text, room) if room > LOG_CHARS else "(its code is too long to be shown)")
    return Data(f"partner: {introduction}", "\n\n".join(parts))


def _optional(introduction: str, label: str, text: str) -> str | Data:
    """Return a text as data behind an introduction; "" if ``text`` is empty."""
    return Data(f"{label}: {introduction}", text, 12 * NOTE_CHARS) if text else ""
