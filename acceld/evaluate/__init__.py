"""Evaluate candidates in three kinds of process (tracer, oracle, judge), cheap checks first."""
