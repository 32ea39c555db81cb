"""Errors of the store beyond :class:`acceld.errors.StoreError`."""

from __future__ import annotations

from acceld.errors import StoreError


class NotFoundError(StoreError):
    """There is no such run, candidate, insight, evaluation or call."""
