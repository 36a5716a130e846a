"""invgnn carriers: draw the private graphs of a mark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import (
    Json,
    NoPassphrase,
    Overwrite,
    PassphraseFile,
    find_passphrase,
    open_passphrase,
    progress,
    verb,
)


@verb
def carriers(
    secret: Annotated[Path, typer.Option(help="A secret from `invgnn keygen`.")],
    task: Annotated[str, typer.Option(help="A named task, e.g. PROTEINS, NCI1, Cora, BA-2motif.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the mark.")],
    m: Annotated[int, typer.Option(help="How many carriers, and so bits; even.")] = 128,
    access: Annotated[
        str,
        typer.Option(help="Where suspects will be read, comma-separated: embedding, logits, labels."),
    ] = "embedding",
    layer: Annotated[str, typer.Option(help="The layer to read: NAME, NAME:in, or auto.")] = "auto",
    invariant: Annotated[str, typer.Option(help="lambda2, spectral_radius or triangle_count.")] = "lambda2",
    key: Annotated[str, typer.Option(help="keyed (sound) or plain (the paper's).")] = "keyed",
    statistic: Annotated[str, typer.Option(help="combined, matches or rank.")] = "combined",
    size_quantile: Annotated[float, typer.Option(help="Carriers' size cap, a quantile.")] = 0.25,
    delta: Annotated[float, typer.Option(help="Smallest p of the similarity tests.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Split of the task.")] = 41,
    passphrase_file: PassphraseFile = None,
    no_passphrase: NoPassphrase = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Draw carriers for a task and write the mark: secret, carriers and declared readings in one file.

    Carriers are rewired task graphs: same degrees, ordinary clustering, equal to no training graph. The
    access levels are declared here, before any suspect is looked at; they cannot be added later.

    Example: `invgnn carriers --secret acme.secret --task PROTEINS -o acme.mark`
    """
    from invgnn.carriers import Sampler
    from invgnn.secret import Secret
    from invgnn.tasks import load_task
    from invgnn.watermark import Watermark

    opened = open_passphrase(secret, passphrase_file)
    held = Secret.load(secret, opened)
    loaded = load_task(task.partition("/")[0], seed)
    with progress("carriers", m) as tick:
        mark = Watermark.draw(
            held,
            loaded.data,
            m=m,
            access=[a.strip() for a in access.split(",")],  # type: ignore[misc]  # checked by Reading
            layer=layer,
            classes=loaded.num_classes,
            invariant=invariant,
            key=key,  # type: ignore[arg-type]  # checked by draw
            statistic=statistic,
            sampler=Sampler(size_quantile=size_quantile, delta=delta),
            progress=tick,
        )
    passphrase = None if no_passphrase else opened or find_passphrase(passphrase_file)
    mark.save(output, passphrase, insecure_no_passphrase=no_passphrase, overwrite=overwrite)
    record = {
        "mark": str(output),
        "digest": mark.digest,
        "context": mark.context,
        "refused": mark.rejected,
        "sizes": [int(mark.carriers.sizes.min()), int(mark.carriers.sizes.max())],
    }
    refused = ", ".join(f"{k}: {v}" for k, v in mark.rejected.items()) or "none"
    return record, f"wrote {output}: {mark!r}\nrefused: {refused}", 0
