"""Divide a long reduction among several programs: split-K for matrix products, split-KV for attention."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.devices.cuda.rules.carried import Carried, carried
from acceld.devices.cuda.rules.reading import FunctionNode, Launch, TritonModule, called, constants
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_SPLITS = (4, 8, 2, 16, 32)


@dataclass(frozen=True)
class _Split:
    launch: Launch
    loop: ast.For
    carried: Carried


class SplitReduction(Rule):
    """Split a kernel into two kernels. Each program of the first kernel reduces one part; the second kernel combines
    the partial results.
    """

    name = "split_reduction"
    reason = (
        "Few programs with long loops leave multiprocessors idle: a decode step of 64 sequences fills half of 132. "
        "Parts of the loop run side by side; joining them costs one pass over the partial results."
    )
    source = "Flash-decoding (split-KV) and stream-K: reductions over parts with a second pass"
    apis = frozenset({"triton"})
    change_class = "loop_order"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each kernel with one loop that carries only sums or an online softmax."""
        for name, function in kernel.kernels.items():
            split = _split(kernel, name, function)
            if split is None:
                continue
            attention = bool(split.carried.peak)
            shared = "a running maximum with sums scaled by it" if attention else "only added to"
            yield self.found(
                split.loop.lineno,
                partial(_in_parts, kernel, function, split),
                *(Variant(f"{count} parts", {"parts": count}) for count in _SPLITS),
                precondition=f"the values that the loop carries are {shared}, so parts may be reduced alone and joined",
                plan=f"The loop in line {split.loop.lineno} runs in one program. Let several programs of {name} reduce a "
                "part each into scratch memory, and a second kernel join the parts.",
                benefit=0.75 if attention else 0.25,
                gain_percent=(-20.0, 80.0) if attention else (-30.0, 30.0),
                key=name,
            )


def _in_parts(kernel: TritonModule, function: FunctionNode, split: _Split, variant: Variant) -> str:
    """Return the source with two kernels and two launches in place of one."""
    edits = Edits(kernel.source)
    decorators = "".join(f"@{kernel.text(one)}\n" for one in function.decorator_list)
    parts, join = _parts(kernel, function, split), _join(kernel, function, split)
    edits.replace(*kernel.whole_span(function), f"{decorators}{parts}\n\n{decorators}{join}")
    edits.replace(*kernel.lines_span([split.launch.statement]), _launches(kernel, split, variant))
    return edits.apply()


def _split(kernel: TritonModule, name: str, function: FunctionNode) -> _Split | None:
    launch = kernel.single_launch(name)
    if launch is None or not 1 <= len(launch.grid) <= 2 or not launch.call.args or not launch.call.keywords:
        return None
    loops = [one for one in function.body if isinstance(one, ast.For) and _in_steps(function, one)]
    if len(loops) != 1 or "SPLITS" in kernel.source or not isinstance(launch.call.args[0], ast.Name):
        return None
    found = carried(kernel, function, loops[0])
    if found is None or any(launch.keyword(extent) is None for shape in found.shapes.values() for extent in shape):
        return None
    return _Split(launch, loops[0], found)


def _in_steps(function: FunctionNode, loop: ast.For) -> bool:
    """Tell whether a loop is ``for ... in range(low, high, STEP)`` with a constant step."""
    header = loop.iter
    if not (isinstance(header, ast.Call) and called(header) == "range" and len(header.args) == 3):
        return False
    step = header.args[2]
    return isinstance(step, ast.Name) and step.id in constants(function)


def _signature(kernel: TritonModule, function: FunctionNode, suffix: str) -> str:
    arguments = function.args.args
    text = kernel.source[kernel.span(arguments[0])[0] : kernel.span(arguments[-1])[1]]
    return f"def {function.name}_{suffix}(\n    partial,\n    {text},\n    SPLITS: tl.constexpr,\n):\n"


def _slot(found: Carried) -> str:
    """Return the number of elements in the partial results of one program, as source text."""
    return " + ".join(" * ".join(found.shapes[name]) for name in found.names)


def _place(found: Carried, name: str) -> str:
    """Return, as source, the offsets of the carried value ``name`` within the partial results of a program."""
    before = [" * ".join(found.shapes[other]) for other in found.names[: found.names.index(name)]]
    shape = found.shapes[name]
    if len(shape) == 1:
        inner = f"tl.arange(0, {shape[0]})"
    else:
        inner = f"tl.arange(0, {shape[0]})[:, None] * {shape[1]} + tl.arange(0, {shape[1]})[None, :]"
    return " + ".join([*before, inner])


