"""Options of audits over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EndpointUrl = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="Suspect behind HTTP, instead of --model: the address of a model by the Open Inference "
        "Protocol, https://host/v2/models/NAME, or with --mapping any address.",
    ),
]
TranscriptFile = Annotated[
    Path | None,
    typer.Option(
        "--transcript",
        metavar="FILE",
        help="Replay an audit from its finished journal, with its settings, instead of --model.",
    ),
]
SignerKey = Annotated[
    str | None,
    typer.Option(
        "--signer",
        metavar="HEX",
        help="With --transcript: key of the auditor whom you trust, as invgnn identity shows it. Without "
        "it the verdict is never owned: whoever signs can invent answers.",
    ),
]
MappingFile = Annotated[
    Path | None,
    typer.Option("--mapping", metavar="FILE", help="With --endpoint: JSON file for other JSON shapes."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VAR",
        help="With --endpoint: send a header whose value is in the environment variable VAR. Can be given "
        "several times.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token-from", metavar="VAR", help="With --endpoint: bearer token in the environment variable VAR."
    ),
]
JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="With --endpoint: keep every answer in this file. The same command then goes on where it "
        "ended. The finished file is the transcript of the audit. It is private.",
    ),
]
SignWith = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="With --journal: sign the transcript with this identity."),
]
BatchSize = Annotated[
    int, typer.Option("--batch", metavar="N", min=1, help="With --endpoint: graphs per request.")
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="With --endpoint: most requests per second.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="With --endpoint: most seconds of a request.")
]
Attempts = Annotated[
    int, typer.Option("--attempts", metavar="N", min=1, help="With --endpoint: most attempts of a request.")
]
Decoys = Annotated[
    int,
    typer.Option(
        "--decoys",
        metavar="N",
        min=0,
        help="With --endpoint: mix in N further inputs of --task or --data. Each costs a question; "
        "carriers become a smaller share of what the server sees.",
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats",
        metavar="N",
        min=0,
        help="With --endpoint: ask N ordinary inputs twice, to notice a server with several models.",
    ),
]
MaxQueries = Annotated[
    int | None,
    typer.Option("--max-queries", metavar="N", min=1, help="With --endpoint: send at most N graphs."),
]
Price = Annotated[
    float, typer.Option("--price", metavar="X", min=0, help="With --endpoint: price of one graph.")
]
Budget = Annotated[
    float | None, typer.Option("--budget", metavar="X", help="With --price: spend at most X.")
]
Method = Annotated[
    str | None,
    typer.Option(
        "--sequential",
        metavar="METHOD",
        help="With --endpoint: ask question by question and stop as soon as the evidence suffices or is "
        "hopeless. betting learns how well the suspect matches; sprt is Wald's test. Choose before "
        "you ask.",
    ),
]
Bits = Annotated[
    float | None,
    typer.Option(
        "--bits",
        metavar="N",
        help="With --sequential: stop at N bits of evidence. Default: as many as owned needs.",
    ),
]
EventsFile = Annotated[
    Path | None,
    typer.Option(
        "--events",
        metavar="FILE",
        help="With --endpoint: append the state after every step to FILE, one JSON object per line.",
    ),
]
InsecureHttp = Annotated[
    bool,
    typer.Option("--insecure-http", help="With --endpoint: allow unencrypted requests to another machine."),
]
