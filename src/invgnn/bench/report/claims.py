"""What the paper claims, and what became of each claim."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from invgnn.bench import markdown
from invgnn.errors import FileError

STATUSES = ("reproduced", "not reproduced", "corrected", "not run yet")
DOCS = Path("docs/results")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        claim: What the paper says.
        where: Where it says so: a section, a theorem, a table or a figure.
        status: What became of it, one of `STATUSES`.
        finding: What was found, in one sentence; for a claim that was not run, what is to be run.
        rows: Files with the rows, seen from the root of the repository.
        command: The command that repeats the measurement.
        page: Page with the details, seen from `docs/results`; empty for none.
    """

    claim: str
    where: str
    status: str
    finding: str
    rows: tuple[str, ...]
    command: str
    page: str = ""


def read_claims(path: Path) -> list[Claim]:
    """Read the claims.

    Args:
        path: TOML file with a list `claim`; no claims if it does not exist.

    Raises:
        FileError: If it has other keys.
    """
    if not path.exists():
        return []
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
        return [Claim(**{**one, "rows": tuple(one["rows"])}) for one in read]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise FileError(
            f"{path} does not hold claims: {error}", "each [[claim]] has the fields of Claim"
        ) from error


def claim_problems(path: Path) -> list[str]:
    """Return what is wrong with the claims: an unknown status, no command, rows that do not exist.

    Args:
        path: The file of the claims, in a folder of the repository.
    """
    problems = []
    for one in read_claims(path):
        if one.status not in STATUSES:
            problems.append(f"{one.where}: the status {one.status!r} is none of {', '.join(STATUSES)}")
        if not one.command.strip() or not one.finding.strip():
            problems.append(f"{one.where}: there is no command or no finding")
        lacking = [name for name in one.rows if not (path.parents[1] / name).exists()]
        if one.status != "not run yet" and (lacking or not one.rows):
            problems.append(f"{one.where}: the rows {', '.join(lacking) or '(none)'} do not exist")
    return problems


def claims_markdown(claims: list[Claim]) -> str:
    """Return the claims as a table in Markdown, with a count of each status.

    Args:
        claims: The claims.
    """
    if not claims:
        return ""
    counts = Counter(one.status for one in claims)
    told = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    rows = [
        [
            f"{one.claim} ({one.where})",
            f"**{one.status}**",
            f"{one.finding}{f' [Details]({one.page})' if one.page else ''}",
            "<br>".join([*(f"`{name}`" for name in one.rows), f"`{one.command}`"]),
        ]
        for one in claims
    ]
    head = ("claim", "status", "finding", "rows and command")
    return f"## Claims\n\n{len(claims)} claims: {told}.\n\n{markdown.table(head, rows, text=4)}\n"
