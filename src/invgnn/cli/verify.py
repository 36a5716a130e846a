"""invgnn verify: read a suspect with a mark."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, Overwrite, PassphraseFile, open_passphrase, verb
from invgnn.errors import ParameterError


@verb
def verify(
    mark: Annotated[Path, typer.Option(help="The mark.")],
    model: Annotated[
        Path, typer.Option(help="The suspect: an invgnn model, safetensors, or a PyTorch state dict.")
    ],
    architecture: Annotated[
        str | None,
        typer.Option(help="For weights alone: MODULE:FUNCTION that builds the model without arguments."),
    ] = None,
    access: Annotated[str | None, typer.Option(help="One of the mark's declared readings.")] = None,
    alpha: Annotated[float, typer.Option(help="False-positive rate you accept.")] = 1e-6,
    control: Annotated[
        list[Path] | None, typer.Option(help="An unmarked model to read as well; repeat.")
    ] = None,
    tried: Annotated[int, typer.Option(help="Suspects and readings looked at so far.")] = 1,
    answers: Annotated[bool, typer.Option("--answers", help="Include raw answers and bits.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page as well.")] = None,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Read a suspect with a mark and say what its answers prove.

    Exit code 0: owned. 1: not shown. 3: inconclusive. 2: the question could not be asked.

    p is exact: for a model unrelated to the secret, the chance of answers this good is at most p, with no
    assumption about models or graphs. It holds if the secret is older than the suspect and the reading was
    declared beforehand.

    Example: `invgnn verify --mark acme.mark --model suspect.model`
    """
    from invgnn.models import load_model
    from invgnn.verdict import verify as judge
    from invgnn.watermark import Watermark

    held = Watermark.load(mark, open_passphrase(mark, passphrase_file))
    build = _builder(architecture)
    verdict = judge(
        load_model(model, build() if build else None),
        held,
        alpha,
        access=access,  # type: ignore[arg-type]  # checked against the mark's declared readings
        controls=[load_model(path, build() if build else None) for path in control or ()],
        tried=tried,
        with_answers=answers or report is not None,
    )
    if report is not None:
        from invgnn.report import write_report

        command = f"invgnn verify --mark {mark} --model {model} --access {verdict.access} --alpha {alpha:g}"
        write_report(report, verdict, mark=held, command=command, overwrite=overwrite)
    return verdict.to_json(), str(verdict), verdict.exit_code


def _builder(name: str | None) -> Any:
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ParameterError(
            f"cannot find {name!r}: {error}", "give MODULE:FUNCTION, importable from here"
        ) from error
