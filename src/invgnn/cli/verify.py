"""invgnn verify: read a suspect with a mark."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.console import (
    Json,
    Overwrite,
    PassphraseFile,
    Seed,
    check_input,
    check_output,
    fold,
    open_passphrase,
    verb,
)
from invgnn.errors import FileError, ParameterError

if TYPE_CHECKING:
    from invgnn.audit.verdict import Verdict

EXAMPLES = """\b
Exit codes:
  0  owned: at least 80 bits of evidence
  1  not shown: chance explains the answers
  2  the question could not be asked; the reason is on stderr
  3  inconclusive: too little evidence, a control that verifies too, or code
     of the claimant that nobody has read

\b
Examples:
  invgnn verify --mark acme.mark --model suspect.model
  invgnn verify --mark acme.mark --model suspect.model --report verdict.html
  invgnn verify --mark acme.mark --model suspect.pt --control other.pt \\
      --architecture nets:build
  invgnn verify --mark acme.mark --model suspect.pt \\
      --architecture theirs:build --code-from claimant
"""


@verb
def verify(
    mark: Annotated[Path, typer.Option(metavar="FILE", help="A mark from invgnn carriers.")],
    model: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The suspect: a model from invgnn embed or, with --architecture, weights alone "
            "(.safetensors, or a state dict in .pt or .pth).",
        ),
    ],
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:FUNC",
            help="For weights alone: module:function, a function that takes nothing and returns the model, "
            "without hooks and unsaved tensors. It is imported and run.",
        ),
    ] = None,
    code_from: Annotated[
        str,
        typer.Option(
            metavar="WHO",
            help="Who wrote the classes of --architecture that no known library defines. auditor: you did, "
            "or you have read them. claimant: they came with the claim and nobody has read them; the "
            "verdict names them and is never owned.",
        ),
    ] = "auditor",
    access: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Read this declared level alone: embedding, logits or labels. Default: all declared "
            "levels that the suspect can answer, in one pass. One costs as many bits as all.",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(metavar="RATE", help="The false-positive rate you accept.")
    ] = 1e-6,
    control: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="An unmarked model, which must not verify. Repeat it for several."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="For a mark with a score channel: the task that it was drawn from, with the same --seed.",
        ),
    ] = None,
    seed: Seed = 41,
    suspects: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="How many suspects you have read with this mark; costs log2 N bits."
        ),
    ] = 1,
    answers: Annotated[
        bool, typer.Option("--answers", help="Include raw answers and bits in --json. Private.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page as well. Private.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Read a suspect with a mark and say what its answers prove.

    p is exact for a keyed mark: a model unrelated to the secret answers this well with probability at
    most p, whatever the model and the graphs. That holds if the secret is older than the suspect and
    the reading was declared beforehand. A plain mark rests on its controls alone, and never owns.

    Every declared level is read, class columns are matched to the classes, and refused questions are
    counted; evidence pays for all of it. The verdict names the code between you and the weights.
    """
    check_input(mark, model, *(control or ()))
    if report is not None:
        check_output(report, overwrite)
    passphrase = open_passphrase(mark, passphrase_file)

    from invgnn.audit.verify import verify as judge
    from invgnn.watermark.mark import Watermark

    held = Watermark.load(mark, passphrase)
    verdict = judge(
        _load(model, architecture),
        held,
        alpha,
        data=_data(task, seed),
        access=access,  # type: ignore[arg-type]  # checked against the mark's declared readings
        controls=[_load(path, architecture) for path in control or ()],
        code_from=code_from,  # type: ignore[arg-type]  # checked by verify
        suspects=suspects,
        with_answers=answers or report is not None,
    )
    if report is not None:
        from invgnn.audit.report import write_report

        words = ["--mark", mark, "--model", model, "--alpha", f"{alpha:g}"]
        words += ["--access", access] if access else []
        words += ["--architecture", architecture] if architecture else []
        words += ["--code-from", code_from] if code_from != "auditor" else []
        words += [word for path in control or () for word in ("--control", path)]
        words += ["--task", task, "--seed", seed] if task else []
        words += ["--suspects", suspects]
        command = shlex.join(["invgnn", "verify", *map(str, words)])
        write_report(report, verdict, mark=held, command=command, overwrite=overwrite)
    record = verdict.to_json(private=answers)  # a report asks for them too
    return record, fold(f"{verdict}\n{_between(verdict)}", 13), verdict.exit_code


def _between(verdict: Verdict) -> str:
    """What stands between the auditor and the weights, and the digests to compare."""
    code = verdict.code
    foreign = [f"{one['what']} {one['name']} from the {one['origin']}" for one in code["foreign"]]
    lines = [f"  code       {'; '.join([*code['libraries'], *foreign]) or 'none listed'}"]
    for name, what in (("unsaved", "tensors that no weights file holds"), ("unknown", "not covered")):
        lines += [f"  {name:<9}  {'; '.join(code[name])} ({what})"] if code[name] else []
    return "\n".join([*lines, *(f"  {name:<9}  {digest}" for name, digest in verdict.digests.items())])


def _data(task: str | None, seed: int) -> Any:
    if task is None:
        return None
    from invgnn.training.tasks import load_task

    return load_task(task.partition("/")[0], seed).data


def _load(path: Path, architecture: str | None) -> Any:
    """A file of ours as it is, for `verify` to rebuild; weights alone in the architecture that is given."""
    from invgnn.audit.provenance import require_plain
    from invgnn.nn.model_file import load_model
    from invgnn.storage import container

    try:
        ours = container.peek(path)["kind"] == "model"
    except FileError as error:
        if architecture is None:
            advice = "if it holds weights alone, give --architecture MODULE:FUNCTION"
            raise FileError(error.message, advice) from None
        ours = False
    if ours or architecture is None:
        return path
    built = _build(architecture)
    require_plain(built)
    return load_model(path, built)


def _build(name: str) -> Any:
    """What the user's own function returns; the current folder is searched for it too."""
    from torch import nn

    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        model = getattr(importlib.import_module(module), function)()
    except (Exception, SystemExit) as error:  # their code may do anything but decide our exit code
        raise ParameterError(
            f"{name!r} does not give a model: {type(error).__name__}: {error}",
            "give MODULE:FUNCTION, importable from here, whose function needs no arguments",
        ) from error
    if not isinstance(model, nn.Module):
        raise ParameterError(f"{name!r} gives a {type(model).__name__}", "return a torch.nn.Module")
    return model
