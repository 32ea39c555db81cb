"""Compare the places, refusals and new sources of every rewrite rule with a record of them, or write that record again.

    python scripts/rule_goldens.py [--kernels FOLDER] [--only NAME ...] [--write] [--show FOLDER]

The script reads the NKI kernels of the workloads, those of tests/adversarial, and small ones of the rules' own tests.
For each kernel and rule, the record in tests/goldens/rules.json has the number of places and of refusals, and a hash
of all that the rule says and writes there. ``--kernels`` reads every kernel below a folder instead, such as a checkout
of a public repository. Files of others are not kept here, so the record of public kernels,
tests/goldens/rules_public.json, has hashes alone. It was made from aws-neuron's nki-samples at 6905a68a, nki-library
at d2ad3a57 and nki-moe at f7424185, awslabs' nki-autotune at d57bcc3b, ucb-bar's autocomp at dd26a565 and
KevGomes1403's nki-moe-megakernel at 621932e8. The record of public kernels is not made again together with rules.json.
If a rule was changed after it was made (``git log`` has the dates), a difference may come from that earlier change.
``--write`` lists the differences from the record that it replaces.

``--show`` writes what is hashed into a folder, so that two versions can be compared by ``diff -r``. The exit code is 1 if
something differs.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the scripts' own modules

from acceld.errors import RuleRefused
from acceld.evaluate.selftest.attacks import FOLDER, load_attacks
from acceld.kernel_files import api_of_text
from acceld.nki.source.launches import Dtypes, Launch, Shapes
from acceld.parsing import parse
from acceld.proposers.rules import all_rules
from acceld.proposers.rules.proposer import places, readings
from acceld.proposers.rules.records import Place
from acceld.workloads.discovery import find_workloads
from acceld.workloads.loading import load_workload
from scripts import goldens
from scripts.goldens import Entries
from tests.acceld.proposers.rules import test_every_rewrite

NAME, PUBLIC = "rules", "rules_public"
"""The two files of the record."""
_APIS = ("nki_legacy", "nki")
_MAX_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Read:
    """Text of a kernel, with what is known of its arguments."""

    name: str
    text: str
    api: str
    shapes: Shapes = ()
    dtypes: Dtypes = ()
    entry: str = ""


def kernels() -> Iterator[Read]:
    """Yield the project's own kernels: those of workloads, attacks, honest kernels, and of the rules' tests."""
    for name, workload in sorted(find_workloads().items()):
        for path in sorted(workload.folder.glob("kernel*.py")):
            text = path.read_text("utf-8")
            if (api := api_of_text(text)) in _APIS:
                known = workload.kernel_facts, workload.kernel_dtypes, workload.entry or ""
                yield Read(f"workloads/{name}/{path.name}", text, api, *known)
    for attack in load_attacks(ROOT / FOLDER)[0]:
        if attack.kernel.api in _APIS:
            workload = load_workload(attack.workload_folder)
            known = workload.kernel_facts, workload.kernel_dtypes, attack.kernel.entry
            yield Read(f"adversarial/{attack.id}", attack.kernel.text, attack.kernel.api, *known)
    for name, (text, shapes) in test_every_rewrite.KERNELS.items():
        yield Read(f"tests/{name}", text, api_of_text(text) or "nki_legacy", shapes, ("float32",) * len(shapes))


def public_kernels(folder: Path) -> Iterator[Read]:
    """Yield each compiled function in the NKI files below ``folder``. The yielded name is a hash of the function's name
    and the file's text.
    """
    seen = set[str]()
    for path in sorted(folder.rglob("*.py")):
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            continue
        text = path.read_text("utf-8", errors="replace")
        if text in seen or "jit" not in text or (api := api_of_text(text)) not in _APIS:
            continue
        seen.add(text)
        for entry in _jitted(text):
            yield Read(_hash(f"{entry} {text}"), text, api, entry=entry)


def _jitted(text: str) -> list[str]:
    try:
        body = parse(text).body
    except (SyntaxError, ValueError):
        return []
    functions = [one for one in body if isinstance(one, ast.FunctionDef)]
    return [one.name for one in functions if any("jit" in ast.unparse(decorator) for decorator in one.decorator_list)]


def found(one: Read) -> dict[str, list[Any]]:
    """Return, by rule, what the rule says at each place that it finds and the source that it would write there, in order.

    Rules that find no place are left out. A kernel that can not be read has the single entry ``unreadable``.
    """
    try:
        kernels = readings(one.text, Launch(one.api, one.shapes, one.dtypes, one.entry))
    except RuleRefused as refusal:
        return {"unreadable": [refusal.message.partition(":")[0]]}
    rules = [rule for rule in all_rules() if one.api in rule.apis]
    listed = {rule.name: [_finding(one) for one in places(rule, kernels, None)] for rule in rules}
    return {name: said for name, said in listed.items() if said}


def _finding(one: Place) -> dict[str, Any]:
    """Return what a rule says at a place: the new source of each variant, or the reason why it refuses."""
    site = one.site
    says = {"line": site.line, "key": site.key, "because": site.precondition or site.obstacle, "plan": site.plan}
    if one.rewrite is None:
        return {"refused": True} | says
    made: dict[str, str] = {}
    for variant in site.variants:
        try:
            made[variant.name] = one.rewrite(variant)
        except RuleRefused as refusal:
            made[variant.name] = f"REFUSED {refusal.message}"
    return says | {"benefit": site.benefit, "gain_percent": list(site.gain_percent), "made": made}


def summary(places: Sequence[Any]) -> str:
    """Return the numbers of places and of refusals, and a hash of all that is said and written at them."""
    refused = sum(isinstance(one, dict) and "refused" in one for one in places)
    return f"{len(places) - refused} places, {refused} refusals, {_hash(json.dumps(places, sort_keys=True))}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def entries(listed: Iterator[Read] | Sequence[Read], show: Path | None = None) -> Entries:
    """Return a summary of what each rule does with each kernel, as ``{kernel: {rule: summary}}``.

    A summary has the numbers of places and refusals, and a hash of what the rule says and writes. If ``show`` is a folder,
    the hashed texts are written into it too.
    """
    made: Entries = {}
    for one in listed:
        places = found(one)
        made[one.name] = {rule: summary(each) for rule, each in places.items()}
        if show is not None:
            _shown(one.name, places, show)
    return made


def _shown(name: str, places: Mapping[str, Sequence[Any]], folder: Path) -> None:
    for rule, each in places.items():
        text = "\n".join(json.dumps(one, indent=1, sort_keys=True).replace("\\n", "\n") for one in each)
        path = folder / f"{name} {rule}.txt".replace("/", "_")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the differences from the record, or write it. Return 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, metavar="FOLDER", help="read the kernels below this folder instead")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="kernels whose name contains one of these words")
    parser.add_argument("--write", action="store_true", help="make the record anew instead of comparing with it")
    parser.add_argument("--show", type=Path, metavar="FOLDER", help="write what is hashed into this folder")
    arguments = parser.parse_args(argv)
    name = NAME if arguments.kernels is None else PUBLIC
    listed = list(kernels() if arguments.kernels is None else public_kernels(arguments.kernels))
    if arguments.only:
        listed = [one for one in listed if any(word in one.name for word in arguments.only)]
    made = entries(listed, arguments.show)
    known = goldens.record(name)
    compared = {one: value for one, value in known.items() if one in made} if arguments.only else known
    lines = goldens.differences(compared, made)
    if arguments.write:
        goldens.write(name, known | made if arguments.only else made)
    what = f"wrote {len(made)}" if arguments.write else f"{len(made)} of {len(known)}"
    print(f"{name}: {what} entries, {len(lines)} differences", *lines, sep="\n  ")
    return 1 if lines and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
