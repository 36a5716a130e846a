"""A verdict or a stress test as one self-contained HTML page."""

from invgnn.report.page import write_report as write_report
from invgnn.report.stress import write_stress as write_stress

__all__ = ["write_report", "write_stress"]
