"""A simulator of NKI kernels: trace, verify, execute and time them without a chip.

``acceld.nki.tracing.trace`` -> Program, ``acceld.nki.verify.verify``, ``acceld.nki.execute.execute``,
``acceld.nki.timeline.timeline``. Needs numpy and ml_dtypes only; knows nothing of search or of the daemon.
"""
