"""Measure the simulator's coverage: the legality corpus, and kernels of nki-samples."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.evidence.simbench import samples
from scripts.evidence.simbench.tables import Table
from tests.acceld.nki.corpus import outcomes


def corpus_table() -> Table:
    """Return a table of the kernels of the tests that a verifier has to accept or to refuse: how many are wrongly
    refused, and how many are refused with the right rule and line.
    """
    table = []
    for api in ("nki_legacy", "nki"):
        found = list(outcomes(api))
        legal, refused = [o for o in found if o.legal], [o for o in found if not o.legal]
        table.append(
            {
                "API": api,
                "legal kernels": len(legal),
                "wrongly refused": sum(not o.right for o in legal),
                "kernels to refuse": len(refused),
                "refused with the right rule and line": sum(o.right for o in refused),
                "rules": len({o.pair.rule for o in refused}),
            }
        )
    return table


def sample_table() -> Table:
    """Return the table of nki-samples' kernels against acceld's references, for each checkout that the
    environment names.
    """
    table = []
    for variable, (name, cases) in samples.CHECKOUTS.items():
        folder = os.environ.get(variable)
        if not folder or not Path(folder).is_dir():
            continue
        found = samples.results(Path(folder), cases)
        other = [v for v in found if v.state != "right"]
        table.append(
            {
                "nki-samples": name,
                "kernels tried": len(found),
                "trace": sum(v.state not in ("does not trace", "refused") for v in found),
                "agree with our reference": len(found) - len(other),
                "others": "; ".join(f"{v.case.entry}: {v.state} {v.detail}" for v in other) or "none",
                "not tried": sum(len(names.split(", ")) for names in samples.SKIPPED[name]),
            }
        )
    return table
