"""Watch kernel files: report the changes of each save within seconds, and search again only when asked."""
