"""invgnn verify: test whether a suspect contains a mark."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.console import check_input, check_output, fold, open_passphrase, verb
from invgnn.cli.loading import load_suspect, load_task_data
from invgnn.cli.options import Alpha, Json, Mark, Overwrite, OwnData, PassphraseFile, SplitSeed
from invgnn.cli.own_models import load_data

if TYPE_CHECKING:
    from invgnn.audit.verdict import Verdict

EXIT_CODES = """\b
Exit codes:
    0  owned: at least 80 bits of evidence
    1  not shown: chance can explain the answers
    2  error, explained on standard error; there is no verdict
    3  inconclusive: too little evidence, a control that also verifies, or
       code of the claimant that nobody has reviewed
  130  interrupted
"""
EXAMPLES = """\b
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
    mark: Mark,
    model: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Suspect: a model written by invgnn embed or, with --architecture, a file of weights "
            "alone (.safetensors, or a state dict or checkpoint in .pt, .pth or .ckpt).",
        ),
    ],
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:FUNC",
            help="For weights alone: MODULE:FUNCTION, a function without arguments that returns the model, "
            "without hooks and unsaved tensors. The module is imported and executed.",
        ),
    ] = None,
    code_from: Annotated[
        str,
        typer.Option(
            metavar="WHO",
            help="Who wrote the classes of --architecture that no known library defines. auditor: you "
            "wrote or reviewed them. claimant: the claimant supplied them and nobody has reviewed them; "
            "the verdict lists them and is never owned.",
        ),
    ] = "auditor",
    access: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Read only this declared level: embedding, logits, labels or values. Default: all "
            "declared levels that the suspect supports, in one pass. The evidence is corrected for all of "
            "them either way.",
        ),
    ] = None,
    alpha: Alpha = 1e-6,
    control: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Unmarked model, which must not verify. Can be given several times."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="Task that the mark was drawn from, with the same --seed. Required, or --data, if the "
            "mark has a score channel.",
        ),
    ] = None,
    data: OwnData = None,
    seed: SplitSeed = 41,
    suspects: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of suspects tested with this mark. log2 N bits are subtracted from the evidence.",
        ),
    ] = 1,
    answers: Annotated[
        bool,
        typer.Option(
            "--answers", help="Include raw answers and bits in the JSON output. They are private."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the verdict as an HTML page. It is private."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Test whether a suspect contains a mark and print the verdict.

    For a keyed mark the p-value is exact: a model unrelated to the secret matches this well with
    probability at most p, whatever the model and the graphs. This holds if the secret is older than the
    suspect and the reading was declared in advance. A plain mark is only compared with the controls, and
    its verdict is never owned.

    The suspect is read at every declared level, its class columns are matched to the classes, and refused
    inputs are counted. The evidence is corrected for every test that is made. The verdict lists the code
    that ran between you and the weights.
    """
    check_input(mark, model, *(control or ()))
    if report is not None:
        check_output(report, overwrite)
    passphrase = open_passphrase(mark, passphrase_file)

    from invgnn.audit.verify import verify as judge
    from invgnn.watermark.mark import Watermark

    held = Watermark.load(mark, passphrase)
    verdict = judge(
        load_suspect(model, architecture),
        held,
        alpha,
        data=load_data(data) if data else load_task_data(task, seed),
        access=access,  # type: ignore[arg-type]  # checked against the mark's declared readings
        controls=[load_suspect(path, architecture) for path in control or ()],
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
        words += ["--data", data] if data else []
        words += ["--suspects", suspects]
        command = shlex.join(["invgnn", "verify", *map(str, words)])
        write_report(report, verdict, mark=held, command=command, overwrite=overwrite)
    record = verdict.to_json(private=answers)  # a report needs them, too
    return record, fold(f"{verdict}\n{_between(verdict)}", 13), verdict.exit_code


def _between(verdict: Verdict) -> str:
    """List the code between the auditor and the weights, and the digests to compare."""
    code = verdict.code
    foreign = [f"{one['what']} {one['name']} from the {one['origin']}" for one in code["foreign"]]
    lines = [f"  code       {'; '.join([*code['libraries'], *foreign]) or 'none listed'}"]
    for name, what in (("unsaved", "tensors that no weights file contains"), ("unknown", "not covered")):
        lines += [f"  {name:<9}  {'; '.join(code[name])} ({what})"] if code[name] else []
    return "\n".join([*lines, *(f"  {name:<9}  {digest}" for name, digest in verdict.digests.items())])
