"""Call models: one protocol, the official SDKs behind it, prices, limits and retries."""
