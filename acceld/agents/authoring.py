"""Make a workload folder from an agent's reference. Everything that is wrong is reported at once, before the reference
runs.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld import drafts
from acceld.agents.places import Places
from acceld.drafts import DraftArgument
from acceld.errors import AcceldError, UsageError, nearest_of
from acceld.evaluate import policy
from acceld.given_arguments import declared, in_order
from acceld.parsing import parse
from acceld.workloads.records import Precision

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Made:
    """A new workload folder, and what the agent must know besides the workload's facts."""

    folder: Path
    told: dict[str, Any]


def made(places: Places, folder: str, reference: str, arguments: Sequence[str], precision: str) -> Made:
    """Write the folder of a workload.

    Tracing the reference runs its code with the user's rights. So the reference must first pass the policy for numpy
    sources.

    Raise UsageError, with every fault numbered, if an argument is wrong or the reference does not run. Nothing is
    written then.
    """
    wrong: list[str] = []
    path = None
    try:
        path = places.new_folder(folder)
        if not _NAME.fullmatch(path.name):
            wrong.append(f"folder: {path.name!r} is no name; use letters, digits, '_', '-' and '.'")
    except UsageError as error:
        wrong.append(f"folder: {error.message}. {error.hint}")
    given = list(_arguments(arguments, wrong))
    parameters = _parameters(reference, wrong)
    if parameters is not None and len(given) == len(arguments):
        try:
            given = in_order(given, parameters, "forward", draws=False)
        except UsageError as error:
            wrong.append(f"arguments: {error.message}")  # the hints name options of the command line
    if precision and precision not in list(Precision):
        wrong.append(f"precision: {precision!r} is unknown. {nearest_of(precision, list(Precision))}")
    if wrong or path is None:
        raise UsageError(
            f"{len(wrong)} thing{'s are' if len(wrong) > 1 else ' is'} wrong, nothing was written:\n"
            + "\n".join(f"{number}. {one}" for number, one in enumerate(wrong, 1)),
            hint='For example reference="import numpy as np\\ndef forward(x, eps):\\n    return x / np.sqrt(eps)", '
            'arguments=["x=128x512:float32", "eps=1e-6"]',
        )
    with tempfile.TemporaryDirectory(prefix="acceld-") as scratch:
        file = Path(scratch) / "reference.py"
        file.write_text(reference, encoding="utf-8")
        try:
            facts = drafts.reference_facts(file, given)
            lowered = drafts.write_reference_folder(
                file,
                facts,
                given,
                path,
                name=path.name,
                precision=Precision(precision or Precision.ANY_WITHIN_TOLERANCE),
            )
        except AcceldError as error:
            raise UsageError(error.message.replace(str(file), "the reference"), hint=error.hint) from error
    told: dict[str, Any] = {}
    if facts.narrow:
        told["note"] = (
            f"{', '.join(facts.narrow)}: the reference rounds to float32 whatever it is given; leave out such casts, so that "
            "acceld can compute it in float64"
        )
    if lowered.refused:
        told["no_kernel_for"] = dict(lowered.refused)
    if not lowered.work:
        told["work_note"] = (
            "only the bytes are known: add operations to [work] in workload.toml for a floor that counts them"
        )
    return Made(path, told)


def _arguments(texts: Sequence[str], wrong: list[str]) -> Iterator[DraftArgument]:
    if not texts:
        wrong.append(
            'arguments: none is given; one for each parameter of forward, such as "x=128x512:float32" or "eps=1e-6"'
        )
    for place, text in enumerate(texts):
        try:
            yield drafts.parse_argument(text, place) if ":" in text else drafts.parse_scalar(text)
        except UsageError as error:
            why = error.message if ":" in text else f"{text!r} is neither an array, NAME=SHAPE:DTYPE, nor NAME=NUMBER"
            wrong.append(f"arguments[{place}]: {why}. {error.hint}")


def _parameters(text: str, wrong: list[str]) -> Mapping[str, ast.expr | None] | None:
    """Return the parameters of ``forward`` with their defaults. If the text can not be used, add the reason to ``wrong``
    and return None.
    """
    broken = policy.check(text, "reference.py", library=policy.NUMPY_REACH)
    if broken is not None:
        where = f"line {broken.line}: " if broken.line else ""
        wrong.append(f"reference: {where}{broken.message}. {broken.hint}".rstrip())
        if broken.rule in ("syntax", "source_size"):
            return None
    found = [
        node
        for node in parse(text, "reference.py").body
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    if not found:
        wrong.append(
            "reference: there is no function forward(...) at its top level; it takes arrays and numbers, and returns arrays"
        )
        return None
    return dict(declared(found[-1].args))
