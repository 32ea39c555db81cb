"""Present evaluations, failures and insights as lines of a prompt."""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from acceld.chips import CHIPS
from acceld.figures import duration, held_on, percent
from acceld.model import Evaluation, Insight, InsightKind, Plan, Profile, Source
from acceld.proposers.interface import AppliedPlan
from acceld.proposers.llm.fencing import LOG_CHARS, capped
from acceld.roofline import SPLIT_PASSES, Floor
from acceld.workloads.records import Precision

COUNTERS: Mapping[str, str] = {
    "hbm_read_bytes": "bytes read from HBM",
    "hbm_write_bytes": "bytes written to HBM",
    "sbuf_read_bytes": "bytes read from SBUF",
    "sbuf_write_bytes": "bytes written to SBUF",
    "psum_read_bytes": "bytes read from PSUM",
    "psum_write_bytes": "bytes written to PSUM",
    "spill_save_bytes": "bytes spilled",
    "spill_reload_bytes": "spilled bytes read back",
    "hardware_flops": "floating-point operations executed",
    "transpose_flops": "the part of hardware_flops for transposes",
    "peak_flops_bandwidth_ratio": "operations a byte at which the chip is balanced",
    "mm_arithmetic_intensity": "operations a byte of the matrix products",
    "hfu_estimated_percent": "estimated use of the matrix engine, percent",
    "scalar_engine_active_time_percent": "scalar engine busy, percent",
    "vector_engine_active_time_percent": "vector engine busy, percent",
    "gpsimd_engine_active_time_percent": "gpsimd engine busy, percent",
}
"""Counters of neuron-profile that prompts show, with their titles. With the latency they are the seventeen counters of
AccelOpt (arXiv 2511.15915).
"""

MORE: Mapping[str, str] = {
    "dma_rows": "contiguous rows that DMA moves; short rows are slow",
    "instruction_count": "instructions issued",
    "sbuf_peak_bytes_per_partition": "most SBUF in use, of each of the 128 partitions",
    "psum_peak_banks": "most PSUM banks in use",
}
"""Further counters of the simulator that prompts show, with their titles."""

ENGINES: Mapping[str, str] = {
    "scalar_engine_active_time_percent": "scalar",
    "vector_engine_active_time_percent": "vector",
    "gpsimd_engine_active_time_percent": "gpsimd",
}


TITLE_CHARS = 80
STEP_CHARS = 400
"""Greatest number of characters of an earlier plan in a prompt."""
TRIED = 40
"""Greatest number of earlier plans in a prompt."""


HOT_SPOTS = 6
"""Greatest number of hot lines, and of steps of the critical path, in a prompt."""
STATEMENT_CHARS = 200
"""Greatest number of characters of a statement of the kernel in a line of a profile."""
LEAST_US = 0.005
"""Shortest time that is not printed as 0.00 µs."""
WORTH_SHARE = 0.01
"""Least share of the latency at which a wait is shown."""
BUSY_SHARE = 0.8
"""Share of the latency from which on one busy engine explains the latency, so that the critical path is not shown."""


def arithmetic_allowed(precision: Precision, chip_name: str) -> str:
    """Return lines that say with which precision the gate lets a kernel compute float32 values, and what less
    precision would gain on the chip.
    """
    if precision is Precision.FP32_STRICT:
        return "Every product and sum of float32 values must stay in float32."
    if precision is Precision.ANY_WITHIN_TOLERANCE:
        return "Within these errors float32 values may be computed in a narrower type, such as products in bfloat16."
    allowed = (
        "A matrix product of float32 values may be made of bfloat16 parts that together carry float32 accuracy.\n"
        "The parts of an operand x are hi = bfloat16(x) and lo = bfloat16(x - hi).\n"
        "Three products, hi*hi, hi*lo and lo*hi, are added up in float32.\n"
        "One plain bfloat16 product in place of a float32 product is not accurate enough."
    )
    chip = CHIPS.get(chip_name)
    rates = {} if chip is None else chip.matmul_tflops
    if "float32" not in rates or "bfloat16" not in rates:
        return allowed
    passes = rates["bfloat16"] / rates["float32"]
    gain = f"one float32 product takes as long as {passes:.3g} bfloat16 products, so three save {1 - SPLIT_PASSES / passes:.0%}"
    return f"{allowed}\nOn {chip_name} {gain} of the product's time." if passes > SPLIT_PASSES else allowed


