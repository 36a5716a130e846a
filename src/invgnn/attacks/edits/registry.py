"""The edits of the benchmark, and edits of plug-ins."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from invgnn.attacks.edits.cast import Cast
from invgnn.attacks.edits.chain import Chain
from invgnn.attacks.edits.channels import PruneChannels
from invgnn.attacks.edits.distil import Distil
from invgnn.attacks.edits.edit import Edit
from invgnn.attacks.edits.finetune import FineTune
from invgnn.attacks.edits.idle import IdleUnit
from invgnn.attacks.edits.noise import WeightNoise
from invgnn.attacks.edits.permute import PermuteUnits
from invgnn.attacks.edits.prune import Prune
from invgnn.attacks.edits.quantise import Quantise
from invgnn.attacks.edits.renorm import ReestimateNorm
from invgnn.attacks.edits.rescale import RescaleUnits
from invgnn.errors import EditError

GROUP = "invgnn.edits"
E = TypeVar("E", bound=Edit)


def suite() -> list[Edit]:
    """Return the edits of the paper and of this library, in the order of the tables.

    Some edits raise an `EditError` for some models and say why, for example for a model without batch norms
    or without hidden units.
    """
    return [
        *(Prune(share) for share in (0.2, 0.4, 0.5)),
        *(PruneChannels(share) for share in (0.2, 0.4)),
        *(Quantise(bits) for bits in (8, 4)),
        *(Cast(precision) for precision in ("fp16", "bf16")),
        *(WeightNoise(scale) for scale in (0.1, 0.3)),
        PermuteUnits(),
        RescaleUnits(),
        IdleUnit(),
        ReestimateNorm(),
        *(FineTune(20, lr) for lr in (1e-3, 1e-2)),
        FineTune(20, 1e-2, part="last"),
        FineTune(20, 1e-2, part="last", fresh=True),
        FineTune(20, 1e-2, fresh=True),
        *(Distil(rho_kd=rho) for rho in (1.0, 0.75, 0.5, 0.25)),
        *(Distil(start="teacher", rho_kd=rho) for rho in (1.0, 0.5)),
        Distil("half"),
        Distil("other"),
        Chain(FineTune(20, 1e-3), Prune(0.4), Distil(start="teacher", rho_kd=0.5)),
    ]


def find_edits() -> list[Edit]:
    """Return the suite, then the edits that installed packages provide, sorted by name.

    Packages provide edits as entry points of the group `invgnn.edits`. An entry point is an edit, or a
    callable without arguments that returns one or several.
    """
    return with_plugins(suite(), GROUP, Edit)  # type: ignore[type-abstract]  # not instantiated


def with_plugins(found: list[E], group: str, kind: type[E]) -> list[E]:
    """Return the given edits, then those of installed packages under an entry point group.

    Args:
        found: The given edits.
        group: Name of the entry point group.
        kind: The class that the edits must have.

    Raises:
        EditError: If a plug-in fails, returns something else, or uses the name of another edit.
    """
    for plugin in sorted(entry_points(group=group), key=lambda plugin: plugin.name):
        for edit in _offered(plugin, kind):
            if repr(edit) in map(repr, found):
                raise _broken(
                    plugin, f"its edit {edit!r} has the name of another edit", "give it another repr()"
                )
            found.append(edit)
    return found


def _offered(plugin: EntryPoint, kind: type[E]) -> list[E]:
    """Return the edits of one plug-in."""
    try:
        value: Any = plugin.load()
        made = value if isinstance(value, Edit) else value()
        edits: list[Any] = [made] if isinstance(made, Edit) else list(made)
    except Exception as error:  # third-party code may raise anything
        what = f"it fails with {type(error).__name__}: {error}"
        raise _broken(plugin, what, "update it, or uninstall the package") from error
    strange = [type(edit).__name__ for edit in edits if not isinstance(edit, kind)]
    if strange:
        what = f"it returns a {strange[0]}, not an {kind.__name__}"
        raise _broken(plugin, what, f"derive it from {kind.__module__}.{kind.__name__}")
    return edits


def _broken(plugin: EntryPoint, what: str, advice: str) -> EditError:
    """Return the error for a plug-in that cannot be used."""
    return EditError(
        f"the plug-in {plugin.name} = {plugin.value} cannot be used: {what}",
        f"{advice}; its author can test it with invgnn.testing.check_edit",
    )
