"""Examine a suspect with a mark, decide what its answers prove, and report the verdict."""
