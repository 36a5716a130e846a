"""invgnn claim: claim a marked model, before it is released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.console import check_input, check_outputs, fold, note, open_passphrase, verb
from invgnn.cli.loading import load_suspect, load_task_data
from invgnn.cli.options import (
    Alpha,
    IdentityFile,
    Json,
    KeyPassphraseFile,
    Mark,
    OptionalTask,
    Overwrite,
    OwnData,
    PassphraseFile,
    SplitSeed,
    Tsa,
)
from invgnn.cli.own_models import load_data, one_of
from invgnn.errors import InvgnnError, ParameterError

if TYPE_CHECKING:
    from invgnn.watermark.mark import Watermark

EXAMPLES = """\b
Examples:
  invgnn claim --mark acme.mark --model acme.model --task PROTEINS \\
      --key acme.key --tsa https://tsa.example/tsr -o claim.json
  invgnn claim --mark acme.mark --model weights.safetensors \\
      --architecture nets:build --data nets:graphs --key acme.key \\
      -o claim.json
"""


@verb
def claim(
    mark: Mark,
    model: Annotated[Path, typer.Option(metavar="FILE", help="Marked model that will be released.")],
    key: IdentityFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the claim.")
    ],
    task: OptionalTask = None,
    data: OwnData = None,
    tsa: Tsa = None,
    token: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Token that the mark is bound to. Default: the file MARK.token, if the mark is bound.",
        ),
    ] = None,
    label: Annotated[
        str, typer.Option(metavar="TEXT", help="Public remark, such as the number of a licence.")
    ] = "",
    supersedes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Earlier claim that this one replaces, e.g. after a refresh."),
    ] = None,
    statement: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write an in-toto statement about the model file that contains the claim, signed "
            "with your key in a DSSE envelope, for other attestation tools.",
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(metavar="MOD:FUNC", help="For weights alone: function that returns the model."),
    ] = None,
    alpha: Alpha = 1e-6,
    seed: SplitSeed = 41,
    passphrase_file: PassphraseFile = None,
    key_passphrase_file: KeyPassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Claim a marked model, before it is released.

    A claim is a public file. It commits to the secret, to every carrier with its bit, to the baseline
    scores and to the way a suspect is decided about, and reveals none of the secrets. Your signature
    shows that you made it, and the timestamp that it existed before the model was released. Publish it,
    or keep it: only the date counts.

    Writes the claim to FILE and prints its digest.
    """
    one_of(task, data)
    check_input(mark, model, key, token, supersedes)
    check_outputs(output, statement, overwrite=overwrite)
    opened = open_passphrase(mark, passphrase_file)
    own = open_passphrase(key, key_passphrase_file or passphrase_file)

    from invgnn.court.bound import Token
    from invgnn.court.claim import Claim
    from invgnn.court.identity import Identity
    from invgnn.watermark.mark import Watermark

    held, owner = Watermark.load(mark, opened), Identity.load(key, own)
    if token is not None and "token" not in held.context:
        raise ParameterError(f"{mark} is not bound to a token", "leave out --token, or give the right mark")
    beside = token or mark.with_name(f"{mark.name}.token")
    bound = Token.load(beside) if "token" in held.context else None
    claimed = load_suspect(model, architecture)
    known = load_data(data) if data is not None else load_task_data(task, seed)
    made = Claim.make(
        held,
        claimed,
        owner,
        known,
        alpha=alpha,
        token=bound,
        label=label,
        supersedes=None if supersedes is None else Claim.load(supersedes).digest,
    )
    _check_mark(claimed, held, alpha, known)
    if tsa is not None:
        made = made.dated(tsa, owner)
    else:
        note("no --tsa: without a timestamp, nothing shows that the claim is older than a suspect")
    made.save(output, overwrite=overwrite)
    if statement is not None:
        from invgnn.court.statement import as_envelope, as_statement
        from invgnn.storage.atomic import write_text

        signed = as_envelope(as_statement(made, [model]), owner)
        write_text(statement, json.dumps(signed, indent=1), overwrite=overwrite)
    record = {
        "claim": str(output),
        "digest": made.digest,
        "owner": made.owner,
        "key": owner.key,
        "dated": tsa is not None,
        "bound": bound is not None,
    }
    return record, fold(f"wrote {output}: claim of {made.owner}\ndigest {made.digest}", 2), 0


def _check_mark(model: Any, mark: Watermark, alpha: float, data: Any) -> None:
    """Say so if the model does not carry the mark: licensees' files are easily exchanged."""
    from invgnn.audit.verify import verify

    try:
        found = verify(model, mark, alpha, data=None if mark.score_channel is None else data)
    except InvgnnError as error:
        note(f"the mark could not be read in the model: {error.message}")
        return
    if found.status == "not shown":
        note("the model does not carry this mark: a judge will find nothing in a copy of it")
