"""invgnn serve: put a model behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_input, note, verb
from invgnn.cli.options import Json
from invgnn.cli.own_models import load_weights

EXAMPLES = """\b
Examples:
  invgnn serve --model acme.model
  invgnn serve --model acme.model --output probabilities --digits 2
  invgnn serve --model weights.pt --architecture nets:build --port 9000
"""


@verb
def serve(
    model: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Model written by invgnn embed or, with --architecture, a file of weights alone.",
        ),
    ],
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:FUNC",
            help="For weights alone: MODULE:FUNCTION, a function without arguments that returns the model. "
            "The module is imported and executed.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the model in addresses.")] = "model",
    output: Annotated[
        str, typer.Option(metavar="KIND", help="What is returned: scores, probabilities or labels.")
    ] = "probabilities",
    digits: Annotated[
        int | None, typer.Option(metavar="N", help="Round scores or probabilities to N decimal digits.")
    ] = None,
    embeddings: Annotated[
        bool,
        typer.Option("--embeddings", help="Return the input of the last layer as well, one row per graph."),
    ] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on. Only this machine by default.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 for any that is free.")
    ] = 8000,
    max_body: Annotated[int, typer.Option(metavar="BYTES", help="Most bytes of a request.")] = 8 << 20,
    max_graphs: Annotated[int, typer.Option(metavar="N", help="Most graphs of a request.")] = 1024,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Most seconds to receive and to answer a request.")
    ] = 30.0,
    concurrency: Annotated[
        int, typer.Option(metavar="N", help="Most requests at a time, waiting ones included.")
    ] = 128,
    json_: Json = False,
) -> Any:
    """Serve a model over HTTP.

    The server speaks the Open Inference Protocol, version 2. Requests contain the tensors x, edge_index
    and batch, and further ones that the model takes, such as edge_attr. POST /v2/models/NAME/infer returns
    one row per graph, or per node of a node model. Health, metadata and an OpenAPI description are at
    /v2/health/ready, /v2/models/NAME and /openapi.json.

    The server has no access control and no encryption: keep it on this machine, or put it behind a proxy
    that has both. It stops at Ctrl-C or SIGTERM, after it has answered the requests that it has received.
    """
    check_input(model)

    from invgnn.errors import ParameterError
    from invgnn.nn.model_file import load_model

    try:
        from invgnn.serve.app import make_app
        from invgnn.serve.run import run_app
        from invgnn.serve.settings import Limits, Returned
    except ImportError as error:
        raise ParameterError(f"serving needs {error.name}", "pip install 'invgnn[serve]'") from None
    if not name.isidentifier() or not name.isascii():
        raise ParameterError(f"{name!r} is no name of a model", "use letters, digits and underscores")
    returned = Returned(output, digits, embeddings)  # type: ignore[arg-type]  # checked there
    limits = Limits(body=max_body, graphs=max_graphs, seconds=time_limit, concurrency=concurrency)
    held = load_weights(model, architecture) if architecture else load_model(model)
    address = ""

    def ready(base: str) -> None:
        nonlocal address
        address = f"{base}/v2/models/{name}/infer"
        note(f"serving {model} at {address} (stop with Ctrl-C)")

    app = make_app(held, name, returned, limits)
    run_app(app, host, port, ready)
    return {"address": address, "requests": app.answered}, f"stopped after {app.answered} requests", 0
