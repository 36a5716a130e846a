"""invgnn carriers: draw the carriers of a mark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from invgnn.cli.console import check_output, find_passphrase, open_passphrase, progress, verb
from invgnn.cli.options import Json, NoPassphrase, Overwrite, OwnData, PassphraseFile, SplitSeed
from invgnn.cli.own_models import load_data, load_transform, one_of

if TYPE_CHECKING:
    from invgnn.readout.reading import Access
    from invgnn.secret import Secret
    from invgnn.watermark.mark import Key, Watermark

LEAST_FEATURES = 16
"""Fewest features of a score channel, as in the context of a mark; repeated here for a fast start."""

EXAMPLES = """\b
Examples:
  invgnn carriers --secret acme.secret --task PROTEINS -o acme.mark
  invgnn carriers --secret acme.secret --task Cora --access logits,labels \\
      -o acme.mark
  invgnn carriers --secret acme.secret --data nets:graphs -o acme.mark
"""


@verb
def carriers(
    secret: Annotated[Path, typer.Option(metavar="FILE", help="Secret written by invgnn keygen.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the mark.")
    ],
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="Task whose training data the carriers are drawn from: BA-2motif, PROTEINS, NCI1, MUTAG, "
            "ENZYMES, Cora, CiteSeer, PubMed or Photo.",
        ),
    ] = None,
    data: OwnData = None,
    transform: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:NAME",
            help="With --data: a transform that the model's inputs pass through, such as a positional "
            "encoding: MODULE:NAME of the object, or of its class or function. --data returns the graphs "
            "without it.",
        ),
    ] = None,
    m: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of carriers, one bit each; must be even.",
            show_default="128; with --stealth on graph tasks 256",
        ),
    ] = None,
    access: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Access levels at which suspects may be read, comma-separated: embedding (you have the "
            "weights), logits (an API that returns scores), labels (an API that returns only labels), "
            "values (an API that returns real numbers or several independent labels).",
            show_default="embedding,logits, or embedding,values",
        ),
    ] = None,
    layer: Annotated[
        str,
        typer.Option(
            metavar="LAYER",
            help="Layer to read at the level embedding: NAME for its output, NAME:in for its input, auto "
            "for the input of the last layer.",
        ),
    ] = "auto",
    invariant: Annotated[
        str,
        typer.Option(metavar="NAME", help="Graph invariant: lambda2, spectral_radius or triangle_count."),
    ] = "lambda2",
    key: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where the bits come from: keyed (the secret) or plain (the invariant, as in the paper; "
            "verification then needs many unmarked controls).",
        ),
    ] = "keyed",
    statistic: Annotated[
        str, typer.Option(metavar="NAME", help="Test statistic: combined, matches or rank.")
    ] = "combined",
    size_quantile: Annotated[
        float, typer.Option(metavar="Q", help="Use only task graphs up to this quantile of size.")
    ] = 0.25,
    delta: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="Reject a carrier whose statistics differ from the task's with a p-value below P.",
        ),
    ] = 0.1,
    donors: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Number of task nodes whose features a carrier gets (feature donors). 0 keeps the "
            "features of its seed graph: carriers are then harder to detect among queries to an API, but "
            "also harder to embed.",
        ),
    ] = 3,
    stealth: Annotated[
        bool,
        typer.Option(
            "--stealth",
            help="Draw carriers that a server can hardly tell from ordinary queries. Such marks are weaker "
            "and cost more accuracy. Decides --donors, --size-quantile and --delta.",
        ),
    ] = False,
    score_channel: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Add a score channel with N public features, 16 or more. auto takes one for every 20 "
            "inputs, at most 128. It can survive distillation. It doubles the training time, and verify "
            "needs --task.",
        ),
    ] = None,
    tsa: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Bind the bits to a token of this time-stamping authority (RFC 3161). Every other key "
            "would cost another request. The token is written to FILE.token; invgnn claim needs it.",
        ),
    ] = None,
    seed: SplitSeed = 41,
    passphrase_file: PassphraseFile = None,
    no_passphrase: NoPassphrase = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Draw the carriers for a task and write the mark.

    Carriers are rewired task graphs with features of other task nodes. They keep the degrees of the
    original graph, have ordinary clustering and equal no training graph. The mark contains the secret, the
    carriers and the ways in which suspects may be read. All of this is fixed here, before any suspect is
    examined, and cannot be changed later.

    Writes the mark to FILE, encrypted with the passphrase of the secret, and prints the sizes of the
    carriers and the number of rejected candidates.
    """
    from invgnn.errors import ParameterError
    from invgnn.secret import Secret

    one_of(task, data)
    if transform is not None and data is None:
        raise ParameterError("--transform is for your own data", "give --data, or leave it out")
    features = _features(score_channel)
    if stealth and (size_quantile, delta, donors) != (0.25, 0.1, 3):
        raise ParameterError(
            "--stealth decides --donors, --size-quantile and --delta", "leave these out, or --stealth"
        )
    check_output(output, overwrite)
    beside = output.with_name(f"{output.name}.token")
    if tsa is not None:
        check_output(beside, overwrite)
    opened = open_passphrase(secret, passphrase_file)
    held = Secret.load(secret, opened)
    passphrase = None if no_passphrase else opened or find_passphrase(output, passphrase_file, new=True)

    from invgnn.training.tasks import load_task
    from invgnn.watermark.drawing import USUAL
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.sampler import Sampler
    from invgnn.watermark.stealth import CARRIERS

    loaded = None if task is None else load_task(task.partition("/")[0], seed)
    levels = access and list(dict.fromkeys(level.strip() for level in access.split(",")))
    options: dict[str, Any] = {
        "m": m,
        "access": cast("list[Access] | None", levels or None),  # this and the key are checked by draw
        "layer": layer,
        "transform": None if transform is None else load_transform(transform),
        "classes": None if loaded is None else loaded.num_classes,
        "invariant": invariant,
        "key": cast("Key", key),
        "statistic": statistic,
        "score_channel": features,
        "stealth": stealth,
        "sampler": None
        if stealth
        else Sampler(size_quantile=size_quantile, delta=delta, donors=donors or None),
    }
    graphs = load_data(str(data)) if loaded is None else loaded.data
    with progress("drawing carriers", m or (max(CARRIERS.values()) if stealth else USUAL)) as tick:
        if tsa is None:
            mark = Watermark.draw(held, graphs, **options, progress=tick)
        else:
            mark = _draw_bound(held, graphs, tsa, options, beside, overwrite)
    mark.save(output, passphrase, insecure_no_passphrase=no_passphrase, overwrite=overwrite)
    sizes = [int(mark.carriers.sizes.min()), int(mark.carriers.sizes.max())]
    record = {
        "mark": str(output),
        "digest": mark.digest,
        "context": mark.context,
        "refused": mark.rejected,
        "sizes": sizes,
    }
    refused = ", ".join(f"{why} {count}" for why, count in mark.rejected.items()) or "none"
    words = f"wrote {output}: {mark!r}\n{sizes[0]} to {sizes[1]} nodes each; candidates rejected: {refused}"
    return record, words, 0


def _features(given: str | None) -> int | Literal["auto"] | None:
    """Return the size of the score channel as `Watermark.draw` takes it."""
    if given is None or given == "auto":
        return None if given is None else "auto"
    if not given.isascii() or not given.isdigit() or int(given) < LEAST_FEATURES:
        raise typer.BadParameter(
            f"{given!r} is neither auto nor a whole number from {LEAST_FEATURES}.",
            param_hint="'--score-channel'",
        )
    return int(given)


def _draw_bound(
    secret: Secret, data: Any, tsa: str, options: dict[str, Any], beside: Path, overwrite: bool
) -> Watermark:
    """Draw a mark that is bound to a token, and write the token beside it."""
    from invgnn.court.bound import draw_bound

    mark, token = draw_bound(secret, data, tsa, **options)
    token.save(beside, overwrite=overwrite)
    return mark
