"""Benchmark trials."""
