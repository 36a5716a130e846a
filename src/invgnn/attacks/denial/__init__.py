"""Denials: ways to serve a marked model so that its mark is harder to read."""

from invgnn.attacks.denial.formats import FORMS, Format
from invgnn.attacks.denial.refuse import Refuse
from invgnn.attacks.denial.serve import Endpoint, Serve, Serving, Wire

__all__ = ["FORMS", "Endpoint", "Format", "Refuse", "Serve", "Serving", "Wire"]
