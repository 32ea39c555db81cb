"""``acceld workloads``: list workloads, or show one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from acceld import config, figures, roofline
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_pairs, print_table
from acceld.home import Home, find_home
from acceld.targets import TARGETS
from acceld.workloads import Workload, every_shape, find_workloads, workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", nargs="?", help="show this workload")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the list of workloads, or one workload, and return the exit code."""
    extra = [Path(folder) for folder in config.load().config.paths.workloads]
    if arguments.name:
        one = workload(arguments.name, extra)
        return _show(one, _admission(one, arguments.name, find_home(arguments.home)), as_json=arguments.json)
    found = find_workloads(extra)
    if arguments.json:
        print_json({"workloads": [_record(one) for one in found.values()]})
        return 0
    rows = [
        (
            one.name,
            one.family,
            one.dtype,
            ", ".join(sorted(one.baselines)),
            *_least(one),
            one.description,
        )
        for one in found.values()
    ]
    print_table(rows, ("workload", "family", "dtype", "baselines", "chip", "roofline", "what"), right=frozenset({5}))
    return 0


def _least(one: Workload) -> tuple[str, str]:
    """Return the first chip that the workload's baselines are for, and the roofline time on that chip."""
    chips = [chip for target in TARGETS.values() for api in one.baselines for chip in target.chips.get(api, ())]
    chip = next(iter(chips), "trn1")
    return chip, figures.duration(roofline.roofline_us(one, chip))


def _record(one: Workload) -> dict[str, Any]:
    return {
        "name": one.name,
        "family": one.family,
        "description": one.description,
        "folder": str(one.folder),
        "values": dict(one.values),
        "arguments": [
            {"name": a.name, "value": a.value}
            if a.is_scalar
            else {"name": a.name, "shape": a.shape, "dtype": a.dtype, "kernel_shape": a.kernel_shape}
            for a in one.arguments
        ],
        "outputs": [{"name": o.name, "shape": o.shape, "dtype": o.dtype} for o in one.outputs],
        "tolerance": one.tolerance,
        "precision": str(one.precision),
        "baselines": {api: str(path) for api, path in one.baselines.items()},
        "work": None
        if one.work is None
        else {
            "vector_flops": one.work.vector_flops,
            "matmul_flops": one.work.matmul_flops,
            "hbm_bytes": one.work.hbm_bytes,
        },
        "roofline_us": {chip: roofline.roofline_us(one, chip) for chip in ("trn1", "trn2", "trn3")},
        "anchors": [{"what": a.what, "latency_us": a.latency_us, "chip": a.chip, "sdk": a.sdk} for a in one.anchors],
        "tags": sorted(one.tags),
        "shapes": [{"shape": s.text, "weight": s.weight} for s, _ in every_shape(one)] if one.shapes else [],
    }


def _admission(one: Workload, called: str, home: Home) -> str:
    """Return in words whether the reference of a workload was checked (its *admission*), and with which result.

    ``called`` is the name or the folder by which the person named the workload.
    """
    from acceld.evaluate.correctness.admission import Admissions

    found = Admissions(home.path / "floors").known(one)
    return found.text if found else f"not tried yet: acceld doctor workloads --admit {called}"


def _show(one: Workload, admission: str, *, as_json: bool) -> int:
    if as_json:
        print_json({**_record(one), "admission": admission})
        return 0
    arguments = [
        f"{a.name} = {a.value}"
        if a.is_scalar
        else f"{a.name}  {a.dtype}[{', '.join(map(str, a.shape))}]"
        + (f", kernel layout [{', '.join(map(str, a.kernel_shape))}]" if a.kernel_shape != a.shape else "")
        for a in one.arguments
    ]
    pairs = [
        ("workload", f"{one.name}: {one.description}"),
        ("folder", str(one.folder)),
        ("arguments", "\n".join(arguments)),
        *([("shapes", "\n".join(f"{s.text}, weight {s.weight:g}" for s, _ in every_shape(one)))] if one.shapes else []),
        ("outputs", "\n".join(f"{o.name}  {o.dtype}[{', '.join(map(str, o.shape))}]" for o in one.outputs)),
        ("tolerance", f"{one.tolerance:g} relative L2 (published), {one.precision}"),
        ("admission", admission),
        ("baselines", "\n".join(f"{api}: {path}" for api, path in one.baselines.items())),
    ]
    if one.work is not None:
        pairs.append(
            (
                "work",
                (
                    f"{one.work.matmul_flops / 1e9:.1f} GFLOP matmul, {one.work.vector_flops / 1e9:.2f} GFLOP vector, "
                    f"{one.work.hbm_bytes / 1e6:.1f} MB"
                ),
            )
        )
    for chip in ("trn1", "trn2", "trn3"):
        peak, attainable = roofline.roofline_us(one, chip), roofline.attainable_us(one, chip)
        pairs.append(
            (
                f"least time {chip}",
                f"{figures.duration(peak)} paper roofline, {figures.duration(attainable)} attainable",
            )
        )
    if one.anchors:
        pairs.append(
            ("anchors", "\n".join(f"{figures.duration(a.latency_us)} {a.chip}, {a.what}" for a in one.anchors))
        )
    print_pairs(pairs)
    return 0
