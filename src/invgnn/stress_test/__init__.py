"""Stress test: apply every edit and attack to a marked model and read what is left of the mark."""

from invgnn.stress_test.page import write_stress
from invgnn.stress_test.rows import Found, Row
from invgnn.stress_test.run import every_change, stress

__all__ = ["Found", "Row", "every_change", "stress", "write_stress"]
