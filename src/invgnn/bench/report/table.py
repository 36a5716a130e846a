"""A table of a report, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from invgnn.bench import markdown
from invgnn.bench.report.evidence import Cell

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "×": r"$\times$",
    "τ": r"$\tau$",
    "†": r"$^\dagger$",
    "–": "--",
}


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: Name of its files.
        title: Its heading.
        about: What it shows, in one or two sentences.
        head: Names of the columns.
        rows: The cells of every row.
        text: Number of columns, from the left, that hold text.
        tail: Number of columns, from the right, that hold text.
    """

    name: str
    title: str
    about: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    text: int = 2
    tail: int = 0

    def numeric(self, column: int) -> bool:
        """Return whether a column holds numbers.

        Args:
            column: Its number, from 0.
        """
        return self.text <= column < len(self.head) - self.tail

    def markdown(self) -> str:
        """Return the table in Markdown, with its heading."""
        cells = [[_piped(str(cell)) for cell in row] for row in self.rows]
        body = markdown.table(self.head, cells, text=self.text) if cells else "Not run yet."
        return f"## {self.title}\n\n{self.about}\n\n{body}\n"

    def latex(self) -> str:
        """Return the table in LaTeX, for the package `booktabs`."""
        columns = "l" * self.text + "r" * (len(self.head) - self.text - self.tail) + "l" * self.tail
        lines = [" & ".join(latex_text(str(cell)) for cell in row) + r" \\" for row in self.rows]
        lines = lines or [rf"\multicolumn{{{len(self.head)}}}{{l}}{{not run yet}} \\"]
        return "\n".join(
            [
                rf"\begin{{table}}\caption{{{latex_text(f'{self.title}. {self.about}')}}}",
                rf"\label{{tab:{self.name}}}\footnotesize",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                " & ".join(map(latex_text, self.head)) + r" \\",
                r"\midrule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def latex_text(text: str) -> str:
    """Return text as LaTeX prints it.

    Args:
        text: Plain text.
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _piped(text: str) -> str:
    """Return text that may stand in a cell of a Markdown table."""
    return text.replace("|", r"\|").replace("<", "&lt;")
