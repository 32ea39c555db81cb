"""List the documented functions of the legacy API (``neuronxcc.nki`` 2.26), and whether the simulator supports them."""

from __future__ import annotations

from acceld.nki.frontend.legacy import isa, language

ISA_FUNCTIONS = (*(function.__name__ for function in isa.FUNCTIONS), *isa.UNSUPPORTED)
LANGUAGE_FUNCTIONS = tuple(
    "abs add affine_range all all_reduce arange arctan atomic_rmw bitwise_and bitwise_or bitwise_xor broadcast_to "
    "ceil copy cos device_print divide dropout ds empty_like equal erf erf_dx exp expand_dims finfo floor fmod full "
    "gather_flattened gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx gemm_grid gemm_stationary_grid greater "
    "greater_equal invert left_shift less less_equal load load_transpose2d log logical_and logical_not logical_or "
    "logical_xor loop_reduce matmul max maximum mean min minimum mish mod multiply ndarray negative not_equal "
    "num_programs ones power prod program_id program_ndim rand random_seed reciprocal relu right_shift rms_norm "
    "rsqrt sequential_range shared_constant shared_identity_matrix sigmoid sign silu silu_dx sin softmax softplus "
    "sqrt square static_cast static_range store subtract sum tan tanh transpose trunc var where zeros "
    "zeros_like".split()
)


def _states(names: tuple[str, ...], refused: dict[str, str]) -> dict[str, str]:
    """Return ``supported`` or ``unsupported: REASON`` for each name. ``refused`` has the reasons by name."""
    return {name: f"unsupported: {refused[name]}" if name in refused else "supported" for name in names}


SURFACE: dict[str, dict[str, str]] = {
    "neuronxcc.nki.isa": _states(ISA_FUNCTIONS, isa.UNSUPPORTED),
    "neuronxcc.nki.language": _states(LANGUAGE_FUNCTIONS, language.UNSUPPORTED),
}
"""The state of each documented function, by module and function: ``supported``, or ``unsupported:`` and the reason."""
