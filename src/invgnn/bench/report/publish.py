"""Write a report: every file is a function of the rows, so that a check can make it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invgnn.bench import markdown
from invgnn.bench.report.beside import all_beside, summary
from invgnn.bench.report.claims import claims_markdown, read_claims
from invgnn.bench.report.drawings import all_drawings
from invgnn.bench.report.evidence import Evidence
from invgnn.bench.report.kept import kept_markdown, read_kept
from invgnn.bench.report.page import render_page
from invgnn.bench.report.tables import all_tables, main_table, removal_table
from invgnn.bench.script import BEGIN, END, published
from invgnn.storage.atomic import write_text

NUMBERS = (
    "Every one of them stands beside ours in `benchmarks/report/paper.md`, with the difference and, where "
    "it does not come out, a sentence. InvGNN-WM counts twice: with the published weight, and in its best "
    "form."
)


def rendered(evidence: Evidence, paper: Path) -> dict[str, str]:
    """Return the files of a report by name.

    Args:
        evidence: The rows.
        paper: File of the published numbers.
    """
    found = all_beside(evidence, paper)
    tables, drawings = all_tables(evidence, found), all_drawings(evidence)
    files = {f"{table.name}.md": table.markdown() for table in tables}
    files |= {f"{table.name}.tex": table.latex() for table in tables}
    files |= {f"{drawing.name}.svg": drawing.file() for drawing in drawings}
    return files | {"index.html": render_page(evidence, tables, drawings)}


def page_part(evidence: Evidence, paper: Path) -> str:
    """Return the generated part of a documentation page: claims, main comparison, published numbers, rows.

    Args:
        evidence: The rows.
        paper: File of the published numbers; that of the claims lies beside it.
    """
    claims = claims_markdown(read_claims(paper.parent / "claims.toml"))
    found = all_beside(evidence, paper)
    counted = f"{len(evidence.rows)} rows; {evidence.missing} trials of the grids have none yet."
    if evidence.stale:
        counted += f" † {len(evidence.stale)} rows were made by earlier code and will be made again."
    heads = ("table", "numbers", "with one of ours", "that come out")
    counts = [[name.removeprefix("tab:"), *map(str, part[:3])] for name, part in summary(found).items()]
    parts = [claims, f"## Rows\n\n{counted}\n"]
    parts.append(f"## Published numbers\n\n{NUMBERS}\n\n{markdown.table(heads, counts)}\n")
    tables = (main_table(evidence, found), removal_table(evidence))
    parts += [table.markdown() for table in tables if table.rows]
    parts.append(kept_markdown(read_kept(paper.parent / "kept.toml")))
    return "\n".join(part for part in parts if part).strip()


def publish_report(
    grids: Sequence[Path], results: Path, paper: Path, folder: Path, page: Path | None = None
) -> list[Path]:
    """Write the report of some grids.

    Args:
        grids: The grids.
        results: Folder of the CSV files.
        paper: File of the published numbers.
        folder: Where to write; files of an earlier report are replaced.
        page: A documentation page whose generated part is replaced.

    Returns:
        The files that were written.

    Raises:
        FileError: If a file cannot be written.
    """
    evidence = Evidence.load(grids, results)
    if page is not None:
        published(page)  # raises an error before anything is written if there is no place
    folder.mkdir(parents=True, exist_ok=True)
    files = rendered(evidence, paper)
    for old in folder.glob("*.svg"):  # a figure may have lost its rows; no other file comes and goes
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        write_text(folder / name, text, overwrite=True)
    written = [folder / name for name in files]
    if page is not None:
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        table = page_part(evidence, paper)
        write_text(page, f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}", overwrite=True)
        written.append(page)
    return written
