"""Verify a suspect and report the verdict."""
