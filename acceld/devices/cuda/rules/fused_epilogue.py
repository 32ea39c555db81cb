"""Fuse an element-wise kernel into the kernel whose result it reads (epilogue fusion)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from acceld.devices.cuda.rules.handover import Handover, bare, handover
from acceld.devices.cuda.rules.reading import FunctionNode, TritonModule, accesses, constants, names, parameters
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_WIDTH = 120


class FusedEpilogue(Rule):
    """Join two consecutive launches that have the same grid. A value that the earlier kernel stored to memory for the
    later one then stays in registers.
    """

    name = "fused_epilogue"
    reason = (
        "A value that one kernel stores and the next kernel loads goes through memory twice, and the second launch waits for the "
        "last program of the first. The same element in the same program can stay in a register."
    )
    source = "CUTLASS documentation, epilogues; CUDA C best practices guide, minimize global memory traffic"
    apis = frozenset({"triton"})
    change_class = "fusion"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each pair of consecutive launches whose later kernel is element-wise."""
        for first, second in pairwise(kernel.launches):
            joined = handover(kernel, first, second)
            if joined is not None:
                arrays = ", ".join(joined.arrays)
                yield self.found(
                    second.call.lineno,
                    partial(_joined, kernel, joined),
                    Variant("one kernel"),
                    precondition=f"both launches have the same grid, each program of {second.kernel} loads exactly the "
                    f"elements of {arrays} that the same program of {first.kernel} stored, and nothing else reads these arrays",
                    plan=f"{second.kernel} works element by element on the result of {first.kernel}. Compute it at the end of "
                    f"{first.kernel}: {arrays} need not be written and read, and one launch disappears.",
                    benefit=0.6,
                    gain_percent=(0.0, 40.0),
                    key=f"{first.kernel}/{second.kernel}",
                )


def _joined(kernel: TritonModule, joined: Handover, _: Variant) -> str:
    """Return the source with one function and one launch in place of two. Arrays that passed values between the two
    launches are removed.
    """
    producer, consumer = kernel.kernels[joined.first.kernel], kernel.kernels[joined.second.kernel]
    name = kernel.fresh(f"{producer.name}_{consumer.name}")
    edits = Edits(kernel.source)
    edits.replace(*kernel.whole_span(producer), _function(kernel, joined, producer, consumer, name))
    start, end = kernel.whole_span(consumer)
    rest = kernel.source[end:]
    edits.replace(start, end + len(rest) - len(rest.lstrip("\n")), "")
    for made in joined.arrays.values():
        edits.replace(*kernel.lines_span([made]), "")
    edits.replace(*kernel.lines_span([joined.first.statement]), "")
    edits.replace(*kernel.lines_span([joined.second.statement]), _launch(kernel, joined, name))
    return edits.apply()


def _function(kernel: TritonModule, joined: Handover, producer: FunctionNode, consumer: FunctionNode, name: str) -> str:
    decorators = "".join(f"@{kernel.text(one)}\n" for one in producer.decorator_list)
    plain: list[str] = []
    constant: list[str] = []
    for function, skipped, renamed in (
        (producer, set(joined.stored), {}),
        (consumer, {*joined.loaded, *joined.shared}, joined.renamed),
    ):
        fixed = set(constants(function))
        for one in function.args.args:
            if one.arg not in skipped:
                text = kernel.text(one).replace(one.arg, renamed.get(one.arg, one.arg), 1)
                (constant if one.arg in fixed else plain).append(text)
    return (
        decorators
        + _call(f"def {name}", [*plain, *constant], "", ":")
        + _producer(kernel, joined, producer)
        + _consumer(kernel, joined, consumer)
    )


def _producer(kernel: TritonModule, joined: Handover, function: FunctionNode) -> str:
    """Return the body of the earlier kernel, with its stores replaced by assignments."""
    edits = Edits(kernel.source)
    for access in accesses(function):
        parameter = next((one for one in joined.stored if one in names(access.args[0])), None)
        if parameter is not None:
            value = bare(access, parameter)
            assert value is not None
            text = kernel.text(value) if isinstance(value, ast.Name | ast.Call) else f"({kernel.text(value)})"
            kept = f"{joined.values[parameter]} = {text}.to({joined.kinds[parameter]})"
            edits.replace(*kernel.span(access), kept)
    start, end = kernel.lines_span(function.body)
    after = edits.apply()
    return after[start : end + len(after) - len(kernel.source)]


def _consumer(kernel: TritonModule, joined: Handover, function: FunctionNode) -> str:
    """Return the statements of the later kernel as they stand in the joined kernel.

    Its loads of the earlier kernel's result become the computed values, and a value that both kernels compute has the
    name that it has in the earlier kernel.
    """
    edits, values = Edits(kernel.source), {**joined.renamed}
    replaced: set[int] = set()
    for access in accesses(function):
        parameter = next((one for one in joined.loaded if one in names(access.args[0])), None)
        if parameter is not None:
            edits.replace(*kernel.span(access), joined.values[joined.loaded[parameter]])
            replaced |= {id(node) for node in ast.walk(access)}
    kept = [one for one in function.body if one not in joined.dropped]
    for statement in kept:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in values and id(node) not in replaced:
                edits.replace(*kernel.span(node), values[node.id])
    dropped = [one for one in function.body if one in joined.dropped]
    for statement in dropped:
        edits.replace(*kernel.lines_span([statement]), "")
    start, end = kernel.lines_span(function.body)
    after = edits.apply()
    return after[start : end + len(after) - len(kernel.source)]


def _launch(kernel: TritonModule, joined: Handover, name: str) -> str:
    first, second = joined.first, joined.second
    producer, consumer = kernel.kernels[first.kernel], kernel.kernels[second.kernel]
    plain, named = [], []
    for launch, function, skipped in (
        (first, producer, set(joined.stored)),
        (second, consumer, {*joined.loaded, *joined.shared}),
    ):
        known = parameters(function)
        for parameter, given in zip(known, launch.call.args, strict=False):
            if parameter not in skipped:
                plain.append(kernel.text(given))
        for keyword in launch.call.keywords:
            option = keyword.arg not in known
            if keyword.arg in skipped or (option and launch is second) or keyword.arg is None:
                continue
            wanted = keyword.arg if launch is first else joined.renamed.get(keyword.arg, keyword.arg)
            named.append((option, f"{wanted}={kernel.text(keyword.value)}"))
    ordered = [text for _, text in sorted(named, key=lambda one: one[0])]
    target = first.call.func
    assert isinstance(target, ast.Subscript)
    indent = kernel.indent(first.statement)
    return _call(f"{indent}{name}[{kernel.text(target.slice)}]", [*plain, *ordered], indent, "")


def _call(head: str, arguments: list[str], indent: str, tail: str) -> str:
    """Return ``head(arguments)tail`` on one line, or if that is too long, with one line for each argument."""
    line = f"{head}({', '.join(arguments)}){tail}\n"
    if len(line) <= _WIDTH:
        return line
    return f"{head}(\n" + "".join(f"{indent}    {one},\n" for one in arguments) + f"{indent}){tail}\n"


RULE = FusedEpilogue()
