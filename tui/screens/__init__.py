"""Hold the screens, one module each. A screen draws the state in widgets, and turns keys into requests."""