def profile_lines(profile: Profile | None, seed: int | None = None, source: str = "") -> str:
    """Return a profile as lines for a planner: latency, engines and counters, then the hot spots of ``source``.

    Each engine and counter has a line. The order of these lines is drawn from ``seed``, so that each planner sees
    something else first. Zeros are left out. Engines work at the same time, so their shares do not add up to 100 %.
    """
    if profile is None:
        return "(no profile)"
    latency_us = profile.latency_us
    lines = [f"latency: {duration(latency_us)}"]
    lines += [f"{engine} engine busy: {_share(us, latency_us)}" for engine, us in profile.engines_us.items() if us]
    counters = _derived(profile) | dict(profile.counters)
    for name, value in counters.items():
        if value and (name in COUNTERS or name in MORE):
            lines.append(f"{name} ({COUNTERS.get(name) or MORE[name]}): {_readable(name, value)}")
    if seed is not None:
        random.Random(seed).shuffle(lines)
    text = source.splitlines()
    spots = [
        f"line {spot['line']}, {spot.get('engine', '')} busy {_share(spot['busy_us'], latency_us)}: "
        f"{statement(text, spot['line'])}"
        for spot in profile.details.get("hot_spots", ())[:HOT_SPOTS]
        if 0 < spot["line"] <= len(text)
    ]
    return "\n".join(
        [
            *lines,
            *(["hot spots, by the time their engine is busy:", *spots] if spots else []),
            *_waits(profile, text),
            *_critical_path(profile, text),
        ]
    )


def statement(text: Sequence[str], line: int) -> str:
    """Return the statement that begins at a line (from 1), on one line and cut to a maximal length; empty if there
    is no such line.
    """
    found, open_brackets = list[str](), 0
    for one in text[line - 1 :] if line > 0 else ():
        found.append(one.strip())
        open_brackets += sum(one.count(mark) for mark in "([{") - sum(one.count(mark) for mark in ")]}")
        if open_brackets <= 0:
            break
    shown = " ".join(found).replace("( ", "(").replace(", )", ")").replace(",)", ")").replace(" )", ")")
    return shown if len(shown) <= STATEMENT_CHARS else f"{shown[: STATEMENT_CHARS - 1]}…"


def _waits(profile: Profile, text: Sequence[str]) -> list[str]:
    """Return lines that say how the engine that sets the latency spends its time, and what it waits for; [] if this is
    not known.
    """
    found = profile.details.get("binding")
    if not found or not profile.latency_us:
        return []
    least_us = WORTH_SHARE * profile.latency_us
    waited = f"waits {duration(found['waits_us'])}" if found["waits_us"] >= LEAST_US else "never waits"
    said = (
        f"the {found['engine']} engine sets the latency: it works {duration(found['busy_us'])}, {waited}, and starts after "
        f"{duration(found['start_us'])}"
    )
    if found["end_us"] > least_us:
        said += f"; {duration(found['end_us'])} follow after its last work"
    if (margin_us := found.get("margin_us", 0.0)) > least_us:
        said += f"; {duration(margin_us)} are a margin that the model adds to any schedule"
    whole_us = profile.engines_us.get("tensor", 0.0) + found["cold_us"]
    cold = [
        f"the tensor engine works {_share(whole_us, profile.latency_us)}, as it loses {duration(found['cold_us'])} of that at "
        "half its rate: too few of its rows are in use or it stood idle"
        for _ in range(found["cold_us"] > least_us)
    ]
    listed = [(one["us"], one["line"], one["for_engine"], one["for_line"]) for one in found["waits"][:HOT_SPOTS]]
    waits = [
        f"line {line} waits {duration(us)} for {engine} at line {other}: {statement(text, other)}"
        for us, line, engine, other in listed
        if us > least_us
    ]
    if found["start_us"] > least_us:
        waits += [
            f"before it starts, {one['engine']} takes {duration(one['us'])} at line {one['line']}: {statement(text, one['line'])}"
            for one in found["start"][:1]
        ]
    return [said, *cold, *waits]


