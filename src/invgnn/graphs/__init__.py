"""Many small graphs stored as one disjoint union: statistics, invariants, rewiring and hashes."""
