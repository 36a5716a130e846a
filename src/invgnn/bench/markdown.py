"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table_row(*cells: str) -> str:
    """Return one row of a table.

    Args:
        cells: Contents from left to right.

    Returns:
        The row without a line break.
    """
    return f"| {' | '.join(cells)} |"


def table_head(*cells: str, text: int = 1) -> str:
    """Return the head of a table and the rule below it.

    Args:
        cells: Column names from left to right.
        text: Number of columns, from the left, that hold text. The others are aligned to the right.

    Returns:
        Two lines without a final line break.
    """
    return f"{table_row(*cells)}\n|{'---|' * text}{'--:|' * (len(cells) - text)}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], text: int = 1) -> str:
    """Return a table.

    Args:
        head: Column names from left to right.
        rows: Cells of every row.
        text: Number of columns, from the left, that hold text. The others are aligned to the right.

    Returns:
        The table without a final line break.
    """
    return "\n".join([table_head(*head, text=text), *(table_row(*row) for row in rows)])