def _critical_path(profile: Profile, text: Sequence[str]) -> list[str]:
    """Return lines on the critical path; [] if one engine is busy for most of the latency."""
    steps = profile.details.get("critical_path", ())
    whole_us, latency_us = sum(step["us"] for step in steps), profile.latency_us
    busiest_us = max((*profile.engines_us.values(), profile.details.get("binding", {}).get("busy_us", 0.0)))
    if not whole_us or not latency_us or busiest_us >= BUSY_SHARE * latency_us:
        return []
    parts = [
        f"line {step['line']}, {step['engine']}, {100.0 * step['us'] / whole_us:.0f} % of the path"
        + (f": {shown}" if (shown := statement(text, step["line"])) else "")
        for step in steps[:HOT_SPOTS]
    ]
    introduction = (
        f"no engine is busy for {100 * BUSY_SHARE:.0f} % of the latency: engines wait for each other. The critical path, "
        "the chain of dependent operations that ends last, sets the latency; less work off this path saves nothing. Its "
        "longest parts:"
    )
    return [introduction, *parts]


def _share(busy_us: float, latency_us: float | None) -> str:
    """Return a busy time in microseconds and its share of the latency, as text."""
    return duration(busy_us) + (f", {100.0 * busy_us / latency_us:.0f} % of the latency" if latency_us else "")


def _readable(name: str, value: float) -> str:
    """Return a counter's value in readable units: bytes in KiB, MiB or GiB, large counts with separators."""
    if "bytes" in name:
        for unit, size in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
            if value >= size:
                return f"{value / size:.4g} {unit}"
        return f"{value:.0f} B"
    for unit, size in (("G", 1e9), ("M", 1e6)) if name.endswith("flops") else ():
        if value >= size:
            return f"{value / size:.4g} {unit}FLOP"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _derived(profile: Profile) -> dict[str, float]:
    """Return the counters that follow from other counters of the profile, as a dict by name. The definitions are those of
    neuron-profile (AWS Neuron documentation, profile schema).
    """
    found: dict[str, float] = {}
    latency_us, counters = profile.latency_us, profile.counters
    if latency_us:
        busy = {engine.lower(): us for engine, us in profile.engines_us.items()}
        found |= {name: 100.0 * busy[engine] / latency_us for name, engine in ENGINES.items() if engine in busy}
    flops = counters.get("hardware_flops")
    moved = counters.get("hbm_read_bytes", 0.0) + counters.get("hbm_write_bytes", 0.0)
    if flops is not None and moved:
        found["mm_arithmetic_intensity"] = (flops - counters.get("transpose_flops", 0.0)) / moved
    chip = CHIPS.get(profile.chip)
    if chip is not None:
        peak_flops_per_us = chip.matmul_tflops["bfloat16"] * 1e6
        found["peak_flops_bandwidth_ratio"] = peak_flops_per_us / chip.hbm_bytes_per_us
        if flops is not None and latency_us:
            found["hfu_estimated_percent"] = 100.0 * flops / (peak_flops_per_us * latency_us)
    return found


def standing(evaluation: Evaluation | None, floor: Floor | None = None, cores: int = 1) -> str:
    """Return a text that says how fast a kernel is, how fast any kernel for the same work can be, and what limits its
    speed. ``floor`` is the least time on one core, and the kernel runs on ``cores`` cores.
    """
    profile = evaluation.profile if evaluation else None
    if evaluation is None or profile is None:
        return "It has not been timed."
    how = "by simulation of" if profile.source is Source.SIMULATED else "measured on"
    text = f"It takes {duration(profile.latency_us)}, {how} {profile.chip}"
    if floor is not None and floor.least_us > 0:
        # No percentage of a peak is shown: it refers to products in float32, and can exceed 100 % if the gate allows
        # products of bfloat16 parts.
        least = duration(floor.least_us / cores)
        text += (
            f". The {floor.of} of the reference's algorithm take{'' if floor.of.endswith('s') else 's'} at least {least}"
            if floor.counted and floor.least_us > floor.certain_us
            else f". No kernel takes less than {least}, the least time of its {floor.of}"
        )
    else:
        if evaluation.percent_of_peak is not None:
            text += f": {percent(evaluation.percent_of_peak)} of the peak that its declared work allows"
        if evaluation.percent_of_attainable is not None:
            text += f", {percent(evaluation.percent_of_attainable)} of what the chip can physically attain"
    bound, found = profile.bound, profile.details.get("binding")
    if found and found["engine"] == "tensor" and found["cold_us"] > WORTH_SHARE * (profile.latency_us or 0.0):
        bound = f"tensor {100 * found['busy_us'] / profile.latency_us:.0f} %, slowed to half its rate for part of it"
    return f"{text}. What bounds it: {bound}." if bound else f"{text}."


