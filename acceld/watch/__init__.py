"""Watch kernel files: report within seconds what each save changed. Search again only when asked."""
