"""Connect to model providers through their official SDKs."""