def failure_lines(evaluation: Evaluation, source: str) -> str:
    """Return lines on a failure: the rule, its message, the source line, and the end of the log."""
    lines: list[str] = []
    failure = evaluation.failure
    if failure is not None:
        lines.append(f"rule: {failure.rule}")
        lines.append(f"message: {failure.message}")
        text = source.splitlines()
        if 0 < failure.line <= len(text):
            lines.append(f"at line {failure.line}: {text[failure.line - 1].strip()}")
        if failure.hint:
            lines.append(f"what the rule asks for: {failure.hint}")
    if evaluation.correctness is not None:
        wrong = [check for check in evaluation.correctness.checks if not check.passed]
        for check in wrong[:5]:
            figure = (
                "" if check.rel_l2 is None else f": relative L2 error {check.rel_l2:.3g}, allowed {check.tolerance}"
            )
            lines.append(f"failed check {check.name}{figure} {check.detail}".rstrip())
    if evaluation.log:
        lines.append("end of the log:\n" + capped(evaluation.log, LOG_CHARS))
    return "\n".join(lines) or "(nothing more is known)"


def difference(before: str, after: str, label: str = "kernel") -> str:
    """Return a unified diff of two texts, with ``label`` in its header."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{label} before", f"{label} after", lineterm=""
    )
    return "\n".join(lines) or "(no difference)"


def tried_lines(plans: Sequence[Plan], outcomes: Mapping[int, str]) -> str:
    """Return the titles of earlier plans, the newest last. Equal titles are one line, with all their outcomes."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        came = found.setdefault(plan.title or plan.text[:TITLE_CHARS], [])
        came.append(outcomes.get(plan.id, "not known"))
    lines = [f"- {title}: {'; '.join(came)}" for title, came in found.items()]
    return "\n".join(lines[-TRIED:])


def lineage_lines(steps: Sequence[AppliedPlan]) -> str:
    """Return the steps that led to a kernel, oldest first: title, gain and the beginning of the plan."""
    return "\n".join(
        f"{number}. {step.title}"
        + (f" ({step.speedup:.2f} times as fast)" if step.speedup is not None else "")
        + f": {capped(' '.join(step.text.split()), STEP_CHARS)}"
        for number, step in enumerate(steps, 1)
    )


def insight_lines(insights: Sequence[Insight], seed: int, playbook: Sequence[str] = ()) -> str:
    """Return the playbook, then the insights with their numbers in an order drawn from ``seed``."""
    order = list(insights)
    random.Random(seed).shuffle(order)
    rules = ["\n".join(("Playbook, rules that hold for many kernels:", *playbook))] if playbook else []
    return "\n\n".join([*rules, *(_insight(insight) for insight in order)])


def _insight(insight: Insight) -> str:
    sign = "made a kernel" if insight.kind is InsightKind.POSITIVE else "undone by mistake: the fast form was"
    facts = [f"{sign} {insight.speedup:.2f} times as fast"]
    if insight.tie_percent is not None:
        facts[0] = f"hypothesis: {sign} perhaps {insight.speedup:.2f} times as fast, within {insight.tie_percent:.0f} %"
    facts += (
        [held_on([asdict(place) for place in insight.held])] if insight.held else [insight.chip] if insight.chip else []
    )
    facts += [f"bound by {insight.bound}"] if insight.bound else []
    decided = insight.wins + insight.losses
    facts += [f"won {insight.wins} of the {decided} times a plan followed it"] if decided else []
    parts = [f"i{insight.id} {insight.title} [{'; '.join(facts)}]", insight.strategy]
    if insight.slow:
        parts.append(f"slow:\n{insight.slow}")
    if insight.fast:
        parts.append(f"fast:\n{insight.fast}")
    return "\n".join(parts)
