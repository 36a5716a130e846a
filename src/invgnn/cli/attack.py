"""invgnn attack: apply an edit or an attack to a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import check_input, check_output, fold, note, verb
from invgnn.cli.options import Json, OptionalModel, OptionalTask, Overwrite, SecondModel, SplitSeed
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
AVERAGE = "average-of-2-copies"  # not registered: this attack needs a second copy


@verb
def attack(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Edit or attack, as named by --list.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List all edits and attacks and exit.")] = False,
    model: OptionalModel = None,
    task: OptionalTask = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write the changed model."),
    ] = None,
    second: SecondModel = None,
    seed: SplitSeed = 41,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Apply an edit or an attack to a model, without the secret.

    An edit is what any user may do: prune, quantise, fine-tune, distil. An attack tries to remove the mark
    and can need more than the model, for example a clean teacher: --list shows what. No attack needs the
    secret. The task supplies the data that the attacker has.

    Writes the changed model to FILE and prints its accuracy before and after. Test it with invgnn verify,
    or use invgnn stress to apply and test all changes.
    """
    if list_:
        return _list()
    if name is None or model is None or task is None or output is None:
        given = {"NAME": name, "--model": model, "--task": task, "-o": output}
        missing = ", ".join(option for option, value in given.items() if value is None)
        raise ParameterError(f"missing: {missing}", "give NAME, --model, --task and -o, or use --list")
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
            f"{chosen!r} changes the answers of a served model, so there is no model to write",
            "use invgnn stress, or in Python apply it and verify the function that it returns",
        )
    note(f"applying {chosen!r}")
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
    """Return all edits and attacks, grouped by what they do and need."""
    from invgnn.attacks.registry import slug
    from invgnn.stress_test.run import every_change, knowledge

    rows = [(slug(change), knowledge(change), _does(change)) for change in every_change()]
    groups: dict[tuple[str, str], list[str]] = {}
    for name, knows, does in rows:
        groups.setdefault((does, knows), []).append(name)
    lines = []
    for (does, knows), names in groups.items():
        lines += [*names, fold(f"    {does}", 4), fold(f"    needs: {knows}", 4)]
    lines += [AVERAGE, "    Average the model with the copy of another licensee, given as --second."]
    record = {"changes": [dict(zip(("name", "knows", "does"), row, strict=True)) for row in rows]}
    return record, "\n".join(lines), 0


def _does(change: Edit) -> str:
    """Return the first line of the docstring of an edit's class."""
    return (type(change).__doc__ or "").strip().partition("\n")[0]


def load_named(name: str, seed: int) -> Task:
    """Load a task by its name.

    Args:
        name: The name; a backbone after a slash is ignored.
        seed: Seed of the split.

    Returns:
        The task.
    """
    from invgnn.training.tasks import load_task

    return load_task(name.partition("/")[0], seed)


def load_for(task: Task, path: Path) -> Backbone:
    """Load a model and check that it fits a task.

    Args:
        task: The task.
        path: The model file.

    Returns:
        The model.

    Raises:
        ParameterError: If its level or its numbers of features or classes differ from the task's.
    """
    from invgnn.nn.model_file import load_model

    model = cast("Backbone", load_model(path))
    wanted = {"level": task.level, "in_channels": task.num_features, "out_channels": task.num_classes}
    differ = [f"{part} {model.architecture[part]}, not {value}" for part, value in wanted.items()
              if model.architecture[part] != value]  # fmt: skip
    if differ:
        raise ParameterError(
            f"{path} does not fit {task.name}: it has {'; '.join(differ)}",
            "give the task that it was trained on",
        )
    return model
