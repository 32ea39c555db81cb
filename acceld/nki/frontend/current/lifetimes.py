"""List which functions, options and Python constructs each version of the package ``nki`` supports."""

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
"""The functions that are new in a version of NKI (by release notes or documentation), by the version. All other
functions are older.
"""
UNTIL = {"dynamic_range": "0.6", "tensor_copy_dynamic_src": "0.3", "tensor_copy_dynamic_dst": "0.3"}
"""The last version of NKI that has a removed function, by function."""
INSTEAD = {
    "dynamic_range": "nl.fori_loop(lower, upper, body), from NKI 0.6 on",
    **dict.fromkeys(
        ("tensor_copy_dynamic_src", "tensor_copy_dynamic_dst"), "nisa.tensor_copy with scalar_offset of .ap()"
    ),
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
    "float8_e8m0fnu": "uint8, with the same bits",
    "average": "nl.add, then a product with 1/n",
}
"""Advice for a function that not every version has: what to write in the versions without it, by function."""
TILE_SIZES_SINCE = {
    **dict.fromkeys("sbuf_size_bytes sbuf_fmax sbuf_fmax_bytes psum_bank_fmax psum_bank_fmax_bytes".split(), "0.4"),
    "psum_num_banks": "0.5",
}
"""The first version of NKI that has a later limit of ``nl.tile_size``, by name (release notes of 0.4 and 0.5)."""
TILE_SIZES_INSTEAD = {
    "sbuf_size_bytes": "nl.tile_size.total_available_sbuf_size, the bytes of a partition, times nl.tile_size.pmax",
    "sbuf_fmax": "nl.tile_size.total_available_sbuf_size // 4",
    "sbuf_fmax_bytes": "nl.tile_size.total_available_sbuf_size",
    "psum_bank_fmax": "nl.tile_size.psum_fmax",
    "psum_bank_fmax_bytes": "nl.tile_size.psum_fmax * 4",
    "psum_num_banks": "8",
}
"""The remedy for versions without a later limit of ``nl.tile_size``, by name."""
OPTIONS_SINCE = {
    **{
        (function, "name"): "0.5"
        for function in "all_reduce all_gather reduce_scatter all_to_all all_to_all_v collective_permute "
        "collective_permute_implicit collective_permute_implicit_reduce rank_id "
        "collective_permute_implicit_current_processing_rank_id".split()
    },
    ("dma_copy", "priority"): "0.4",
    ("dma_transpose", "priority"): "0.4",
    ("dma_compute", "oob_mode"): "0.4",
    ("tensor_scalar_reduce", "reduce_cmd"): "0.4",
    ("tensor_scalar_reduce", "reduce_init"): "0.4",
    ("scalar_tensor_tensor", "reduce_op"): "0.7",
    ("scalar_tensor_tensor", "reduce_res"): "0.7",
    ("scalar_tensor_tensor", "reduce_cmd"): "0.7",
    ("activation", "engine"): "0.7",
    ("activate2", "engine"): "0.7",
}
"""The first version of NKI that has a later option of an older function, by function and option (by release notes)."""
REGISTER_ARITHMETIC = Lifetime(
    "0.7", instead="give the register as scalar_offset of .ap(), which adds a constant offset"
)
"""The versions with operators on registers and on the index of a run-time loop. A compiler of 0.6 refused such
operators.
"""
REGISTER_WHILE = Lifetime(until="0.6", instead="nl.while_loop(register, body), from NKI 0.6 on")
"""The versions in which ``while`` takes a register as its condition (migration page of 0.7)."""
JIT_OPTIONS = {
    "platform_target": Lifetime(until="0.3", instead="set NEURON_PLATFORM_TARGET_OVERRIDE instead", certain=False),
    "mode": Lifetime(until="0.2", instead="leave it out: it has no effect", certain=False),
    "compile_config": Lifetime("0.7", instead="leave it out"),
    "specialization_config": Lifetime("0.7", instead="leave it out"),
}
"""The versions that take an option of ``nki.jit``, by option (migration pages). Public benchmarks of later versions
still pass removed options.
"""
NEGATIVE_INDEX = Lifetime("0.7", instead="count from the first element", certain=False)
"""The versions in which a negative number is an index from the end.

The public source of the parser refuses negative indices; AWS's pages describe them for 0.7.
"""
VIEW_PATTERN = Lifetime("0.5", instead="call .ap() of the whole tensor, with an offset", certain=False)
"""The versions with ``.ap()`` of a part of a tensor. The public source of the parser refuses such a call; pages from
0.5 on describe the call.
"""
FOLD_WITHOUT_RESULT = Lifetime("0.6", instead="give reduce_res a (P, 1) tile")
"""The versions in which ``tensor_scalar_reduce`` may keep its result in the accumulator (release notes of 0.6)."""
VIEW_METHODS = Lifetime(
    "0.5",
    instead="use slices, .reshape() and .ap(), which earlier versions have; a step of 0 in .ap() repeats elements",
)
"""The versions with methods that return views: ``slice``, ``permute``, ``broadcast`` and others (release notes of 0.5).
"""
PRODUCTS_OF_E4M3FN = Lifetime("0.4", instead="cast to float8_e4m3 or bfloat16", certain=False)
"""The versions in which ``nc_matmul`` takes ``float8_e4m3fn`` (release notes of 0.4). AWS's own library for 0.3 passes
that type on trn3.
"""
LATE_SCALAR_OPS = Lifetime("0.4", instead="use nisa.activation")
"""The versions in which ``tensor_scalar`` takes ``square`` and ``relu`` (release notes of 0.4)."""
INDEX_AS_OFFSET = Lifetime("0.4", instead="count in a register of your own, or use nl.affine_range")
"""The versions in which the index of ``nl.dynamic_range`` may be a ``scalar_offset`` (known issues of 0.3)."""
DEPENDS_ON = Lifetime("0.6", instead="give both instructions a name and order them with kernel.with_schedule")
"""The versions in which an instruction has ``depends_on`` (release notes of 0.6)."""
KEYWORD_ONLY = Lifetime("0.7", instead="leave the * out of the kernel's signature", certain=False)
"""The versions with keyword-only arguments of a kernel. Release notes of 0.3 exclude these; the public source of the
parser accepts them.
"""
LIST_ARGUMENT = Lifetime("0.7", instead="pass a tuple", certain=False)
"""The versions in which a kernel's argument may be a list. Release notes of 0.3 exclude lists; the public source of the
parser accepts them.
"""
PLAIN_CLASS = Lifetime("0.7", instead="use nl.NKIObject or Enum as the base", certain=False)
"""The versions in which a kernel's class needs no base. The public source of the parser wants one; a class of AWS's own
library for 0.3 has none.
"""
PLAIN_DECORATOR = Lifetime("0.7", instead="use a plain method", certain=False)
"""The versions in which methods of a kernel's class may be properties and class methods. The public source of the parser
takes ``staticmethod`` only.
"""
LOOP_CONTINUE = Lifetime("0.7", instead="put the rest of the body below an if", certain=False)
"""The versions with ``continue`` in ``nl.dynamic_range``. The public source of the parser refuses a ``continue`` that
is reached.
"""
LEGACY_IMPORT = Lifetime(until="0.3", instead="import nki, nki.isa and nki.language only", certain=False)
"""The versions that take ``import neuronxcc`` in a kernel's file (release notes of 0.4). A file of AWS's own library
for 0.3 has such an import.
"""


