"""invgnn judge: decide about a claim on a suspect, and sign the judgement."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.console import check_input, check_outputs, fold, open_passphrase, verb
from invgnn.cli.loading import load_suspect, load_task_data
from invgnn.cli.options import (
    Alpha,
    Case,
    IdentityFile,
    Json,
    Overwrite,
    PassphraseFile,
    SplitSeed,
    TsaRoots,
)
from invgnn.cli.own_models import load_data, load_transform
from invgnn.errors import ParameterError

if TYPE_CHECKING:
    from invgnn.court.identity import Identity
    from invgnn.court.rivals import Rival

EXIT_CODES = """\b
Exit codes:
    0  owned: every check passed, and the evidence is enough on a ground
    1  not shown: chance can explain the answers
    2  error, explained on standard error; there is no judgement
    3  inconclusive: a check failed, too little evidence, a rival claim, or a
       partial opening
  130  interrupted
"""
EXAMPLES = """\b
Examples:
  invgnn judge claim.json acme.opening --suspect suspect.model \\
      --task PROTEINS --key judge.key --case "5 O 17/26" \\
      --tsa-root tsa.pem --suspect-since 2026-03-01 \\
      --control other.model -o judgement.json --report judgement.html
  invgnn judge claim.json acme.opening --suspect weights.pt \\
      --architecture mine:build --reference mine:data --key judge.key \\
      --case 17 --original acme.model \\
      --rival their.json,their.opening,their.model -o judgement.json
"""


@verb
def judge(
    claim: Annotated[Path, typer.Argument(metavar="CLAIM", help="Claim, a public file.")],
    opening: Annotated[Path, typer.Argument(metavar="OPENING", help="Opening that was made for you.")],
    suspect: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Suspect: a model file or, with --architecture, a file of weights alone."
        ),
    ],
    key: IdentityFile,
    case: Case,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the judgement.")
    ],
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="Named task whose training data the mark was drawn from."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:FUNC",
            help="Instead of --task: your function that returns your own copy of the training data.",
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:FUNC",
            help="For weights alone: your own function that returns the model. Do not run the claimant's.",
        ),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:NAME",
            help="For a mark drawn with a transform of the inputs: the same one from your own source, "
            "such as torch_geometric.transforms:LocalDegreeProfile. Without it the judgement states that "
            "its output was not regenerated. Do not run the claimant's.",
        ),
    ] = None,
    control: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Unmarked model that must not verify. Repeatable."),
    ] = None,
    tsa_root: TsaRoots = None,
    suspect_since: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Date before which the suspect did not exist, as you find from other evidence. Without it "
            "the age of the claim is no ground.",
        ),
    ] = None,
    original: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model that the claim commits to. Needed against rivals."),
    ] = None,
    rival: Annotated[
        list[str] | None,
        typer.Option(
            metavar="C,O[,M[,R]]",
            help="Rival claim: its claim, its opening to you, the model that it commits to and, if it "
            "names other data, your own copy of them as for --reference or --task, separated by commas. "
            "Repeatable.",
        ),
    ] = None,
    revocation: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Revocation that you know of. Repeatable.")
    ] = None,
    alpha: Alpha = 1e-6,
    suspects: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of suspects tested with this mark.")
    ] = 1,
    claims: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Largest number of claims that the claimant may have filed before."
        ),
    ] = 2**20,
    requests: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Largest number of timestamp tokens that the claimant may have bought."
        ),
    ] = 2**30,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the judgement as an HTML page.")
    ] = None,
    seed: SplitSeed = 41,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Decide about a claim on a suspect, and sign the judgement. Needs no network.

    You regenerate the whole mark from the opened secret and your own copy of the data, compare it with
    what was claimed, ask the suspect, and weigh the answers. Take nothing from the claimant but the claim
    and the opening. The judgement states every check, the evidence, what it rests on and what would void
    it.

    Writes the judgement to FILE. It contains no secret, and anybody can check it with invgnn check.
    """
    check_input(claim, opening, suspect, key, original, *(control or ()), *(tsa_root or ()))
    check_outputs(output, report, overwrite=overwrite)
    if (task is None) == (reference is None):
        raise ParameterError("give --task or --reference, not both", "use your own copy of the data")
    passphrase = open_passphrase(key, passphrase_file)

    from invgnn.court.claim import Claim
    from invgnn.court.exhibits import Exhibits
    from invgnn.court.identity import Identity
    from invgnn.court.judging import judge as decide
    from invgnn.court.opening import load_opening
    from invgnn.court.revocation import Revocation, parse_time
    from invgnn.court.timestamp import load_roots

    who = Identity.load(key, passphrase)
    exhibits = Exhibits(
        load_suspect(suspect, architecture),
        load_task_data(task, seed) if reference is None else load_data(reference),
        transform=None if transform is None else load_transform(transform),
        controls=[load_suspect(path, architecture) for path in control or ()],
        roots=[one for path in tsa_root or () for one in load_roots(path)],
        suspect_since=None if suspect_since is None else parse_time(suspect_since),
        revocations=[Revocation.load(path) for path in revocation or ()],
        alpha=alpha,
        suspects=suspects,
        claims=claims,
        requests=requests,
    )
    options: dict[str, Any] = {
        "--suspect": suspect,
        "--key": key,
        "--case": case,
        "--task": task,
        "--seed": seed if task else None,
        "--reference": reference,
        "--architecture": architecture,
        "--transform": transform,
        "--control": control,
        "--tsa-root": tsa_root,
        "--suspect-since": suspect_since,
        "--original": original,
        "--rival": rival,
        "--revocation": revocation,
        "--alpha": f"{alpha:g}",
        "--suspects": suspects,
        "--claims": claims,
        "--requests": requests,
        "--output": output,
    }
    found = decide(
        Claim.load(claim),
        load_opening(opening, who),
        exhibits,
        who,
        case,
        original=None if original is None else load_suspect(original, architecture),
        rivals=[_rival(one, who, architecture, seed) for one in rival or ()],
        recheck=_command(claim, opening, options),
    )
    found.save(output, overwrite=overwrite)
    if report is not None:
        from invgnn.court.page import write_judgement

        write_judgement(report, found, overwrite=overwrite)
    record = {"judgement": str(output), "digest": found.document.digest, **found.payload}
    return record, fold(f"{found}\n  wrote      {output}", 13), found.exit_code


def _command(claim: Path, opening: Path, options: dict[str, Any]) -> str:
    """Return the command that repeats a judgement."""
    words = ["invgnn", "judge", str(claim), str(opening)]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [] if one is None else [name, str(one)]
    return shlex.join(words)


def _rival(text: str, who: Identity, architecture: str | None, seed: int) -> Rival:
    """Return a rival claim from its files, with the judge's copy of its data if they are others."""
    from invgnn.court.claim import Claim
    from invgnn.court.opening import load_opening
    from invgnn.court.rivals import Rival

    given, opening, model, data = [*text.split(","), "", "", ""][:4]
    if text.count(",") not in (1, 2, 3) or not given or not opening:
        raise ParameterError(
            f"{text!r} does not name a rival", "give CLAIM,OPENING or CLAIM,OPENING,MODEL[,REFERENCE]"
        )
    shown = Path(model) if model else None
    check_input(Path(given), Path(opening), shown)
    return Rival(
        Claim.load(given),
        load_opening(opening, who),
        None if shown is None else load_suspect(shown, architecture),
        (load_data(data) if ":" in data else load_task_data(data, seed)) if data else None,
    )
