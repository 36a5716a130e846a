"""Exact null distributions, p-values and tests."""
