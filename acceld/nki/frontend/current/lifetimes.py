"""List which versions of the package ``nki`` have a name, an option or a form of the current API."""

from __future__ import annotations

from collections.abc import Iterable

from acceld.nki.frontend.versions import Lifetime

SINCE = {
    "0.2": "nonzero_with_count exponential no_reorder all_reduce all_gather reduce_scatter all_to_all collective_permute "
    "collective_permute_implicit collective_permute_implicit_reduce "
    "collective_permute_implicit_current_processing_rank_id rank_id",
    "0.3": "all_to_all_v",
    "0.4": "abs_max abs_min activate2 prelu bypass",
    "0.5": "get_nc_sub_version float8_e8m0fnu average",
    "0.6": "topk all_gather_v fori_loop while_loop",
    "0.7": "int64 CompileConfig SpecializationConfig AddressRotation scalar_load scalar_store tiles blocks alloc_tiles "
    "alloc_blocks all_gather_v_prepare all_gather_v_trigger all_to_all_v_prepare all_to_all_v_trigger",
}
"""The version of NKI whose release notes or pages first name a function. Others are as old as ``nki``."""
UNTIL = {"dynamic_range": "0.6"}
"""The last version of NKI that has a function."""
INSTEAD = {
    "dynamic_range": "nl.fori_loop(lower, upper, body), from NKI 0.6 on",
    "fori_loop": "nl.dynamic_range for run-time bounds, nl.affine_range for known ones",
    "while_loop": "a while statement on a register",
    "topk": "nisa.max8 and nisa.nc_find_index8, eight values at a time",
    "scalar_load": "nisa.register_alloc() and nisa.register_load(register, src)",
    "scalar_store": "nisa.register_store(dst, register)",
    "tiles": "slices in a loop",
    "blocks": "slices in a loop",
    "int64": "int32",
    "CompileConfig": "no option: earlier versions have none",
    "SpecializationConfig": "no option: earlier versions have none",
    "AddressRotation": "no option: earlier versions have none",
    "alloc_tiles": "a list of nl.ndarray",
    "alloc_blocks": "a list of nl.ndarray",
    "activate2": "nisa.tensor_scalar and nisa.activation",
    "abs_max": "nl.abs and nl.maximum",
    "abs_min": "nl.abs and nl.minimum",
    "get_nc_sub_version": "nisa.get_nc_version()",
    "average": "nl.add, then a product with 1/n",
}
"""The remedy where a function does not exist, by its name."""
OPTIONS_SINCE = {
    ("dma_copy", "priority"): "0.4",
    ("dma_transpose", "priority"): "0.4",
    ("dma_compute", "oob_mode"): "0.4",
    ("tensor_scalar_reduce", "reduce_cmd"): "0.4",
    ("tensor_scalar_reduce", "reduce_init"): "0.4",
}
"""The version that first has an option of an older function (release notes)."""
REGISTER_ARITHMETIC = Lifetime(
    "0.7", instead="give the register as scalar_offset of .ap(), which adds a constant offset"
)
"""Operators of registers and of the index of a run-time loop: NkiScalar's (0.7). A log of 0.6 refuses them."""
REGISTER_WHILE = Lifetime(until="0.6", instead="nl.while_loop(register, body), from NKI 0.6 on")
"""``while`` on a register (migration page of 0.7)."""
JIT_OPTIONS = {
    "platform_target": Lifetime(until="0.3", instead="set NEURON_PLATFORM_TARGET_OVERRIDE instead", certain=False),
    "mode": Lifetime(until="0.2", instead="leave it out: it has no effect", certain=False),
    "compile_config": Lifetime("0.7", instead="leave it out"),
    "specialization_config": Lifetime("0.7", instead="leave it out"),
}
"""Options of ``nki.jit`` (migration pages). Public benchmarks of later versions still give them."""
NEGATIVE_INDEX = Lifetime("0.7", instead="count from the first element", certain=False)
"""A negative number as index. The public source of the parser refuses it; AWS's pages name Python's meaning for 0.7."""
VIEW_PATTERN = Lifetime("0.5", instead="call .ap() of the whole tensor, with an offset", certain=False)
"""``.ap()`` of a part of a tensor: refused by the public source of the parser, described by pages from 0.5 on."""
LOOP_CONTINUE = Lifetime("0.7", instead="put the rest of the body below an if", certain=False)
"""``continue`` in ``nl.dynamic_range``. The public source of the parser refuses it where it is reached."""
LEGACY_IMPORT = Lifetime(until="0.3", instead="import nki, nki.isa and nki.language only", certain=False)
"""``import neuronxcc`` in a kernel's file (release notes of 0.4). AWS's own library had one, in a file for 0.3."""


def lifetime(name: str) -> Lifetime:
    """Return the versions of NKI that have a function."""
    return Lifetime(since(name), UNTIL.get(name, ""), INSTEAD.get(name, ""))


def options_of(function: str) -> dict[str, Lifetime]:
    """Return the options of a function that not every version has."""
    return {
        option: Lifetime(since, instead=f"leave {option} out")
        for (of, option), since in OPTIONS_SINCE.items()
        if of == function
    }


def since(name: str) -> str:
    """Return the first version of NKI that has the function; empty for one that existed from the beginning."""
    return next((version for version, names in SINCE.items() if name in names.split()), "")


def withheld(names: Iterable[str], version: str | None) -> dict[str, Lifetime]:
    """Return those of ``names`` that a version of NKI does not have; none if no version is given."""
    lives = {name: lifetime(name) for name in names}
    return {} if version is None else {name: life for name, life in lives.items() if not life.covers(version)}


def versions_text(name: str) -> str:
    """Return the first and last version of a function for a table; empty for one that every version has."""
    parts = [since(name), f"until {UNTIL[name]}: then {INSTEAD[name]}" if name in UNTIL else ""]
    return ", ".join(filter(None, parts))