def _number(launch: Launch) -> str:
    if len(launch.grid) == 1:
        return "tl.program_id(0)"
    return "(tl.program_id(0) + tl.program_id(1) * tl.num_programs(0))"


def _parts(kernel: TritonModule, function: FunctionNode, split: _Split) -> str:
    """Return the source of the kernel that runs one part of the loop and stores the loop-carried values."""
    place = function.body.index(split.loop)
    header = split.loop.iter
    assert isinstance(header, ast.Call)
    low, high, step = (kernel.text(one) for one in header.args)
    before = kernel.block(function.body[:place])
    if split.carried.peak:
        # A part may contain no key of a row at all. A finite start then keeps the weights from becoming NaN.
        start = kernel.text(split.carried.start)
        before = before.replace(start, start.replace('float("-inf")', "-1.0e30"))
    lines = [
        f"split = tl.program_id({len(split.launch.grid)})",
        f"span = tl.cdiv(tl.cdiv({high} - ({low}), SPLITS), {step}) * {step}",
        f"for {kernel.text(split.loop.target)} in range(",
        f"    {low} + split * span, tl.minimum({high}, {low} + (split + 1) * span), {step}",
        "):",
    ]
    stores = [f"mine = partial + ({_number(split.launch)}.to(tl.int64) * SPLITS + split) * ({_slot(split.carried)})"]
    stores += [f"tl.store(mine + {_place(split.carried, name)}, {name})" for name in split.carried.names]
    return (
        _signature(kernel, function, "parts")
        + before
        + "".join(f"    {line}\n" for line in lines)
        + kernel.block(split.loop.body)
        + "".join(f"    {line}\n" for line in stores)
    )


def _join(kernel: TritonModule, function: FunctionNode, split: _Split) -> str:
    """Return the source of the kernel that combines the partial results in a loop, and then does what followed the
    original loop.
    """
    place, found = function.body.index(split.loop), split.carried
    lines = [
        "for split in range(SPLITS):",
        f"    mine = partial + ({_number(split.launch)}.to(tl.int64) * SPLITS + split) * ({_slot(found)})",
    ]
    if not found.peak:
        lines += [f"    {name} += tl.load(mine + {_place(found, name)})" for name in found.names]
    else:
        lines += [
            f"    part_peak = tl.load(mine + {_place(found, found.peak)})",
            f"    joint_peak = tl.maximum({found.peak}, part_peak)",
            f"    old_share = {found.power}({found.peak} - joint_peak)",
            f"    new_share = {found.power}(part_peak - joint_peak)",
        ]
        for name in found.names:
            if name != found.peak:
                axes = "[:, None]" if len(found.shapes[name]) == 2 else ""
                load = f"tl.load(mine + {_place(found, name)})"
                lines.append(f"    {name} = {name} * old_share{axes} + {load} * new_share{axes}")
        lines.append(f"    {found.peak} = joint_peak")
    return (
        _signature(kernel, function, "join")
        + kernel.block(function.body[:place])
        + "".join(f"    {line}\n" for line in lines)
        + kernel.block(function.body[place + 1 :])
    )


def _launches(kernel: TritonModule, split: _Split, variant: Variant) -> str:
    launch, count = split.launch, variant.parameters["parts"]
    indent = kernel.indent(launch.statement)
    grid = [kernel.text(one) for one in launch.grid]
    arguments = [*launch.call.args, *launch.call.keywords]
    text = kernel.source[kernel.span(arguments[0])[0] : kernel.span(arguments[-1])[1]]
    given = {one.arg: kernel.text(one.value) for one in launch.call.keywords}
    slot = " + ".join(
        " * ".join(f"({given[extent]})" for extent in split.carried.shapes[name]) for name in split.carried.names
    )
    programs = " * ".join(f"({one})" for one in grid)
    scratch = kernel.fresh("partial")
    device = f"{kernel.text(launch.call.args[0])}.device"
    return "".join(
        f"{indent}{line}\n"
        for line in (
            f"{scratch} = torch.empty({programs} * {count} * ({slot}), dtype=torch.float32, device={device})",
            f"{launch.kernel}_parts[({', '.join(grid)}, {count})]({scratch}, {text}, SPLITS={count})",
            f"{launch.kernel}_join[({', '.join(grid)},)]({scratch}, {text}, SPLITS={count})",
        )
    )


RULE = SplitReduction()
