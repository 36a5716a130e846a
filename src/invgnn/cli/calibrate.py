"""invgnn calibrate: find a weight for the loss of the mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import fold, progress, verb
from invgnn.cli.options import (
    Json,
    M,
    OptionalSetting,
    OwnArchitecture,
    OwnData,
    OwnForward,
    TrainingSeed,
)
from invgnn.cli.own_models import both_or_neither, build_model, load_own_task, one_of
from invgnn.errors import ParameterError

if TYPE_CHECKING:
    from invgnn.readout.reading import Access
    from invgnn.theory.outcome import Calibration, Trial

EXAMPLES = """\b
Examples:
  invgnn calibrate --task PROTEINS/GIN
  invgnn calibrate --task PROTEINS/GIN --access perception --eps 0.02
  invgnn calibrate --architecture nets:build --data nets:graphs --epochs 40
  invgnn calibrate --task BA-2motif/GIN --epochs 20 --checkpoints 5 \\
      --marked 5 --graphs 16 --grid 0.1,1
"""


@verb
def calibrate(
    task: OptionalSetting = None,
    architecture: OwnArchitecture = None,
    data: OwnData = None,
    forward: OwnForward = None,
    access: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the mark acts on: embedding or logits (keyed mark), or perception (the paper's "
            "extra head, with its plain key).",
        ),
    ] = "embedding",
    eps: Annotated[
        float,
        typer.Option(
            metavar="EPS", help="Tolerated increase of the task loss, and tolerated drop of accuracy."
        ),
    ] = 0.02,
    grid: Annotated[
        str, typer.Option(metavar="LIST", help="Weights to try, comma-separated.")
    ] = "0.01,0.1,1,10",
    epochs: Annotated[
        int, typer.Option(metavar="N", min=2, help="Epochs of training without the mark.")
    ] = 100,
    checkpoints: Annotated[
        int,
        typer.Option(
            metavar="K", min=2, help="Number of last checkpoints of this training to measure mu on."
        ),
    ] = 20,
    marked: Annotated[
        int, typer.Option(metavar="N", min=1, help="Additional epochs with the mark, for each weight.")
    ] = 30,
    graphs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of task graphs to measure L_s on.")
    ] = 128,
    m: M = 128,
    seed: TrainingSeed = 41,
    json_: Json = False,
) -> Any:
    """Find a weight of the mark's loss that keeps the accuracy.

    A theorem certifies a weight beta below which the mark raises the task loss by at most eps. It needs two
    constants: mu (how steeply the loss rises around its minimum) and L_s (how fast the model's answers
    change with its weights). This command measures both on a model of the task. It then trains briefly with
    each weight and prints which weights keep the accuracy and which embed the mark.

    The certified weight is usually far too small to embed a mark. The output then shows both the certified
    and the useful weight. No secret is needed, and no file is written. Takes a few minutes on PROTEINS/GIN.

    For a model of your own, --architecture names a function that builds it and --data one that returns
    labelled graphs. The model should have no dropout.
    """
    one_of(task, data)
    both_or_neither(architecture, data)
    if forward is not None and data is None:
        raise ParameterError("--forward is for a model of your own", "give --architecture and --data")
    from invgnn.nn.rng import seeded
    from invgnn.theory.calibration import calibrate as run
    from invgnn.theory.outcome import Plan

    plan = Plan(
        access=cast("Access", access),  # checked where the mark is drawn
        eps=eps,
        grid=_weights(grid),
        epochs=epochs,
        checkpoints=min(checkpoints, epochs),
        marked=marked,
        graphs=graphs,
        m=m,
        seed=seed,
    )
    if architecture is not None and data is not None:
        own = load_own_task(data, seed, forward)
        with seeded(seed):
            model = build_model(architecture)
        found = run(f"{data}/{architecture}", plan, task=own, model=model, stage=progress)
    else:
        found = run(str(task), plan, stage=progress)
    return found.record(), _words(found), 0


def _weights(text: str) -> tuple[float, ...]:
    """Parse the list of weights."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(
            f"the grid {text!r} is not a list of numbers", "give e.g. --grid 0.01,0.1,1"
        ) from None


def _words(found: Calibration) -> str:
    """Return the result as text."""
    bend, steep, eps = found.curvature, found.lipschitz, found.plan.eps
    best = found.accurate
    certain = f"{bend.envelope:.3g}, the minimum over {bend.points} points; the regression would give"
    nearby = "" if steep.nearby is None else f"; nearby {steep.nearby:.3g}"
    lines = [
        f"mu     {certain} {bend.fitted:.3g}",
        f"L_s    {steep.value:.3g}, {steep.buffer:.0%} above the largest value measured{nearby}",
        f"beta   {found.certified:.3g} certified for eps {eps:g}",
        f"       {found.paper:.3g} by the paper's formula, which is unsound",
        f"       {best.beta:g} is the largest weight tried that keeps the validation accuracy"
        if best
        else f"       no weight tried keeps the validation accuracy within {eps:g}",
        "",
        *_table(found),
        "",
        fold(_conclusion(found), 0),
    ]
    failed = [a for a in found.chosen.theorem.assumptions if a.holds is False]
    if failed:
        lines.append("The assumptions of the theorem were checked. These fail at the certified weight:")
        lines += [f"- {assumption.says}" for assumption in failed]
    return "\n".join(fold(line, 7) for line in lines)


def _table(found: Calibration) -> list[str]:
    """Return one line for each trial."""
    head = "                 beta   val   test   loss +/-   T of m   evidence   theorem"
    named = [("no mark", found.control), ("certified", found.chosen)]
    named += [("", trial) for trial in found.trials]
    return [head, *(_row(name, trial) for name, trial in named)]


def _row(name: str, trial: Trial) -> str:
    """Return the line of one trial."""
    bits = "-" if trial.bits is None else f"{trial.bits:.1f} bits"
    standing = trial.theorem.standing if trial.beta else ""
    return (
        f"{name:<10}{trial.beta:>11.3g} {trial.val_acc:>5.3f}  {trial.test_acc:>5.3f}  "
        f"{trial.theorem.gap:>+9.4f}  {trial.matches:>3}/{trial.m:<4} {bits:>9}   {standing}"
    ).rstrip()


def _conclusion(found: Calibration) -> str:
    """Return what the trials show, in one or two sentences."""
    chosen, useful = found.chosen, found.useful
    if chosen.embedded:
        return f"The certified weight {chosen.beta:.3g} embeds the mark: {_evidence(chosen)}."
    amount = "too little" if chosen.found_at(0.05) else "nothing"
    certified = f"The certified weight {chosen.beta:.3g} embeds {amount}: {_evidence(chosen)}."
    if useful is not None:
        works = f"The useful weight is {useful.beta:g}: {_evidence(useful)}. No theorem certifies it."
        return f"{certified} {works}"
    return (
        f"{certified} No weight tried embeds the mark and keeps the accuracy: train longer, or try other "
        "weights."
    )


def _evidence(trial: Trial) -> str:
    """Describe the matches and the evidence of a trial."""
    evidence = "no exact null" if trial.bits is None else f"{trial.bits:.1f} bits of evidence"
    return f"{trial.matches} of {trial.m} bits match, {evidence}"
