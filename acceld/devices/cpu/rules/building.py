"""Write the source text of loops and statements for the rules for C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acceld.devices.cpu.rules.reading import CModule
from acceld.devices.cpu.rules.syntax import Block, Declaration, For, Pragma, Statement

STEP = "    "


def header(kernel: CModule, loop: For, mapping: Mapping[str, str] | None = None, step: int | None = None) -> str:
    """Return the header of a loop as source text, such as ``for (int j = 0; j < N; j++)``.

    ``mapping`` replaces variables by texts. ``step`` replaces the loop's own step.
    """
    stride = loop.step if step is None else step
    advance = f"{loop.var}++" if stride == 1 else f"{loop.var} += {stride}"
    first = kernel.text(loop.first, mapping)
    return f"for ({loop.type} {loop.var} = {first}; {loop.var} < {bound(kernel, loop, mapping)}; {advance})"


def bound(kernel: CModule, loop: For, mapping: Mapping[str, str] | None = None) -> str:
    """Return the exclusive upper bound of the loop's variable as source. ``mapping`` replaces variables by texts."""
    text = kernel.text(loop.bound, mapping)
    was_included = loop.bound.kind == "binary" and loop.bound.end == loop.bound.parts[1].start
    return f"{text} + 1" if was_included else text


def braced(indent: str, head: str, lines: Sequence[str]) -> list[str]:
    """Return the lines of a block in braces, whose first line is ``head``, such as a loop's header.

    ``lines`` have to be indented already.
    """
    return [f"{indent}{head} {{" if head else f"{indent}{{", *lines, f"{indent}}}"]


def body_lines(
    kernel: CModule, items: Sequence[Statement], indent: str, mapping: Mapping[str, str] | None = None
) -> list[str]:
    """Return the source of statements as lines indented by ``indent``. ``mapping`` replaces variables by texts."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, Block) and not item.items:
            continue
        before = kernel.indentation(item.start)
        for number, line in enumerate(kernel.text(item, mapping).split("\n")):
            stripped = line if number == 0 else line.removeprefix(before)
            lines.append(indent + stripped if stripped.strip() else "")
    return lines


def names_of(items: Sequence[Statement]) -> list[str]:
    """Return the variables that the statements declare. Declarations inside of nested statements do not count."""
    return [one.name for item in items if isinstance(item, Declaration) for one in item.declarators]


def without_pragmas(items: Sequence[Statement]) -> list[Statement]:
    """Return the statements that are not pragmas."""
    return [item for item in items if not isinstance(item, Pragma)]


def replaced(kernel: CModule, loop: For, lines: Sequence[str]) -> str:
    """Return the kernel's source with ``lines`` in place of a loop and the pragmas before it."""
    start = min([loop.start, *(pragma.start for pragma in loop.pragmas)])
    begin = kernel.line_start(start)
    if kernel.source[begin:start].strip():
        return kernel.source[:start] + "{\n" + "\n".join(lines) + "\n}" + kernel.source[loop.end :]
    return kernel.source[:begin] + "\n".join(lines) + kernel.source[loop.end :]
