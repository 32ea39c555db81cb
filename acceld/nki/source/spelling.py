"""Write the parts of a kernel's text for which the two APIs use different names: modules, instructions, engines,
indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from acceld.errors import RuleRefused
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Statement


def prefix(kernel: KernelModule, module: str) -> str:
    """Return the name under which the kernel's file imports the module ``isa`` or ``language``, such as ``nisa`` or
    ``nl``.

    Raise RuleRefused if the kernel imports neither the module nor ``nki``.
    """
    short = {"isa": "nisa", "language": "nl"}[module]
    if f".{module} as {short}" in kernel.source or f"import {module} as {short}" in kernel.source:
        return short
    if "nki as nki" in kernel.source or "import nki" in kernel.source:
        return f"nki.{module}"
    if f"{short}." in kernel.source:
        return short
    raise RuleRefused(f"the kernel does not import nki.{module}: add the import at the top of its file")


def operation(
    kernel: KernelModule, statement: Statement, name: str, arguments: Mapping[str, str], *, module: str = "isa"
) -> str:
    """Return the text of a statement that replaces ``statement``. The new statement applies the function ``name``
    to ``arguments``, and keeps the target, mask and dtype.

    ``module`` is the module of the function ``name``.
    """
    target = kernel.text(statement.made.node)
    given = {key: value for key, value in arguments.items() if value}
    callee = f"{prefix(kernel, module)}.{name}"
    if kernel.api == "nki":
        given = {"dst": target, **given}
        return f"{callee}({_listed(given)})"
    for key in ("mask", "dtype"):
        node = statement.args.get(key)
        if node is not None and key not in given:
            given[key] = kernel.text(node)
    return f"{target} = {callee}({_listed(given)})"


def copied(kernel: KernelModule, target: str, source: str) -> str:
    """Return the text of a statement that copies the tile ``source`` to the tile ``target``, both on chip."""
    if kernel.api == "nki":
        return f"{prefix(kernel, 'isa')}.tensor_copy(dst={target}, src={source})"
    return f"{target} = {prefix(kernel, 'language')}.copy({source})"


def filled(kernel: KernelModule, name: str, shape: tuple[int, int], value: str) -> list[str]:
    """Return the lines that declare a float32 tile of shape ``shape`` in SBUF and fill it with the number
    ``value``.
    """
    language = prefix(kernel, "language")
    extents = f"({partitions(kernel, shape[0])}, {shape[1]})"
    kept = f"dtype={language}.float32, buffer={language}.sbuf)"
    if kernel.api != "nki":
        return [f"{name} = {language}.full({extents}, {value}, {kept}"]
    fill = f"{prefix(kernel, 'isa')}.memset(dst={name}, value={value})"
    return [f"{name} = {language}.ndarray({extents}, {kept}", fill]


def _listed(arguments: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in arguments.items())


def engine(kernel: KernelModule, name: str) -> str:
    """Return the kernel's expression for the engine ``name``, such as ``nisa.engine.vector``."""
    isa = prefix(kernel, "isa")
    return f"{isa}.engine.{name}" if kernel.api == "nki" else f"{isa}.{name}_engine"


def partitions(kernel: KernelModule, rows: int) -> str:
    """Return the text of the first dimension (the partitions) in the shape of a tile with ``rows`` partitions."""
    return str(rows) if kernel.api == "nki" else f"{prefix(kernel, 'language')}.par_dim({rows})"


def span(kernel: KernelModule, start: Affine, extent: int, axis: int, axes: int) -> str:
    """Return the text of an index that selects ``extent`` consecutive elements from ``start`` on.

    The text is a slice in the current API. In the legacy API the text is an index range along axis ``axis`` of a
    tile with ``axes`` axes.
    """
    if kernel.api != "nki":
        return ranges(prefix(kernel, "language"), start, (extent, axis, axes, 1))
    first = rendered(start, {})
    return f"{start.constant}:{start.constant + extent}" if not start.terms else f"{first}:{first} + {extent}"


def indexed(kernel: KernelModule, name: str, forms: Iterable[Affine | None]) -> str:
    """Return the text of a part of the tile ``name``, with the indices ``forms``.

    Raise RuleRefused unless each form is a position or one index range of neighboring elements.
    """
    texts = []
    for form in forms:
        start = Affine() if form is None else form.start
        if form is None or form - start not in [Affine(), *map(Affine.of, form.ranges[:1])]:
            raise RuleRefused(f"an index of {name} is not understood: write a slice of neighboring elements")
        (over,) = form.ranges or (None,)
        texts.append(rendered(start, {}) if over is None else span(kernel, start, over.extent, over.axis, over.axes))
    return f"{name}[{', '.join(texts)}]"


def ranges(language: str, start: Affine, *over: tuple[int, int, int, int]) -> str:
    """Return the text of an index that runs from ``start`` over several index ranges.

    Each range is given as (extent, axis, number of axes, step).
    """
    texts: dict[Symbol, str] = {}
    form = start
    for extent, axis, axes, step in over:
        symbol = Symbol.over(extent, axis, axes)
        places = ", ".join(":" if one == axis else "None" for one in range(axes))
        texts[symbol] = f"{language}.arange({extent})[{places}]"
        form = form + Affine.of(symbol).times(step)
    return rendered(form, texts)


def rendered(form: Affine, ranges: Mapping[Symbol, str]) -> str:
    """Return the text of the index expression for ``form``. ``ranges`` has the text of each index range in it."""
    pieces: list[str] = []
    for symbol, coefficient in sorted(form.terms, key=lambda term: (term[0].is_range, term[0].name)):
        text = ranges[symbol] if symbol.is_range else symbol.name
        pieces.append(text if coefficient == 1 else f"{coefficient} * {text}")
    if form.constant or not pieces:
        pieces.append(str(form.constant))
    return " + ".join(pieces).replace("+ -", "- ")
