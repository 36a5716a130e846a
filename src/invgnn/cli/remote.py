"""Endpoints and transcripts that a command names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invgnn.cli.console import check_input, note, open_passphrase
from invgnn.errors import FileError, ParameterError

if TYPE_CHECKING:
    from invgnn.audit.remote import Endpoint, Transcript


def make_endpoint(
    url: str, headers: list[str] | None, key: Path | None, passphrase_file: Path | None, **options: Any
) -> Endpoint:
    """Return the endpoint of a command.

    Args:
        url: The address.
        headers: Headers as NAME=VAR.
        key: File of the identity that signs the transcript.
        passphrase_file: File of its passphrase.
        **options: More options of the endpoint.
    """
    from invgnn.audit.remote import Endpoint

    signer = None
    if key is not None:
        from invgnn.court.identity import Identity

        if options["journal"] is None:
            raise ParameterError("--key signs a transcript, and there is none", "give --journal as well")
        check_input(key)
        signer = Identity.load(key, open_passphrase(key, passphrase_file))
    return Endpoint(url, headers=dict(map(_header, headers or ())), signer=signer, **options)


def _header(text: str) -> tuple[str, str]:
    """Return name and environment variable of a header."""
    name, _, variable = text.partition("=")
    if not name.replace("-", "").isalnum() or not name.isascii() or not variable.isidentifier():
        raise ParameterError(
            "a header is given as NAME=VAR", "VAR is the environment variable that holds its value"
        )
    return name, variable


def replay_settings(path: Path, signer: str | None) -> tuple[Transcript, dict[str, Any]]:
    """Return a transcript, and the arguments of `verify` with which it was recorded.

    Args:
        path: The file.
        signer: The key that must have signed it, if any is trusted.

    Raises:
        FileError: If the transcript was altered, or its plan is malformed.
    """
    from invgnn.audit.remote import Transcript
    from invgnn.audit.sequential import Sequential

    check_input(path)
    found = Transcript.load(path, signer)
    plan = found.plan
    try:
        settings = {name: plan[name] for name in ("access", "alpha", "suspects")}
        if plan["method"] != "fixed":
            settings["sequential"] = Sequential(plan["method"], plan["bits"], plan["rate"], plan["miss"])
    except (KeyError, ParameterError):
        raise FileError(f"the plan of {path} is malformed", "use another copy of the file") from None
    return found, settings


def reporter(events: Path | None) -> Callable[[dict[str, Any]], None]:
    """Return a function that shows the state of an audit, and appends it to a file of JSON lines.

    Args:
        events: The file, if any.
    """

    def report(state: dict[str, Any]) -> None:
        if events is not None:
            with open(events, "a", encoding="utf-8") as file:
                file.write(json.dumps(state) + "\n")
        found = f", {state['evidence_bits']:.1f} bits" if "evidence_bits" in state else ""
        cost = f", cost {state['cost']:g}" if state.get("cost") else ""
        note(f"asked {state['questions']} questions, {state['carriers']} carriers{found}{cost}")

    return report