def lifetime(name: str) -> Lifetime:
    """Return the versions of NKI that have the function ``name``."""
    return Lifetime(since(name), UNTIL.get(name, ""), INSTEAD.get(name, ""))


def tile_size(name: str) -> Lifetime:
    """Return the versions of NKI that have the limit ``nl.tile_size.NAME``."""
    return Lifetime(TILE_SIZES_SINCE.get(name, ""), instead=TILE_SIZES_INSTEAD.get(name, ""))


def options_of(function: str) -> dict[str, Lifetime]:
    """Return the options of a function that only some versions of NKI have, each with these versions."""
    return {
        option: Lifetime(since, instead=f"leave {option} out")
        for (of, option), since in OPTIONS_SINCE.items()
        if of == function
    }


def since(name: str) -> str:
    """Return the first version of NKI that has the function ``name``; empty if all versions have the function."""
    return next((version for version, names in SINCE.items() if name in names.split()), "")


def withheld(names: Iterable[str], version: str | None) -> dict[str, Lifetime]:
    """Return those of ``names`` that ``version`` of NKI lacks, each with the versions that have it; {} if ``version``
    is None.
    """
    lives = {name: lifetime(name) for name in names}
    return {} if version is None else {name: life for name, life in lives.items() if not life.covers(version)}


def versions_text(name: str) -> str:
    """Return the first and the last version of a function as text for a table; empty if all versions have the function."""
    parts = [since(name), f"until {UNTIL[name]}: then {INSTEAD[name]}" if name in UNTIL else ""]
    return ", ".join(filter(None, parts))
