"""Write a program as the source of a numpy reference.

The reference has ``forward``, and ``get_inputs``, which draws the arguments and weights.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence

from acceld.lowering.aten.operators import FUNCTIONS, Value, needed_functions, word, written
from acceld.lowering.aten.program import Argument, Array, Call, Input, Named, Program
from acceld.lowering.graph import NotLowered

_TAKEN = frozenset({"np", "math", "forward", "get_inputs", "ml_dtypes", *keyword.kwlist, *FUNCTIONS})
_HEADER = "import math\n\nimport numpy as np\n"


def reference_text(program: Program, inputs: Program | None = None) -> str:
    """Return the source of a program's numpy reference.

    ``inputs`` is a program without arguments whose outputs are the arguments of ``program``; None to draw arguments by
    their shapes. Raise NotLowered, with the operator's name, if an operator is not lowered.
    """
    body, outputs = _Body(program).lines(drawing=False)
    drawn = _draws(program, inputs)
    names = argument_names(program)
    parameters = ", ".join(names)
    result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    forward = [f"def forward({parameters}):", f'    """{program.title}."""', *body, f"    return {result}"]
    draw = [
        "def get_inputs():",
        '    """Draw the arguments, then the weights, from numpy\'s global generator."""',
        *drawn,
    ]
    text = "\n".join(draw) + "\n\n\n" + "\n".join(forward) + "\n"
    functions = list(needed_functions(text))
    header = f'"""{program.title}: what PyTorch computes, in numpy."""\n\n{_HEADER}'
    if "bfloat16" in text:
        header += "import ml_dtypes  # noqa: F401  (numpy then knows bfloat16)\n"
    paths = {_names(program)[one.name]: one.path for one in program.inputs if one.role != "argument"}
    header += _table(
        "PARAMETERS", "Weights and buffers of the module: the path of each, by the name of its argument here.", paths
    )
    others = "Other arguments of the module's forward. ``...`` stands for an array that is not read, or is in a list or dict."
    header += _table("OTHERS", others, dict(program.others))
    if places := {name: one.place for name, one in zip(names, program.inputs, strict=True) if len(one.place) > 1}:
        header += _table("PLACES", "Arguments of forward that are parts of a list or dict, with their places.", places)
    header += f'\nRESULTS = {program.results!r}\n"""What the module\'s forward returns: numbers of outputs in place of arrays."""\n'
    header += f'\nTRAINING = {program.training}\n"""True if the module was recorded in training mode."""\n'
    return "\n\n".join([header, *(f"{one.rstrip()}\n" for one in functions), text])


def _table(name: str, told: str, entries: Mapping[str, object]) -> str:
    """Return the source of a statement that assigns the dict ``entries`` to ``name``, followed by the docstring
    ``told``.
    """
    lines = "".join(f"    {key!r}: {literal(value)},\n" for key, value in entries.items())
    return f'\n{name} = {{\n{lines}}}\n"""{told}"""\n' if lines else f'\n{name} = {{}}\n"""{told}"""\n'


def literal(value: object) -> str:
    """Return a value as Python source. Ellipsis, which stands for an array, is written ``...``."""
    return repr(value).replace("Ellipsis", "...")


def argument_names(program: Program) -> list[str]:
    """Return the names of the reference's arguments, in order."""
    return [_names(program)[one.name] for one in program.inputs]


def _names(program: Program) -> dict[str, str]:
    """Return a Python name for each value of a program.

    All names differ from each other, from Python's keywords, and from the functions in a reference.
    """
    found: dict[str, str] = {}
    taken = set(_TAKEN)
    wanted = [(one.name, one.path if one.role != "argument" else one.name) for one in program.inputs]
    wanted += [(constant.name, constant.name) for constant in program.constants]
    wanted += [(call.name, call.name) for call in program.calls]
    for key, path in wanted:
        name = re.sub(r"\W+", "_", path).strip("_") or "value"
        name = f"v_{name}" if name[0].isdigit() else name
        while name in taken:
            name += "_"
        taken.add(name)
        found[key] = name
    return found


