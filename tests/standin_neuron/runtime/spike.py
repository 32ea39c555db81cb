"""Stand-in for spike: nrtpy's shape under another prefix."""

from nrtpy import NrtpyModel as SpikeModel
from nrtpy import NrtpyTensor as SpikeTensor

__all__ = ["SpikeModel", "SpikeTensor"]
