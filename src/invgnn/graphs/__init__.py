"""Graphs as disjoint unions: statistics, invariants, rewiring."""
