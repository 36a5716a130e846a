"""Benchmarks: resumable trials, timings, and the tables and figures of the result pages."""
