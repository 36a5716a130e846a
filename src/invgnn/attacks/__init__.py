"""Edits, removal attacks, denials and forgeries, and the stress test that applies them to a model."""
