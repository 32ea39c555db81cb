"""Call models: one interface for all models, the official SDKs behind it, prices, limits and retries."""
