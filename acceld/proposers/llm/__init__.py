"""Ask models for what the four roles of a search give: plans, kernels, repairs and insights."""
