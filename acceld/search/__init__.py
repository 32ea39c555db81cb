"""The search: loop, selection, memory, prompts, budget, strategies."""
