"""The edits of the benchmark, and those that plug-ins bring."""

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
    """The edits of the paper and ours, in the order of the tables.

    Some refuse some models with an `EditError` that says why: no batch norm, no hidden units.
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
    """The suite, then what installed packages offer under the entry points `invgnn.edits`, by name.

    An entry point is an edit, or something that makes one or several when called without arguments.
    """
    return with_plugins(suite(), GROUP, Edit)  # type: ignore[type-abstract]  # none is made of it


def with_plugins(found: list[E], group: str, kind: type[E]) -> list[E]:
    """The given edits, then those of their kind that installed packages offer under a group."""
    for plugin in sorted(entry_points(group=group), key=lambda plugin: plugin.name):
        for edit in _offered(plugin, kind):
            if repr(edit) in map(repr, found):
                raise _broken(
                    plugin, f"its edit {edit!r} has the name of another", "give it another repr()"
                )
            found.append(edit)
    return found


def _offered(plugin: EntryPoint, kind: type[E]) -> list[E]:
    try:
        value: Any = plugin.load()
        made = value if isinstance(value, Edit) else value()
        edits: list[Any] = [made] if isinstance(made, Edit) else list(made)
    except Exception as error:  # whatever a stranger's package raises
        what = f"it fails with {type(error).__name__}: {error}"
        raise _broken(plugin, what, "update it, or uninstall the package") from error
    strange = [type(edit).__name__ for edit in edits if not isinstance(edit, kind)]
    if strange:
        what = f"it gives a {strange[0]}, not an {kind.__name__}"
        raise _broken(plugin, what, f"derive it from {kind.__module__}.{kind.__name__}")
    return edits


def _broken(plugin: EntryPoint, what: str, advice: str) -> EditError:
    return EditError(
        f"the plug-in {plugin.name} = {plugin.value} cannot be used: {what}",
        f"{advice}; invgnn.testing.check_edit tells its author what is missing",
    )
