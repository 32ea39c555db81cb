"""The sandbox: jailed child processes, what they may use, and proof that it holds."""
