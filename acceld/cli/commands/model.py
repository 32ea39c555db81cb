"""``acceld model``: divide a transformer's step, or a PyTorch module, into regions.

It prints the least time of each region, and can write the regions as workloads with a suite.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.cli.modules import add_module, module_request, refuse_module
from acceld.cli.output import print_json, print_table, say, write_file
from acceld.errors import UsageError

if TYPE_CHECKING:
    from acceld.drafts import DraftArgument, DraftOutput
    from acceld.lowering.blocks import Region


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "spec",
        metavar="config.json|PKG.MOD:CLASS",
        help="a config.json of Hugging Face, or a PyTorch module: PKG.MOD:CLASS or FILE.py:CLASS",
    )
    add_module(parser)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="for a module: type of its weights")
    parser.add_argument(
        "--tp", type=int, metavar="N", help="tensor-parallel parts; the workloads are those of one part (default 1)"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="sequences at once (default 1)")
    parser.add_argument("--seq", type=int, metavar="N", help="tokens of a sequence (default 2048)")
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
    """A region of the model, with the least time that one execution of it needs."""

    name: str
    count: int
    arguments: tuple[DraftArgument, ...]
    outputs: tuple[DraftOutput, ...]
    text: str
    """Text of the region's numpy reference; empty if the region has none."""
    why: str
    """Reason why the region has no reference; empty if it has one."""
    times_us: dict[str, float]
    """Least times in microseconds of one execution by kind of work: ``bytes`` (moved data), ``products`` (matrix
    products) and ``elements`` (all other operations).
    """

    @property
    def bound(self) -> str:
        """Return the kind of work that takes the region longest: a key of ``times_us``."""
        return max(self.times_us, key=lambda what: self.times_us[what])

    @property
    def step_us(self) -> float:
        """Return the least time in microseconds of all executions of the region in one step."""
        return self.count * self.times_us[self.bound]


def run(arguments: argparse.Namespace) -> int:
    """Print the regions, write the suite if ``-o`` is given, and return the exit code."""
    if arguments.output and Path(arguments.output).exists():
        raise UsageError(f"{arguments.output} exists", hint="choose another folder with -o")
    config = ":" not in arguments.spec or Path(arguments.spec).is_file()
    rows, what, facts = _config_rows(arguments) if config else _module_rows(arguments)
    total = sum(row.step_us for row in rows)
    if arguments.output:
        kept = [row for row in rows if 100 * row.step_us / total >= arguments.least_share and row.text]
        if not kept:
            raise UsageError(
                f"no region takes {arguments.least_share:g} % of the step's least time",
                hint="give a lower --least-share",
            )
        _write(Path(arguments.output), kept, total)
        if not config:
            _write_patch(Path(arguments.output), kept, arguments.spec)
    if arguments.json:
        print_json({"least_us": total} | facts | {"regions": [_record(row, total) for row in rows]})
        return 0
    table = [
        (
            row.name,
            str(row.count),
            " ".join("x".join(map(str, one.shape)) for one in row.arguments),
            figures.duration(row.times_us[row.bound]),
            f"{100 * row.step_us / total:.1f} %",
            row.bound,
        )
        for row in rows
    ]
    print_table(
        table, ("region", "runs", "arguments", "least time", "of the step", "bound"), right=frozenset({1, 3, 4})
    )
    print(f"{what} takes at least {figures.duration(total)} on one core of {arguments.chip}, without collectives")
    for row in rows:
        if row.why:
            say(f"{row.name} has no reference, so its least time is that of its bytes: {row.why}")
    if arguments.output:
        say(f"next: acceld suite run {arguments.output}/suite.toml")
    return 0


def _config_rows(arguments: argparse.Namespace) -> tuple[list[_Row], str, dict[str, int]]:
    """Return the regions of the step that a config.json describes, words for the step, and counts about the
    model.
    """
    from acceld.lowering.blocks import StepSize, regions_of
    from acceld.lowering.configs import read_config

    refuse_module(arguments, f"{arguments.spec} is a config.json")
    given = {"tp": 1, "batch": 1, "seq": 2048}
    for name, default in given.items():
        value = getattr(arguments, name)
        given[name] = default if value is None else value
        if given[name] < 1:
            raise UsageError(f"--{name} must be 1 or more, not {given[name]}")
    shape = read_config(Path(arguments.spec), given["tp"])
    step = StepSize(given["batch"], given["seq"], arguments.decode)
    for left in shape.unread:
        say(f"{arguments.spec}: {left}")
    rows = [_timed(region, shape.dtype, arguments.chip) for region in regions_of(shape, step)]
    what = f"one token of {figures.many(step.batch, 'sequence')}" if step.decode else f"{step.tokens} tokens"
    return rows, f"a step ({what})", {"layers": shape.layers}


