"""Clients of model providers, through their official SDKs."""
