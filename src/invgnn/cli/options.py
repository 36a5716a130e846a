"""Options that several verbs share, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Read the passphrase from the first line of this file. Default: the environment variable "
        "INVGNN_PASSPHRASE; if it is not set, you are prompted.",
    ),
]
NoPassphrase = Annotated[
    bool,
    typer.Option(
        "--insecure-no-passphrase",
        help="Write the file unencrypted: anyone who can read it has the secret.",
    ),
]

Mark = Annotated[Path, typer.Option(metavar="FILE", help="Mark written by invgnn carriers.")]
_MODEL = typer.Option(metavar="FILE", help="Marked model, written by invgnn embed.")
Model = Annotated[Path, _MODEL]
OptionalModel = Annotated[Path | None, _MODEL]
SecondModel = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Copy of the model made for another licensee. Adds the attack average-of-2-copies.",
    ),
]

_TASK = typer.Option(metavar="TASK", help="Task that the model was trained on, e.g. PROTEINS.")
Task = Annotated[str, _TASK]
OptionalTask = Annotated[str | None, _TASK]
_SETTING = typer.Option(
    metavar="TASK/BACKBONE",
    help="Task and backbone, e.g. PROTEINS/GIN. Backbones: GCN, GraphSAGE, SGC, GIN.",
)
Setting = Annotated[str, _SETTING]
OptionalSetting = Annotated[str | None, _SETTING]

M = Annotated[int, typer.Option(metavar="N", help="Number of carriers, one bit each; must be even.")]
Alpha = Annotated[float, typer.Option(metavar="RATE", help="False-positive rate that you accept.")]
SplitSeed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the data split.")]
TrainingSeed = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Seed of the data split, the initial weights and the order of batches."
    ),
]

IdentityFile = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="Your identity, written by invgnn identity.")
]
KeyPassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Read the passphrase of the identity from the first line of this file. Default: as for "
        "--passphrase-file.",
    ),
]
ClaimFile = Annotated[Path, typer.Option("--claim", metavar="FILE", help="Claim, a public file.")]
Case = Annotated[str, typer.Option(metavar="NAME", help="The judge's name of the case.")]
Tsa = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Date the file with a token of this time-stamping authority (RFC 3161). Only a hash is sent.",
    ),
]
TsaRoots = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PEM",
        help="Root certificate of a time-stamping authority that you trust. Can be given several times.",
    ),
]
OwnData = Annotated[
    str | None,
    typer.Option(
        metavar="MOD:FUNC",
        help="Your own data instead of --task: MODULE:FUNCTION, a function without arguments that returns "
        "your graphs, or the one graph of a node task. The module is imported and executed.",
    ),
]
OwnForward = Annotated[
    str | None,
    typer.Option(
        metavar="MOD:FUNC",
        help="How a model of unusual arguments or results is called: MODULE:FUNCTION, a function of the "
        "model and a PyG batch that returns one tensor of scores. Typed graphs (HeteroData) need --data "
        "instead. The module is imported and executed.",
    ),
]
OwnArchitecture = Annotated[
    str | None,
    typer.Option(
        metavar="MOD:FUNC",
        help="Your own model: MODULE:FUNCTION, a class or function without arguments that returns it. The "
        "module is imported and executed.",
    ),
]
