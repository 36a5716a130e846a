"""Exact null distributions and tests."""