def _module_rows(arguments: argparse.Namespace) -> tuple[list[_Row], str, dict[str, int]]:
    """Return the regions of a PyTorch module's forward, a line that describes the module, and counts."""
    from acceld.drafts import DraftArgument, DraftOutput
    from acceld.lowering.aten.requests import module_regions

    unused = [f"--{name}" for name in ("tp", "batch", "seq", "decode") if getattr(arguments, name)]
    if unused:
        raise UsageError(
            f"{', '.join(unused)} works only with a config.json", hint="--arg gives the shapes of a module's arguments"
        )
    found = module_regions(module_request(arguments.spec, arguments, arguments.dtype or ""))
    rows = []
    for one in found:
        given = tuple(DraftArgument(a.name, a.shape, a.dtype, absolute=a.absolute) for a in one.arguments)
        outputs = tuple(DraftOutput(f"out{i}", shape, dtype) for i, (shape, dtype) in enumerate(one.outputs))
        times = _least(one.products, one.others, one.moved_bytes, one.dtype, arguments.chip)
        rows.append(_Row(one.name, one.count, given, outputs, one.text, one.why, times))
    return rows, "a run of it", {}


def _timed(region: Region, dtype: str, chip: str) -> _Row:
    """Return a region's row with its least times. The region's text, which acceld wrote itself, is executed to
    be traced.
    """
    from acceld.drafts import DraftArgument, DraftOutput
    from acceld.lowering.kernels import work
    from acceld.lowering.numpy_reference import traced
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
        # An expert reads only the rows of the tokens that chose it.
        (x,) = (one for one in region.operands if one.name == "x")
        moved -= DTYPE_BYTES[x.dtype] * (x.shape[0] - min(x.shape[0], ids.shape[0])) * x.shape[1]
    given = tuple(DraftArgument(one.name, one.shape, one.dtype) for one in region.operands)
    outputs = tuple(DraftOutput(f"out{i}", view.shape, view.dtype) for i, view in enumerate(graph.outputs))
    times = _least(products, others, moved, dtype, chip)
    return _Row(region.name, region.count, given, outputs, region.text, "", times)


def _least(products: int, others: int, moved: int, dtype: str, chip: str) -> dict[str, float]:
    """Return the least times in microseconds of the moved bytes, the products and the other operations of one
    execution.
    """
    from acceld.roofline import ATTAINABLE_PEAKS

    peaks = ATTAINABLE_PEAKS[chip]
    rates = peaks.matmul_flops_per_s
    return {
        "bytes": 1e6 * moved / peaks.hbm_bytes_per_s,
        "products": 1e6 * products / rates.get(dtype, rates["float32"]),
        "elements": 1e6 * others / peaks.vector_flops_per_s,
    }


def _record(row: _Row, total: float) -> dict[str, object]:
    found: dict[str, object] = {
        "region": row.name,
        "count": row.count,
        "arguments": {one.name: [*one.shape, one.dtype] for one in row.arguments},
        "least_us": row.times_us[row.bound],
        "share": row.step_us / total,
        "bound": row.bound,
    }
    return found | ({"refused": row.why} if row.why else {})


def _write(folder: Path, rows: Sequence[_Row], total: float) -> None:
    """Write a workload folder for each region, and the suite of them."""
    from acceld.cli.reference import write_lowered_workload
    from acceld.drafts import ReferenceFacts

    entries = [f'name = "{folder.name}"']
    for row in rows:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "reference.py"
            path.write_text(row.text, encoding="utf-8")
            write_lowered_workload(path, ReferenceFacts(row.arguments, row.outputs), folder / row.name, name=row.name)
        entries += ["", "[[kernel]]", f'workload = "{row.name}"', f"share = {row.step_us / total:.4g}"]
        entries += [f"runs = {row.count}"]
    write_file(folder / "suite.toml", "\n".join(entries) + "\n")
    say(f"wrote {len(rows)} workloads and suite.toml to {folder}")


def _write_patch(folder: Path, rows: Sequence[_Row], spec: str) -> None:
    """Write the Python module that puts the regions' kernels into the PyTorch model."""
    names = "".join(f'    "{row.name}",\n' for row in rows)
    write_file(
        folder / "patch.py",
        f'''"""Put the kernels of this folder into {spec}: ``model = patched(model.eval(), x)``."""

from pathlib import Path

from acceld.torch_operators import put_regions

REGIONS = [
{names}]
"""Regions to replace. Leave out those whose kernels did not win."""


def patched(model, *arguments):
    """Return the model with operators in place of its regions, for arguments of these shapes and types."""
    return put_regions(model, Path(__file__).parent, arguments, REGIONS)
''',
    )
    say(f"{folder}/patch.py puts the kernels into the model")
