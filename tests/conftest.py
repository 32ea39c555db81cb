"""Settings of the property tests: the same examples in every run of the suite, fresh ones under ``make fuzz``."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow]  # a health check by the clock fails on a busy machine

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW)
settings.register_profile("fresh", deadline=None, database=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("repeatable")  # ``--hypothesis-profile=fresh`` replaces it
