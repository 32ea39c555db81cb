"""Simulate NKI kernels without a chip, in four steps:

1. ``acceld.nki.frontend.tracing.trace`` runs a kernel's Python and returns a Program.
2. ``acceld.nki.verify.verifier.verify`` checks the Program against the rules of the API and the chip.
3. ``acceld.nki.execute.interpreter.execute`` runs the Program on data.
4. ``acceld.nki.timing.timeline.timeline`` predicts the Program's latency.

This package needs numpy and ml_dtypes only. It imports nothing of the search or the daemon.
"""
