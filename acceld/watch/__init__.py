"""Watch mode: report within seconds what a save of a kernel file changes; search again only when asked."""
