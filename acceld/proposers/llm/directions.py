"""Give each planner of one kernel a different class of changes to look at first, so that their plans differ."""

from __future__ import annotations

from collections.abc import Mapping

MIXED = "mixed"
"""Class of a change that belongs to several classes or to no class."""

NKI: Mapping[str, str] = {
    "engine": "which engine does the work, and what waits for it",
    "fusion": "instructions that one instruction can replace",
    "dma": "what is moved between HBM and SBUF, how often and in which rows",
    "tile_width": "how many elements one instruction processes",
    "loop_order": "the order and the grouping of loops, and what can be moved out of them",
    "spill": "what is kept on chip, and for how long",
}
TRITON: Mapping[str, str] = {
    "tile_size": "block sizes, and the grid that follows from them",
    "memory": "coalesced accesses, what is loaded twice, and order of programs for the L2 cache",
    "fusion": "launches and intermediate results that can be left out",
    "pipelining": "num_stages, num_warps, and loads that can run ahead of their use",
    "tensor_cores": "products by tl.dot, their types and their shapes",
    "loop_order": "which loop is inside a program and which is spread over programs; split reductions",
}
C: Mapping[str, str] = {
    "vectorization": "loops that the compiler can not vectorize as they stand, and intrinsics",
    "blocking": "blocks that fit the caches and the registers",
    "memory": "strides, packing of operands, and what is read twice",
    "loop_order": "order, unrolling and splitting of loops",
    "fusion": "passes over data that can become one",
    "arithmetic": "divisions, function calls and conversions that can be made cheaper",
}
NUMPY: Mapping[str, str] = {
    "vectorization": "loops of Python that operations on arrays can replace",
    "blocking": "blocks whose intermediate results fit the caches",
    "memory": "intermediate results and copies that can be left out, strides, and what is read twice",
    "loop_order": "the order of axes and of the operations along them",
    "fusion": "passes over data that can become one call",
    "arithmetic": "divisions, function calls and conversions that can be made cheaper",
}
CLASSES: Mapping[str, Mapping[str, str]] = {"nki": NKI, "nki_legacy": NKI, "triton": TRITON, "c": C, "numpy": NUMPY}
"""Classes of changes by API; each class has a description for the planner."""


def change_classes(api: str) -> tuple[str, ...]:
    """Return the names of the classes of changes (``fusion``, ``tile_width`` ...) for kernels of an API."""
    return (*CLASSES.get(api, NKI), MIXED)


def direction(api: str, index: int) -> str:
    """Return the sentence that tells planner number ``index`` which class of changes to look at first.

    The planners get the classes in turn. Before each round of classes one planner may choose freely.
    """
    classes = CLASSES.get(api, NKI)
    place = index % (len(classes) + 1)
    if not place:
        return "Propose what promises most."
    name = list(classes)[place - 1]
    return (
        f"Look first at {classes[name]} (class {name}). If nothing is to be gained there, propose what promises most "
        "elsewhere."
    )
