"""invgnn carriers: draw the private graphs of a mark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import (
    Json,
    NoPassphrase,
    Overwrite,
    PassphraseFile,
    Seed,
    check_output,
    find_passphrase,
    open_passphrase,
    progress,
    verb,
)

if TYPE_CHECKING:
    from invgnn.readout.reading import Access
    from invgnn.watermark.mark import Key

EXAMPLES = """\b
Examples:
  invgnn carriers --secret acme.secret --task PROTEINS -o acme.mark
  invgnn carriers --secret acme.secret --task Cora --access logits,labels \\
      -o acme.mark
"""


@verb
def carriers(
    secret: Annotated[Path, typer.Option(metavar="FILE", help="A secret from invgnn keygen.")],
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK",
            help="Draw from its training data: BA-2motif, PROTEINS, NCI1, MUTAG, ENZYMES, Cora, "
            "CiteSeer, PubMed or Photo.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the mark.")
    ],
    m: Annotated[
        int, typer.Option(metavar="N", help="How many carriers, one bit each; even. See invgnn threshold.")
    ] = 128,
    access: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="What suspects will show you, comma-separated: embedding (you have the weights), logits "
            "(an API with scores), labels (an API with labels only).",
        ),
    ] = "embedding,logits",
    layer: Annotated[
        str,
        typer.Option(
            metavar="LAYER",
            help="For embedding: a layer's NAME (its output) or NAME:in (its input); auto is the input "
            "of the last layer.",
        ),
    ] = "auto",
    invariant: Annotated[
        str, typer.Option(metavar="NAME", help="lambda2, spectral_radius or triangle_count.")
    ] = "lambda2",
    key: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Bits from the secret (keyed), or from the invariant as in the paper (plain: needs many "
            "unmarked controls to verify).",
        ),
    ] = "keyed",
    statistic: Annotated[
        str, typer.Option(metavar="NAME", help="How answers are weighed: combined, matches or rank.")
    ] = "combined",
    size_quantile: Annotated[
        float, typer.Option(metavar="Q", help="Use task graphs up to this quantile of size.")
    ] = 0.25,
    delta: Annotated[
        float,
        typer.Option(metavar="P", help="Smallest p at which a carrier still passes for a task graph."),
    ] = 0.1,
    donors: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="How many nodes of the task lend a carrier their features; 0 keeps those of its seed "
            "graph: harder to spot among questions to an API, harder to teach.",
        ),
    ] = 3,
    score_channel: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=16,
            help="Add a score channel of N public features, e.g. 128, or 1 for every 20 inputs if fewer. "
            "It outlives distillation, doubles the time of training, and verify needs --task.",
        ),
    ] = None,
    seed: Seed = 41,
    passphrase_file: PassphraseFile = None,
    no_passphrase: NoPassphrase = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Draw private graphs for a task and write the mark.

    Carriers are rewired task graphs with features lent by other nodes of the task: same degrees, ordinary
    clustering, equal to no training graph. The mark holds the secret, the carriers and how suspects may
    be read. All that is fixed here, before any suspect is looked at, and cannot be changed later. The mark
    is sealed with the secret's passphrase.
    """
    from invgnn.secret import Secret

    check_output(output, overwrite)
    opened = open_passphrase(secret, passphrase_file)
    held = Secret.load(secret, opened)
    passphrase = None if no_passphrase else opened or find_passphrase(output, passphrase_file, new=True)

    from invgnn.training.tasks import load_task
    from invgnn.watermark.sampler import Sampler
    from invgnn.watermark.mark import Watermark

    loaded = load_task(task.partition("/")[0], seed)
    levels = list(dict.fromkeys(level.strip() for level in access.split(",")))
    with progress("drawing carriers", m) as tick:
        mark = Watermark.draw(
            held,
            loaded.data,
            m=m,
            access=cast("list[Access]", levels),  # these two are checked by draw
            layer=layer,
            classes=loaded.num_classes,
            invariant=invariant,
            key=cast("Key", key),
            statistic=statistic,
            score_channel=score_channel,
            sampler=Sampler(size_quantile=size_quantile, delta=delta, donors=donors or None),
            progress=tick,
        )
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
    words = f"wrote {output}: {mark!r}\n{sizes[0]} to {sizes[1]} nodes each; candidates refused: {refused}"
    return record, words, 0
