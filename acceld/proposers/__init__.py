"""Proposers fill the four roles: by rewrite rules, or by models."""
