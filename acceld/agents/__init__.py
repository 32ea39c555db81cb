"""acceld as tools for coding agents: what they may ask, over the Model Context Protocol."""
