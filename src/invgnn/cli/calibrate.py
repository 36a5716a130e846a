"""invgnn calibrate: how strong a mark may be, and how strong it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import Json, fold, progress, verb
from invgnn.errors import ParameterError

if TYPE_CHECKING:
    from invgnn.readout.reading import Access
    from invgnn.theory.outcome import Calibration, Trial

EXAMPLES = """\b
Examples:
  invgnn calibrate --task PROTEINS/GIN
  invgnn calibrate --task PROTEINS/GIN --access perception --eps 0.02
  invgnn calibrate --task BA-2motif/GIN --epochs 20 --checkpoints 5 \\
      --marked 5 --graphs 16 --grid 0.1,1
"""


@verb
def calibrate(
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK/BACKBONE", help="A task, and GCN, GraphSAGE, SGC or GIN; e.g. PROTEINS/GIN."
        ),
    ],
    access: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the mark acts on: embedding or logits (a keyed mark), or perception (the paper's "
            "head in the model, with its plain key).",
        ),
    ] = "embedding",
    eps: Annotated[
        float,
        typer.Option(metavar="EPS", help="Tolerated rise of the task loss, and drop of accuracy."),
    ] = 0.02,
    grid: Annotated[
        str, typer.Option(metavar="LIST", help="Weights to try, comma-separated.")
    ] = "0.01,0.1,1,10",
    epochs: Annotated[int, typer.Option(metavar="N", min=2, help="Epochs of the unmarked model.")] = 100,
    checkpoints: Annotated[
        int, typer.Option(metavar="K", min=2, help="How many of its last checkpoints are recorded.")
    ] = 20,
    marked: Annotated[
        int, typer.Option(metavar="N", min=1, help="Further epochs with the mark, for every weight.")
    ] = 30,
    graphs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Task graphs over which L_s is taken.")
    ] = 128,
    m: Annotated[int, typer.Option(metavar="N", help="How many carriers, one bit each; even.")] = 128,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Fixes split, first weights and order of batches.")
    ] = 41,
    json_: Json = False,
) -> Any:
    """Find how strong a mark may be, and how strong it must be.

    A theorem certifies a weight beta below which the mark raises the task loss by at most eps. It needs
    two constants, mu (how steeply the loss rises around its minimum) and L_s (how fast the model's
    answers move with its weights). Both are measured here on a model of the task; then short trainings
    show which weights keep the accuracy, and which embed anything.

    The certified weight is usually far too small to embed a mark: then both are shown. No secret is
    needed, and nothing is written. Takes a few minutes on PROTEINS/GIN.
    """
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
    found = run(task, plan, stage=progress)
    return found.record(), _words(found), 0


def _weights(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(f"grid {text!r} is no list of numbers", "write e.g. 0.01,0.1,1") from None


def _words(found: Calibration) -> str:
    bend, steep, eps = found.curvature, found.lipschitz, found.plan.eps
    best = found.accurate
    certain = f"{bend.envelope:.3g}, the least at {bend.points} points; the regression would say"
    nearby = "" if steep.nearby is None else f"; nearby {steep.nearby:.3g}"
    lines = [
        f"mu     {certain} {bend.fitted:.3g}",
        f"L_s    {steep.value:.3g}, {steep.buffer:.0%} above the largest measured{nearby}",
        f"beta   {found.certified:.3g} certified for eps {eps:g}",
        f"       {found.paper:.3g} by the paper's formula, which is unsound",
        f"       {best.beta:g} the largest tried that keeps validation accuracy"
        if best
        else f"       none of those tried keeps validation accuracy within {eps:g}",
        "",
        *_table(found),
        "",
        fold(_conclusion(found), 0),
    ]
    failed = [a for a in found.chosen.theorem.assumptions if a.holds is False]
    if failed:
        lines.append("The theorem's assumptions were looked at, and some fail at the certified weight:")
        lines += [f"- {assumption.says}" for assumption in failed]
    return "\n".join(fold(line, 7) for line in lines)


def _table(found: Calibration) -> list[str]:
    head = "                 beta   val   test   loss +/-   T of m   evidence   theorem"
    named = [("no mark", found.control), ("certified", found.chosen)]
    named += [("", trial) for trial in found.trials]
    return [head, *(_row(name, trial) for name, trial in named)]


def _row(name: str, trial: Trial) -> str:
    bits = "-" if trial.bits is None else f"{trial.bits:.1f} bits"
    standing = trial.theorem.standing if trial.beta else ""
    return (
        f"{name:<10}{trial.beta:>11.3g} {trial.val_acc:>5.3f}  {trial.test_acc:>5.3f}  "
        f"{trial.theorem.gap:>+9.4f}  {trial.matches:>3}/{trial.m:<4} {bits:>9}   {standing}"
    ).rstrip()


def _conclusion(found: Calibration) -> str:
    chosen, useful = found.chosen, found.useful
    if chosen.embedded:
        return f"The certified weight {chosen.beta:.3g} embeds the mark: {_said(chosen)}."
    amount = "too little" if chosen.found_at(0.05) else "nothing"
    said = f"The certified weight {chosen.beta:.3g} embeds {amount}: {_said(chosen)}."
    if useful is not None:
        return f"{said} The useful weight is {useful.beta:g}: {_said(useful)}; no theorem certifies it."
    return f"{said} No weight tried embeds it and keeps accuracy: train longer, or try other weights."


def _said(trial: Trial) -> str:
    evidence = "no exact null" if trial.bits is None else f"{trial.bits:.1f} bits of evidence"
    return f"{trial.matches} of {trial.m} match, {evidence}"
