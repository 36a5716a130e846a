"""invgnn attack: do to a model what a thief would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import Json, Overwrite, Seed, check_input, check_output, fold, note, verb
from invgnn.errors import ParameterError

if TYPE_CHECKING:
    from invgnn.attacks.edits import Edit
    from invgnn.nn.backbones import Backbone
    from invgnn.training.tasks import Task

EXAMPLES = """\b
Examples:
  invgnn attack --list
  invgnn attack kd-kill --model acme.model --task PROTEINS -o thief.model
  invgnn attack prune-50 --model acme.model --task PROTEINS -o thief.model
  invgnn verify --mark acme.mark --model thief.model
"""
AVERAGE = "average-of-2-copies"  # not in the list: there is no such attack without a second copy


@verb
def attack(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An edit or attack, as --list writes it.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show all edits and attacks, and stop.")] = False,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The stolen model, from invgnn embed.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Its task, whose data the thief has; e.g. PROTEINS.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write what it becomes.")
    ] = None,
    second: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another licensee's copy, to average with."),
    ] = None,
    seed: Seed = 41,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Do to a model what a thief would, without the mark.

    An edit is what any user may do: prune, quantise, fine-tune, distil. An attack is aimed at the mark by
    somebody who has more, as --list says; the secret is never among it. Then read the result with
    invgnn verify, or let invgnn stress do it all.
    """
    if list_:
        return _list()
    if name is None or model is None or task is None or output is None:
        raise ParameterError(
            "which attack, on what, and where to?", "give NAME, --model, --task and -o, or --list"
        )
    check_input(model, second)
    check_output(output, overwrite)

    from invgnn.attacks.denial.serve import Serving
    from invgnn.attacks.registry import pick
    from invgnn.nn.model_file import save_model
    from invgnn.stress_test.run import every_change
    from invgnn.training.batching import accuracy

    loaded = load_named(task, seed)
    licensed = [] if second is None else [load_for(loaded, second)]
    chosen, stolen = pick(name, every_change(*licensed)), load_for(loaded, model)
    if isinstance(chosen, Serving):
        raise ParameterError(
            f"{chosen!r} changes what a served model says, and leaves no model to write",
            "invgnn stress reads it; in Python call it and verify what it returns",
        )
    note(f"{chosen!r}")
    edited = cast("Backbone", chosen(stolen, loaded))
    before, after = (accuracy(net, loaded, loaded.test) for net in (stolen, edited))
    save_model(output, edited, overwrite=overwrite, task=task, seed=seed, change=repr(chosen))
    record = {
        "model": str(output),
        "change": repr(chosen),
        "accuracy_before": before,
        "accuracy": after,
    }
    return record, f"wrote {output}: {chosen!r}; test accuracy {before:.3f} before, {after:.3f} after", 0


def _list() -> Any:
    from invgnn.attacks.registry import slug
    from invgnn.stress_test.run import every_change, knowledge

    rows = [(slug(change), knowledge(change), _does(change)) for change in every_change()]
    groups: dict[tuple[str, str], list[str]] = {}
    for name, knows, does in rows:
        groups.setdefault((does, knows), []).append(name)
    lines = []
    for (does, knows), names in groups.items():
        lines += [*names, fold(f"    {does}", 4), fold(f"    has: {knows}", 4)]
    lines += [AVERAGE, "    Average the model with another licensee's copy, given as --second."]
    record = {"changes": [dict(zip(("name", "knows", "does"), row, strict=True)) for row in rows]}
    return record, "\n".join(lines), 0


def _does(change: Edit) -> str:
    """The first sentence of what its class says about itself."""
    return (type(change).__doc__ or "").strip().partition("\n")[0]


def load_named(name: str, seed: int) -> Task:
    """A task by its name; a backbone after a stroke is not needed and ignored."""
    from invgnn.training.tasks import load_task

    return load_task(name.partition("/")[0], seed)


def load_for(task: Task, path: Path) -> Backbone:
    """The model in a file, if it was made for this task."""
    from invgnn.nn.model_file import load_model

    model = cast("Backbone", load_model(path))
    wanted = {"level": task.level, "in_channels": task.num_features, "out_channels": task.num_classes}
    differ = [f"{part} {model.architecture[part]}, not {value}" for part, value in wanted.items()
              if model.architecture[part] != value]  # fmt: skip
    if differ:
        raise ParameterError(
            f"{path} does not fit {task.name}: it has {'; '.join(differ)}",
            "give the task it was trained on",
        )
    return model
