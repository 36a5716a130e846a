"""Watermarking schemes behind one protocol: ours, the paper's as published, and its rivals."""

from invgnn.schemes.backdoor import NAT
from invgnn.schemes.cosine import COS
from invgnn.schemes.edge_signs import WGLE
from invgnn.schemes.explanations import EXPL
from invgnn.schemes.keyed import Keyed
from invgnn.schemes.published import Published
from invgnn.schemes.random_graphs import TRIG
from invgnn.schemes.registry import find_schemes, pick_schemes, suite
from invgnn.schemes.scheme import Found, Mark, Scheme
from invgnn.schemes.ss import SS

__all__ = [
    "COS",
    "EXPL",
    "NAT",
    "SS",
    "TRIG",
    "WGLE",
    "Found",
    "Keyed",
    "Mark",
    "Published",
    "Scheme",
    "find_schemes",
    "pick_schemes",
    "suite",
]
