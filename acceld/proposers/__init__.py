"""Propose candidates in four roles, by rewrite rules or by models."""
