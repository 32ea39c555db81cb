"""The ``neuronxcc.nki`` API (SDK up to 2.29): what a kernel written for it imports, traced into a Program."""
