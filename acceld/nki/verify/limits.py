"""Decide which rules hold for each API and chip. The figures of chips are in :mod:`acceld.chips`.

The rules are from AWS's reference of ``nki.isa`` and from AWS's migration guide for block dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

from acceld.chips import API_CHIPS, CHIPS, ChipSpec, chips_of
from acceld.errors import UsageError, nearest_of


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules for programs of one API on one chip.

    ``strict`` adds documented rules that compilers are known not to enforce.
    """

    api: str
    chip: ChipSpec
    strict: bool = False

    @property
    def legacy(self) -> bool:
        """Tell whether the API is ``neuronxcc.nki``."""
        return self.api == "nki_legacy"

    @property
    def block_dimensions(self) -> bool:
        """Tell whether on-chip tensors may have block dimensions, which come before the partition dimension.

        Compilers accept them up to SDK 2.24 and refuse them from 2.25 on (AWS's migration guide for block dimensions).
        """
        return self.legacy and not self.strict

    @property
    def psum_starts_on_bank(self) -> bool:
        """Tell whether PSUM tensors must start at the start of a bank (AWS's migration guide for block dimensions).
        neuronxcc allows an offset inside the bank.
        """
        return not self.legacy

    @property
    def accumulates_on_any_value(self) -> bool:
        """Tell whether a matrix product may add to values that no product wrote, such as the values of a memset. On
        NeuronCore v2 and v3 a product may not (AWS's page of nisa.nc_matmul), but neuronxcc adds products to tiles
        of nl.zeros.
        """
        return self.legacy or self.chip.generation >= 4

    @property
    def same_base_partition(self) -> bool:
        """Tell whether both tiles of a tensor_tensor must start at the same partition (AWS's page of
        nisa.tensor_tensor). AWS's own kernels break that rule, so only ``strict`` applies it.
        """
        return self.legacy and self.strict


def rulebook(api: str, chip: str, strict: bool = False) -> RuleBook:
    """Return the rules of ``api`` on ``chip``.

    Raise UsageError if the API or the chip is unknown, or if the API does not run on the chip.
    """
    if api not in API_CHIPS:
        raise UsageError(f"there are no rules for API {api!r}", hint=nearest_of(api, API_CHIPS))
    if chip not in CHIPS:
        raise UsageError(f"there are no rules for chip {chip!r}", hint=nearest_of(chip, CHIPS))
    if chip not in chips_of(api):
        raise UsageError(
            f"API {api} does not support chip {chip}",
            hint=f"{api} runs on {', '.join(chips_of(api))}; chip {chip} takes "
            f"{', '.join(name for name in API_CHIPS if chip in chips_of(name))}",
        )
    return RuleBook(api, CHIPS[chip], strict)
