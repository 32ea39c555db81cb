"""Evaluating candidates: three kinds of process, cheap checks first."""
