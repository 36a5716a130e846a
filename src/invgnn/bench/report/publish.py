"""Write a report: every file is a function of the rows, so that a check can make it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invgnn.bench.report.beside import beside
from invgnn.bench.report.claims import claims_markdown, read_claims
from invgnn.bench.report.drawings import all_drawings
from invgnn.bench.report.evidence import Evidence
from invgnn.bench.report.page import render_page
from invgnn.bench.report.paper import read_paper
from invgnn.bench.report.tables import all_tables, main_table, paper_table
from invgnn.bench.script import BEGIN, END, published
from invgnn.storage.atomic import write_text


def rendered(evidence: Evidence, paper: Path) -> dict[str, str]:
    """Return the files of a report by name.

    Args:
        evidence: The rows.
        paper: File of the published numbers.
    """
    found = beside(evidence, read_paper(paper))
    tables, drawings = all_tables(evidence, found), all_drawings(evidence)
    files = {f"{table.name}.md": table.markdown() for table in tables}
    files |= {f"{table.name}.tex": table.latex() for table in tables}
    files |= {f"{drawing.name}.svg": drawing.file() for drawing in drawings}
    return files | {"index.html": render_page(evidence, tables, drawings)}


def page_part(evidence: Evidence, paper: Path) -> str:
    """Return the generated part of a documentation page: claims, main comparison, published numbers.

    Args:
        evidence: The rows.
        paper: File of the published numbers; that of the claims lies beside it.
    """
    claims = claims_markdown(read_claims(paper.parent / "claims.toml"))
    found = [one for one in beside(evidence, read_paper(paper)) if one.rows]
    counted = f"{len(evidence.rows)} rows; {evidence.missing} trials of the grids have none yet."
    if evidence.stale:
        counted += f" † {len(evidence.stale)} rows were made by earlier code and will be made again."
    parts = [claims, f"## Rows\n\n{counted}\n"]
    if found:
        parts += [main_table(evidence).markdown(), paper_table(evidence, found).markdown()]
    return "\n".join(parts).strip()


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
