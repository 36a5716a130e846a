"""The attacks of the benchmark, attacks of plug-ins, and selection by name."""

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
    """Return the attacks of the paper and of this library, in the order of the tables.

    Some attacks raise an `EditError` for some models and say why, for example for a model without hidden
    units or without a head.

    Args:
        licensed: Other licensed copies of the model; with them, collusion is included.
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
    """Return the suite, then the attacks that installed packages provide, sorted by name.

    Packages provide attacks as entry points of the group `invgnn.attacks`. An entry point is an attack, or
    a callable without arguments that returns one or several.

    Args:
        licensed: Other licensed copies of the model; with them, collusion is included.
    """
    found = suite(*licensed)
    return with_plugins(found, "invgnn.attacks", Attack)  # type: ignore[type-abstract]  # not instantiated


def slug(edit: Edit) -> str:
    """Return the name of an edit or attack as one word: "prune-20" for `prune 20%`."""
    return _word(repr(edit))


def _word(name: str) -> str:
    """Return a name in lower case, with hyphens in place of other characters."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def pick(name: str, edits: Iterable[Edit]) -> Edit:
    """Return the edit or attack with a name.

    Args:
        name: The name, in full or as its slug.
        edits: The edits to choose from.

    Raises:
        ParameterError: If no edit has this name.
    """
    named = {slug(edit): edit for edit in edits}
    wanted = _word(name)
    if wanted not in named:
        near = get_close_matches(wanted, named, n=3, cutoff=0.4)
        advice = f"did you mean {', '.join(near)}?" if near else "invgnn attack --list shows all names"
        raise ParameterError(f"there is no edit or attack named {name!r}", advice)
    return named[wanted]


def pick_all(names: Sequence[str], edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits whose slug starts with one of the names, in their own order.

    Args:
        names: Beginnings of names; each must match at least one edit.
        edits: The edits to choose from.

    Raises:
        ParameterError: If there is no name, or a name matches no edit.
    """
    starts = tuple(filter(None, map(_word, names)))
    if not starts:
        raise ParameterError("no name was passed", "invgnn attack --list shows all names")
    for name in starts:
        if not any(slug(edit).startswith(name) for edit in edits):
            pick(name, edits)  # raises an error with suggestions
    return [edit for edit in edits if slug(edit).startswith(starts)]
