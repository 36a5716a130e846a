"""The attacks of the benchmark, those that plug-ins bring, and names to call them by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from torch import nn

from invgnn.attacks.attack import Attack
from invgnn.attacks.denial.formats import FORMS, Format
from invgnn.attacks.denial.refuse import Refuse
from invgnn.attacks.denial.serve import Serve
from invgnn.attacks.edits import Edit
from invgnn.attacks.edits.registry import with_plugins
from invgnn.attacks.removal.clean import FTClean
from invgnn.attacks.removal.collude import Collude
from invgnn.attacks.removal.extract import Extract
from invgnn.attacks.removal.kdkill import KDKill
from invgnn.attacks.removal.overwrite import Overwrite
from invgnn.attacks.removal.scrub import ChannelScrub
from invgnn.attacks.removal.unlearn import Unlearn
from invgnn.attacks.removal.unscale import UnscaleWeights
from invgnn.attacks.removal.zero import ZeroHead
from invgnn.errors import ParameterError


def suite(*licensed: nn.Module) -> list[Attack]:
    """The attacks of the paper and ours, in the order of the tables; collusion if there are other copies.

    Some refuse some models with an `EditError` that says why: no hidden units, no head.
    """
    return [
        *(ChannelScrub(share) for share in (0.2, 0.4)),
        *(ZeroHead(head) for head in ("last", "perception")),
        KDKill(),
        *(FTClean(epochs) for epochs in (20, 100)),
        UnscaleWeights(),
        *(Overwrite(epochs=epochs) for epochs in (20, 100)),
        *(Unlearn(epochs=epochs) for epochs in (20, 100)),
        *(Extract(share) for share in (0.1, 0.5, 1.0)),
        Extract(1.0, "labels"),
        *(Serve(digits=2), Serve(top=True), Serve(temperature=10), Serve(temperature=10, digits=2)),
        Serve(noise=0.5),
        *map(Format, FORMS),
        *(Refuse(instead) for instead in ("NaN", "an error", "a constant")),
        *([Collude(*licensed)] if licensed else []),
    ]


def find_attacks(*licensed: nn.Module) -> list[Attack]:
    """The suite, then what installed packages offer under the entry points `invgnn.attacks`, by name.

    An entry point is an attack, or something that makes one or several when called without arguments.
    """
    found = suite(*licensed)
    return with_plugins(found, "invgnn.attacks", Attack)  # type: ignore[type-abstract]  # none is made of it


def slug(edit: Edit) -> str:
    """The name of an edit or attack as one word: "prune-20" for `prune 20%`."""
    return _word(repr(edit))


def _word(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def pick(name: str, edits: Iterable[Edit]) -> Edit:
    """The edit or attack of that name, in full or as its slug."""
    named = {slug(edit): edit for edit in edits}
    wanted = _word(name)
    if wanted not in named:
        near = get_close_matches(wanted, named, n=3, cutoff=0.4)
        advice = f"did you mean {', '.join(near)}?" if near else "invgnn attack --list shows all names"
        raise ParameterError(f"there is no edit or attack named {name!r}", advice)
    return named[wanted]


def pick_all(names: Sequence[str], edits: Sequence[Edit]) -> list[Edit]:
    """Those whose slug starts with one of the names, in their own order; every name must fit one."""
    starts = tuple(filter(None, map(_word, names)))
    if not starts:
        raise ParameterError("no name is given", "invgnn attack --list shows all names")
    for name in starts:
        if not any(slug(edit).startswith(name) for edit in edits):
            pick(name, edits)  # says what is wrong
    return [edit for edit in edits if slug(edit).startswith(starts)]
