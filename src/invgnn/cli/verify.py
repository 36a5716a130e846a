"""invgnn verify: test whether a suspect contains a mark."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli import endpoint_options as remote_options
from invgnn.cli.console import check_input, check_output, fold, open_passphrase, verb
from invgnn.cli.loading import load_suspect, load_task_data
from invgnn.cli.options import Alpha, Json, Mark, Overwrite, OwnData, OwnForward, PassphraseFile, SplitSeed
from invgnn.cli.own_models import load_data, load_forward
from invgnn.cli.remote import make_endpoint, replay_settings, reporter
from invgnn.errors import ParameterError

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
  invgnn verify --mark acme.mark --endpoint https://host/v2/models/m \\
      --access logits --token-from API_TOKEN --journal audit.jsonl
  invgnn verify --mark acme.mark --endpoint https://host/v2/models/m \\
      --access labels --sequential betting --price 0.01 --budget 5
  invgnn verify --mark acme.mark --transcript audit.jsonl --signer KEY
"""


@verb
def verify(
    mark: Mark,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Suspect: a model written by invgnn embed or, with --architecture, a file of weights "
            "alone (.safetensors, or a state dict or checkpoint in .pt, .pth or .ckpt).",
        ),
    ] = None,
    endpoint: remote_options.EndpointUrl = None,
    transcript: remote_options.TranscriptFile = None,
    signer: remote_options.SignerKey = None,
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
    forward: OwnForward = None,
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
    mapping: remote_options.MappingFile = None,
    header: remote_options.Headers = None,
    token_from: remote_options.Token = None,
    journal: remote_options.JournalFile = None,
    key: remote_options.SignWith = None,
    batch: remote_options.BatchSize = 16,
    rate: remote_options.Rate = None,
    timeout: remote_options.Timeout = 30.0,
    attempts: remote_options.Attempts = 5,
    decoys: remote_options.Decoys = 0,
    repeats: remote_options.Repeats = 8,
    max_queries: remote_options.MaxQueries = None,
    price: remote_options.Price = 0.0,
    budget: remote_options.Budget = None,
    sequential: remote_options.Method = None,
    bits: remote_options.Bits = None,
    events: remote_options.EventsFile = None,
    insecure_http: remote_options.InsecureHttp = False,
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

    A suspect behind HTTP (--endpoint) is asked about the same questions, in the secret's order, among
    ordinary inputs. With --sequential the audit stops early; the evidence pays for that.
    """
    if sum(one is not None for one in (model, endpoint, transcript)) != 1:
        raise ParameterError(
            "give one suspect: --model, --endpoint or --transcript", "a verdict is about one suspect"
        )
    if report is not None and (sequential or transcript):
        raise ParameterError("the page shows the test of all carriers", "leave out --report")
    check_input(mark, model, *(control or ()))
    if report is not None:
        check_output(report, overwrite)
    passphrase = open_passphrase(mark, passphrase_file)

    from invgnn.audit.verify import verify as judge
    from invgnn.watermark.mark import Watermark

    inputs = load_data(data) if data else load_task_data(task, seed)
    held = Watermark.load(mark, passphrase, forward=load_forward(forward, inputs))
    settings: dict[str, Any] = {"alpha": alpha, "access": access, "suspects": suspects}
    suspect: Any
    if transcript is not None:
        suspect, settings = replay_settings(transcript, signer)
    elif endpoint is not None:
        options: dict[str, Any] = {
            "batch": batch,
            "rate": rate,
            "timeout": timeout,
            "attempts": attempts,
            "decoys": decoys,
        }
        options |= {"repeats": repeats, "max_queries": max_queries, "price": price, "budget": budget}
        options |= {"insecure_http": insecure_http, "mapping": mapping, "token": token_from}
        suspect = make_endpoint(endpoint, header, key, passphrase_file, journal=journal, **options)
        settings["progress"] = reporter(events)
    else:
        suspect = load_suspect(model, architecture)  # type: ignore[arg-type]  # one of them was given
    if sequential is not None:
        from invgnn.audit.sequential import Sequential

        settings["sequential"] = Sequential(sequential, bits)  # type: ignore[arg-type]  # checked there
    verdict = judge(
        suspect,
        held,
        data=inputs,
        controls=[load_suspect(path, architecture) for path in control or ()],
        code_from=code_from,  # type: ignore[arg-type]  # checked by verify
        with_answers=answers or report is not None,
        **settings,
    )
    if report is not None:
        from invgnn.audit.report import write_report

        named = ["--model", model] if model else ["--endpoint", endpoint]
        words = ["--mark", mark, *named, "--alpha", f"{alpha:g}"]
        words += ["--access", access] if access else []
        words += ["--architecture", architecture] if architecture else []
        words += ["--code-from", code_from] if code_from != "auditor" else []
        words += [word for path in control or () for word in ("--control", path)]
        words += ["--task", task, "--seed", seed] if task else []
        words += ["--data", data] if data else []
        words += ["--forward", forward] if forward else []
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