class _Body:
    """The writer of a program's constants and calls as Python statements."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = _names(program)
        self.values = {one.name: Value(self.names[one.name], one.array) for one in program.inputs}
        self.several: dict[str, list[Value | None]] = {}
        """Results of each call that has several results, by the call's name. None stands for a result that is not lowered."""
        self.operators = {call.name: call.operator for call in program.calls}
        self.written: list[str] = []
        self.module = ""

    def lines(self, *, drawing: bool) -> tuple[list[str], list[str]]:
        """Return (statements of the program, names of the outputs).

        If ``drawing`` is True, calls that draw random numbers are allowed.
        """
        needed = needed_values(self.program)
        for constant in self.program.constants:
            if constant.name not in needed:
                continue
            name = self.names[constant.name]
            self.values[constant.name] = Value(name, constant.array)
            self.written.append(f"    {name} = {_constant(constant.words, constant.values, constant.array)}")
        for call in self.program.calls:
            if call.name in needed:
                self._call(call, drawing=drawing)
        values = [self.values[name] for name in self.program.outputs]
        return self.written, [str(one) if drawing else _narrowed(one) for one in values]

    def _operand(self, argument: Argument) -> object:
        """Return an operand in which each name is replaced by the value of that name, also inside of lists."""
        if isinstance(argument, Named):
            return self.values[argument.of]
        if isinstance(argument, list):
            return [self._operand(one) for one in argument]
        return argument

    def _call(self, call: Call, *, drawing: bool) -> None:
        """Write the statements of one call. A comment comes first if the call belongs to another submodule than the
        call before.

        Raise NotLowered if the operator is not lowered with these operands.
        """
        if call.module != self.module:
            self.module = call.module
            self.written.append(f"    # {call.module or 'the module itself'}")
        name = self.names[call.name]
        if call.operator == "getitem":
            source, place = call.args
            assert isinstance(source, Named) and isinstance(place, int)
            result = self.several[source.of][place]
            if result is None:
                raise NotLowered(
                    f"result {place + 1} of aten.{self.operators[source.of]} is not lowered; let forward use its first result only"
                )
            self.values[call.name] = result
            return
        args = [self._operand(one) for one in call.args]
        named = {key: self._operand(one) for key, one in call.named.items()}
        try:
            found = written(call.operator, call.results, args, named, drawing=drawing)
        except NotLowered as error:
            places = [*([f"in {call.module}"] if call.module else []), *([f"at {call.line}"] if call.line else [])]
            raise NotLowered(f"{' '.join(places)}: {error.what}" if places else error.what) from error
        if len(call.results) == 1 and isinstance(found, str):
            self._assign(name, found)
            self.values[call.name] = Value(name, call.results[0])
            return
        parts = [f"{name}_{place}" for place in range(len(call.results))]
        words = [""] * len(parts)
        if isinstance(found, str):
            self._assign(", ".join(parts), found)
        else:
            words = found
            for part, text in zip(parts, words, strict=True):
                if text != "None":
                    self._assign(part, text)
        every = [Value(part, array) for part, array in zip(parts, call.results, strict=True)]
        self.several[call.name] = [None if text == "None" else one for one, text in zip(every, words, strict=True)]
        self.values[call.name] = every[0]

    def _assign(self, name: str, text: str) -> None:
        """Write an assignment of the expression ``text`` to ``name``."""
        self.written.append(f"    {name} = {text}")


def _narrowed(value: Value) -> str:
    """Return the source of an output in PyTorch's dtype, because numpy computes products of narrow floats in float32."""
    return f'cast({value}, "{value.dtype}")' if value.dtype in ("bfloat16", "float16") else str(value)


def needed_values(program: Program) -> set[str]:
    """Return the names of the values on which an output of a program depends, the outputs included."""
    by_name = {call.name: call for call in program.calls}
    needed: set[str] = set()
    todo = list(program.outputs)
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in by_name:
            call = by_name[name]
            todo += call.reads
    return needed


def needed_inputs(program: Program) -> tuple[Input, ...]:
    """Return the inputs on which an output of a program depends, in order."""
    needed = needed_values(program)
    return tuple(one for one in program.inputs if one.name in needed)


def _constant(words: str, values: Sequence[float], array: Array) -> str:
    """Return a constant as a numpy expression: ``words`` if it is not empty, else an array of ``values``."""
    if words:
        return words
    if not array.shape:
        return f'np.array({word(values[0])}, "{array.dtype}")'
    held = f'np.array({word(tuple(values))}, "{array.dtype}")'
    return held if len(array.shape) == 1 else f"{held}.reshape({array.shape!r})"


def _draws(program: Program, inputs: Program | None) -> list[str]:
    """Return the statements of the reference's function ``get_inputs``, which draws the inputs of a program.

    ``inputs`` is a program whose outputs are the arguments; None to draw the arguments by their shapes.
    """
    names = _names(program)
    found: list[str] = []
    drawn: list[str] = []
    arguments = [one for one in program.inputs if one.role == "argument"]
    if inputs is not None:
        body, outputs = _Body(inputs).lines(drawing=True)
        found += body
        by_place = dict(enumerate(outputs))
    else:
        by_place = {}
    for place, one in enumerate(program.inputs):
        if one in arguments and place in by_place:
            drawn.append(by_place[place])
            continue
        found.append(f"    {names[one.name]} = {_draw(one)}")
        drawn.append(names[one.name])
    return [*found, f"    return [{', '.join(drawn)}]"]


def _draw(one: Input) -> str:
    """Return a numpy expression that draws an input.

    Weights are drawn with the spread of a common initialization, so that activations keep their size through layers.
    """
    shape, dtype = one.array.shape, one.array.dtype
    normal = f"np.random.standard_normal({shape!r})"
    if dtype == "bool":
        return f"np.random.random_sample({shape!r}) < 0.5"
    if dtype.startswith(("int", "uint")):
        low, high = int(one.low or 0), int(one.high) if one.high is not None else 1
        if one.ordered:
            return f'np.sort(np.random.randint({low}, {high + 1}, {shape!r})).astype("{dtype}")'
        return f'np.random.randint({low}, {high + 1}, {shape!r}).astype("{dtype}")'
    if one.role == "argument":
        text = normal
    elif one.variance:
        text = f"0.5 + np.abs({normal})"
    elif len(shape) <= 1:
        text = f"1.0 + 0.1 * {normal}" if one.path.endswith("weight") else f"0.1 * {normal}"
    else:
        fan = 1
        for extent in shape[1:]:
            fan *= extent
        text = f"{normal} * {fan**-0.5:.6g}"
    return f'np.sort({text}).astype("{dtype}")' if one.ordered else f'({text}).astype("{dtype}")'
