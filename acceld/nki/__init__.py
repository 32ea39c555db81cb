"""Simulate NKI kernels: trace, verify, execute and time them without a chip.

``acceld.nki.frontend.tracing.trace`` -> Program, ``acceld.nki.verify.verifier.verify``,
``acceld.nki.execute.interpreter.execute``, ``acceld.nki.timing.timeline.timeline``. Needs numpy and ml_dtypes only;
knows nothing of search or of the daemon.
"""
