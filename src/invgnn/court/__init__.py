"""Claims that precede a theft, openings for a judge, signed judgements, tracing of leaks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invgnn.court.bound import Token as Token
    from invgnn.court.bound import draw_bound as draw_bound
    from invgnn.court.challenge import Challenge as Challenge
    from invgnn.court.claim import Claim as Claim
    from invgnn.court.exhibits import Exhibits as Exhibits
    from invgnn.court.identity import Identity as Identity
    from invgnn.court.identity import load_public as load_public
    from invgnn.court.judgement import Judgement as Judgement
    from invgnn.court.judging import judge as judge
    from invgnn.court.local_authority import LocalAuthority as LocalAuthority
    from invgnn.court.opening import load_opening as load_opening
    from invgnn.court.opening import open_drawn as open_drawn
    from invgnn.court.opening import open_fully as open_fully
    from invgnn.court.opening import open_prefix as open_prefix
    from invgnn.court.page import write_judgement as write_judgement
    from invgnn.court.revocation import Revocation as Revocation
    from invgnn.court.rivals import Rival as Rival
    from invgnn.court.timestamp import load_roots as load_roots
    from invgnn.court.tracing import Trace as Trace
    from invgnn.court.tracing import named as named
    from invgnn.court.tracing import trace_suspect as trace_suspect

_HOMES = {
    "Challenge": "challenge",
    "Claim": "claim",
    "Exhibits": "exhibits",
    "Identity": "identity",
    "Judgement": "judgement",
    "LocalAuthority": "local_authority",
    "Revocation": "revocation",
    "Rival": "rivals",
    "Token": "bound",
    "Trace": "tracing",
    "draw_bound": "bound",
    "judge": "judging",
    "load_opening": "opening",
    "load_public": "identity",
    "load_roots": "timestamp",
    "named": "tracing",
    "open_drawn": "opening",
    "open_fully": "opening",
    "open_prefix": "opening",
    "trace_suspect": "tracing",
    "write_judgement": "page",
}
# Names are loaded on first use: torch and PyG take seconds to import.
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'invgnn.court' has no attribute {name!r}")
    return getattr(importlib.import_module(f"invgnn.court.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
