"""An NKI kernel's source as rules read and edit it."""
