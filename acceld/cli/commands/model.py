"""``acceld model``: divide a transformer's step into regions, show where its time must go, and write a suite of them."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_table, say, write_file
from acceld.errors import UsageError

if TYPE_CHECKING:
    from acceld.drafts import DraftArgument
    from acceld.lowering.blocks import Region
    from acceld.lowering.graph import Graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("config", metavar="config.json", help="the model's config.json, as Hugging Face has it")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel parts, of which one is shown")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once (default 1)")
    parser.add_argument("--seq", type=int, default=2048, metavar="N", help="tokens of a sequence (default 2048)")
    parser.add_argument(
        "--decode", action="store_true", help="one token of each sequence, after --seq tokens in its cache"
    )
    parser.add_argument("--chip", choices=("trn1", "trn2"), default="trn2", help="the chip (default trn2)")
    parser.add_argument(
        "--least-share",
        type=float,
        default=2.0,
        metavar="PERCENT",
        help="regions below this share of the step's least time get no workload (default 2)",
    )
    parser.add_argument("-o", "--output", metavar="DIR", help="write a workload for each region, and DIR/suite.toml")
    add_json(parser)


@dataclass(frozen=True, slots=True)
class _Row:
    """A region with the least time of one run of it."""

    region: Region
    graph: Graph
    times_us: dict[str, float]
    """Least time by what bounds it: bytes, products, elements."""

    @property
    def bound(self) -> str:
        """Return what takes longest."""
        return max(self.times_us, key=lambda what: self.times_us[what])

    @property
    def step_us(self) -> float:
        """Return the least time of all runs of a step."""
        return self.region.count * self.times_us[self.bound]


def run(arguments: argparse.Namespace) -> int:
    """Print the regions; write the suite if asked."""
    from acceld.lowering.blocks import Step, read_config, regions_of

    for name in ("tp", "batch", "seq"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name} must be 1 or more")
    if arguments.output and Path(arguments.output).exists():
        raise UsageError(f"{arguments.output} exists", hint="choose another folder with -o")
    shape = read_config(Path(arguments.config), arguments.tp)
    step = Step(arguments.batch, arguments.seq, arguments.decode, arguments.tp)
    rows = [_timed(region, shape.dtype, arguments.chip) for region in regions_of(shape, step)]
    total = sum(row.step_us for row in rows)
    if arguments.output:
        kept = [row for row in rows if 100 * row.step_us / total >= arguments.least_share]
        if not kept:
            raise UsageError(f"no region has {arguments.least_share:g} % of the step", hint="lower --least-share")
        _write(Path(arguments.output), kept, total)
    if arguments.json:
        print_json({"least_us": total, "layers": shape.layers, "regions": [_record(row, total) for row in rows]})
        return 0
    table = [
        (
            row.region.name,
            str(row.region.count),
            " ".join("x".join(map(str, one.shape)) for one in row.region.operands),
            figures.duration(row.times_us[row.bound]),
            f"{100 * row.step_us / total:.1f} %",
            row.bound,
        )
        for row in rows
    ]
    print_table(
        table, ("region", "runs", "arguments", "least time", "of the step", "bound"), right=frozenset({1, 3, 4})
    )
    what = f"one token of {step.batch} sequences" if step.decode else f"{step.tokens} tokens"
    print(
        f"a step ({what}) takes at least {figures.duration(total)} on one core of {arguments.chip}, without collectives"
    )
    if arguments.output:
        say(f"next: acceld suite run {arguments.output}/suite.toml")
    return 0


def _timed(region: Region, dtype: str, chip: str) -> _Row:
    """Trace a region, which runs text that was written here and no one else's."""
    from acceld.lowering.kernels import work
    from acceld.lowering.numpy_reference import traced
    from acceld.roofline import ATTAINABLE_PEAKS
    from acceld.workloads.records import DTYPE_BYTES

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "reference.py"
        path.write_text(region.text, encoding="utf-8")
        space: dict[str, object] = {}
        exec(compile(region.text, str(path), "exec"), space)  # noqa: S102  text of acceld.lowering.blocks
        forward = space["forward"]
        assert callable(forward)
        graph = traced(forward, path, [(one.name, (one.shape, one.dtype)) for one in region.operands])
    products, others, moved = work(graph)
    if (ids := next((one for one in region.operands if one.name == "ids"), None)) is not None:
        # Of the tokens, an expert reads the rows that chose it.
        (x,) = (one for one in region.operands if one.name == "x")
        moved -= DTYPE_BYTES[x.dtype] * (x.shape[0] - min(x.shape[0], ids.shape[0])) * x.shape[1]
    peaks = ATTAINABLE_PEAKS[chip]
    times = {
        "bytes": 1e6 * moved / peaks.hbm_bytes_per_s,
        "products": 1e6 * products / peaks.matmul_flops_per_s[dtype],
        "elements": 1e6 * others / peaks.vector_flops_per_s,
    }
    return _Row(region, graph, times)


def _record(row: _Row, total: float) -> dict[str, object]:
    return {
        "region": row.region.name,
        "count": row.region.count,
        "arguments": {one.name: [*one.shape, one.dtype] for one in row.region.operands},
        "least_us": row.times_us[row.bound],
        "share": row.step_us / total,
        "bound": row.bound,
    }


def _write(folder: Path, rows: Sequence[_Row], total: float) -> None:
    """Write a workload folder for each row, and the suite."""
    from acceld.cli.reference import write_lowered_workload
    from acceld.drafts import DraftArgument, DraftOutput, ReferenceFacts

    entries = [f'name = "{folder.name}"']
    for row in rows:
        region = row.region
        given: list[DraftArgument] = [DraftArgument(one.name, one.shape, one.dtype) for one in region.operands]
        outputs = [DraftOutput(f"out{i}", view.shape, view.dtype) for i, view in enumerate(row.graph.outputs)]
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "reference.py"
            path.write_text(region.text, encoding="utf-8")
            write_lowered_workload(
                path, ReferenceFacts(tuple(given), tuple(outputs)), folder / region.name, name=region.name
            )
        entries += ["", "[[kernel]]", f'workload = "{region.name}"', f"share = {row.step_us / total:.4g}"]
        entries += [f"runs = {region.count}"]
    write_file(folder / "suite.toml", "\n".join(entries) + "\n")
    say(f"wrote {len(rows)} workloads and suite.toml to {folder}")
