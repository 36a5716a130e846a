"""Edits, removal attacks, denials and forgeries, and registries that find them by name."""
