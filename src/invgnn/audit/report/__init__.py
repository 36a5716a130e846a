"""Write a verdict as one self-contained HTML page."""

from invgnn.audit.report.page import write_report as write_report

__all__ = ["write_report"]
