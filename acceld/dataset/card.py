"""Write the card (README) of a data set: what it contains, how it was made, its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from acceld.dataset.programs import FAMILIES, NARROW_SHARE, SIZES
from acceld.dataset.records import Order, Program
from acceld.gains import gain
from acceld.report.exchange import SIZES as SIZE_CATEGORIES


def card(
    order: Order,
    basis: Mapping[str, str],
    rows: Mapping[str, Mapping[str, int]],
    taken: Mapping[int, int],
    tried: Iterable[Program],
) -> tuple[str, dict[str, int]]:
    """Return the README of a data set, and the number of failed programs by the reason of the failure. ``rows`` has the
    number of rows of each format, by split. ``taken`` has the number of pairs by program. ``tried`` has all programs,
    failed ones too, up to the last program in the data set.
    """
    families, sizes, failed, rejected = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    messages: dict[str, str] = {}
    by_rules = kernels = 0
    ratios: list[float] = []
    for one in tried:
        rejected.update(kernel.status for kernel in one.rejected if one.made)
        if not one.made:
            failed[one.rejected[0].status] += 1
            messages.setdefault(one.rejected[0].status, f"{one.name}: {one.rejected[0].message}")
            continue
        families[one.family] += 1
        sizes[one.size] += 1
        kernels += len(one.members)
        for pair in one.pairs[: taken[one.number]]:
            slow, fast = one.members[pair.slow], one.members[pair.fast]
            found = gain(slow.evaluation.profile, fast.evaluation.profile)
            assert found is not None
            ratios.append(found.ratio)
            by_rules += fast.rules_since(slow) is not None
    pairs = sum(taken.values())
    total = sum(sum(parts.values()) for parts in rows.values())
    category = next((size for most, size in SIZE_CATEGORIES if total < most), "n>1M")
    lines = [
        "---",
        "license: apache-2.0",
        "task_categories: [text-generation]",
        f"size_categories: ['{category}']",
        "tags: [code, kernels, nki, trainium]",
        "configs:",
    ]
    for name, parts in rows.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        lines += [f"  - split: {part}\n    path: {name}/{part}.jsonl" for part, number in parts.items() if number]
    lines += [
        "---",
        "",
        "# Programs for Trainium, from numpy to slow and fast kernels",
        "",
        (
            f"{len(taken)} programs and {pairs} slow-fast pairs of their kernels, for {order.chip} in {order.api}. acceld made "
            f"all of it: `acceld dataset make DIR --programs {order.programs} --pairs {order.pairs} --seed {order.seed}"
            f" --api {order.api} --chip {order.chip}`."
        ),
        "",
    ]
    if pairs < order.pairs:
        lines += [f"{order.pairs} pairs were asked for: these programs give no more that are certain.", ""]
    lines += ["| rows | train | validation | test |", "|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(str(parts[part]) for part in parts)} |" for name, parts in rows.items()]
    lines += [
        "",
        (
            "- `pairs`: slow and fast kernel, both latencies, what changed. `numpy-nki`: reference with the lowered kernel "
            "(`first`) and the fastest (`best`). `trl-sft`: the pairs as conversations. The name of a program, `workload`, joins "
            "them."
        ),
        "- Split by formula: the text of `forward`, which holds no size. No formula of a split is in another split, at any size.",
        "",
        "## How it was made",
        "",
        "1. A reference is drawn: random steps of "
        + ", ".join(FAMILIES)
        + f", with random shapes; {NARROW_SHARE:.0%} of the "
        "references are drawn in bfloat16, the others in float32.",
        "2. It is lowered to one kernel in the largest pieces, and to plainer ones, which send more values through HBM.",
        "3. Rewrite rules make further kernels of each.",
        (
            f"4. Each kernel ({kernels} of these programs) was run in a jail on one data set drawn from the seed, and is within "
            "the tolerance of the reference in float64. It passed the search gate, not the strict gate."
        ),
        "5. A pair is two kernels of a program whose simulated speed-up is certain by acceld's rule: beyond the band of two "
        "predictions." + (f" The speed-ups are {min(ratios):.2f}x to {max(ratios):.2f}x." if ratios else ""),
        (
            f"6. Pairs by rewrite rules alone: {by_rules} (`change` names the rules). The others are by larger pieces, some with "
            "rewrites as well."
        ),
        "",
        "| | " + " | ".join(FAMILIES) + " |",
        "|---|" + "---|" * len(FAMILIES),
        "| programs | " + " | ".join(str(families[name]) for name in FAMILIES) + " |",
        "",
        "| size | programs | rows | columns | columns of matrix products | heads | keys |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, size in SIZES.items():
        spans = (size.rows, size.columns, size.inner, size.heads, size.keys)
        lines.append(f"| {name} | {sizes[name]} | " + " | ".join(f"{min(one)} to {max(one)}" for one in spans) + " |")
    lines += [
        "",
        "## What is not in it",
        "",
        f"Drawn programs that could not be made: {failed.total()} of {len(taken) + failed.total()}.",
        "",
        *(f"- {status}: {number}, such as {messages[status]}" for status, number in sorted(failed.items())),
        *([""] if failed else []),
        f"Kernels of the other programs that were left out: {rejected.total()}.",
        "",
        *(f"- {status}: {number}" for status, number in sorted(rejected.items())),
        *([""] if rejected else []),
        "## Limits",
        "",
        f"- Every latency is simulated: acceld's model of the chip, version {basis['model']}, not a chip.",
        "- The plainer kernels are written to be slow. They are like first kernels of people, but no person wrote them.",
        "- A formula is a random sequence of steps. It need not make sense as a part of a model.",
        (
            f"- Bytes are the same for the same seed ({order.seed}) and version (acceld {basis['acceld']}, numpy {basis['numpy']}), "
            "unless a deadline passed on a busy machine: that kernel counts above as `timeout`."
        ),
        "- Licence: references are drawn and kernels are written by acceld; nothing is from elsewhere. Apache-2.0, as acceld.",
        "",
    ]
    return "\n".join(lines), dict(failed)
