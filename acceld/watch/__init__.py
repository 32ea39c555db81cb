"""Watch kernel files: report within seconds what a save changes, and search again only when asked."""
