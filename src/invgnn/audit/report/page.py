"""Render a verdict as one self-contained HTML page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from invgnn.audit.report import figures
from invgnn.audit.verdict import Verdict, floor_bits
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats, Ints
from invgnn.readout.answers import Answers
from invgnn.readout.reading import Reading
from invgnn.stats import laws
from invgnn.stats.evidence import GRINDING_BITS, decode
from invgnn.storage import container
from invgnn.watermark.mark import Watermark

Row: TypeAlias = tuple[str, Verdict, float | None]
"""A model's name, its verdict, and its accuracy on the task (a share) if known."""

SYMBOLS = {"owned": "✓", "not shown": "○", "inconclusive": "?"}
MOST_WRONG = 40  # up to this number, mismatching carriers are listed by number
MOST_COLUMNS = 24  # up to this number, classes are listed with their column
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Read(NamedTuple):
    """The answers in a verdict, decoded as for the verdict.

    Attributes:
        answers: The answer to each carrier, in standard deviations of the ordinary answers if these are
            recorded.
        bits: The bit of each carrier.
        right: Whether each answer matches the bit.
        threshold: Answers above it are decoded as 1.
        relative: Whether the threshold is the median answer.
    """

    answers: Floats
    bits: Ints
    right: Bools
    threshold: float
    relative: bool


def write_report(
    path: str | Path,
    verdict: Verdict,
    *,
    mark: Watermark | None = None,
    rows: Sequence[Row] = (),
    title: str | None = None,
    command: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a verdict as one self-contained HTML page, without scripts and network access.

    A page with carriers, answers or bits is private: it starts with a warning, and only the owner of the
    file can read it.

    Args:
        path: Where to write the page.
        verdict: The verdict.
        mark: The mark that was verified. If given, some of its carriers are drawn, which makes the page
            private.
        rows: Other models that were verified with the mark, e.g. edited copies and unmarked controls: name,
            verdict, and task accuracy or None.
        title: The heading of the page.
        command: The exact command that reproduces the verdict. By default Python code.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.

    Raises:
        ParameterError: If `mark` is not the mark that was verified.
        ExistingFileError: If a file exists at `path` and `overwrite` is false.
        FileError: If the file cannot be written.
    """
    text = render(verdict, mark=mark, rows=rows, title=title, command=command)
    container.write_text(path, text, overwrite=overwrite, private=is_private(verdict, mark))
    return Path(path)


def render(
    verdict: Verdict,
    *,
    mark: Watermark | None = None,
    rows: Sequence[Row] = (),
    title: str | None = None,
    command: str | None = None,
) -> str:
    """Return the page as text.

    Args:
        verdict: The verdict.
        mark: As in `write_report`.
        rows: As in `write_report`.
        title: As in `write_report`.
        command: As in `write_report`.

    Returns:
        The HTML page.

    Raises:
        ParameterError: If `mark` is not the mark that was verified.
    """
    if mark is not None and mark.digest != verdict.digests.get("mark"):
        raise ParameterError(
            "this mark is not the one that the verdict is about",
            "pass the mark that was verified, or no mark",
        )
    read = _read(verdict)
    page = environment().get_template("verdict.html.j2")
    html = page.render(
        v=verdict,
        title=title or "Watermark verdict",
        command=re.split(r"(\s+)", command or _again(verdict)),
        shown=_shown(verdict, mark),
        symbols=SYMBOLS,
        far=GRINDING_BITS,
        law=_law(verdict),
        columns=_columns(verdict),
        p_of_t=laws.log_p_matches(verdict.matches, verdict.m, verdict.ones) / math.log(10),
        read=read,
        wrong=[] if read is None else [int(k) + 1 for k in np.flatnonzero(~read.right)],
        most_wrong=MOST_WRONG,
        strip=None if read is None else figures.draw_answers(*read),
        drawn=None if mark is None else figures.draw_carriers(mark.carriers, mark.bits),
        largest=figures.LARGEST,
        rows=rows,
        bars=_bars(verdict, rows),
    )
    return html.encode(errors="replace").decode()  # a name may hold half a character


def is_private(verdict: Verdict, mark: Watermark | None = None) -> bool:
    """Return whether the page would show carriers, answers or bits.

    Args:
        verdict: The verdict.
        mark: The mark, if carriers are to be drawn.

    Returns:
        Whether the page must not be published.
    """
    return bool(_shown(verdict, mark))


def _shown(verdict: Verdict, mark: Watermark | None) -> str:
    """Return which private material the page shows; empty if none."""
    told = verdict.answers is not None or verdict.bits is not None
    if mark is None:
        return "answers and bits" if told else ""
    return "carriers, answers and bits" if told else "carriers and bits"


def environment(package: str = "invgnn.audit.report") -> Environment:
    """Return the environment of the page templates.

    Args:
        package: The package with the templates; those of verdicts are found as well.

    Returns:
        An environment that escapes everything and has filters for numbers.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("invgnn.audit.report")]),
        autoescape=True,  # by name it would skip .j2
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"power": power, "level": level, "bits": floor_bits, "percent": percent}
    return made


def _read(verdict: Verdict) -> Read | None:
    """Decode the answers in a verdict, if it has any."""
    if verdict.answers is None or verdict.bits is None:
        return None
    answers, bits = np.array(verdict.answers), np.array(verdict.bits, dtype=np.int64)
    given = Answers(Reading(**verdict.reading), answers, np.array(verdict.ordinary or ()))
    relative = not given.reading.binary
    said = decode(answers, None if relative else 0.5)
    if verdict.ordinary:  # decoded as given, shown in the suspect's own units
        answers = given.standard
    threshold = float(np.median(answers)) if relative else 0.5
    return Read(answers, bits, said == (bits == 1), threshold, relative)


def _law(verdict: Verdict) -> Markup | None:
    """Draw the null distribution of the verdict: of random keys, or of unmarked models."""
    if verdict.null == "models":
        return figures.draw_controls(verdict) if verdict.controls else None
    one_sided = verdict.ones in (0, verdict.m)  # a distribution of one count needs no figure
    return None if one_sided else figures.draw_law(verdict)


def _columns(verdict: Verdict) -> list[str]:
    """Describe the column of each class; empty if the columns were read in the order they come in."""
    given = verdict.columns or ()
    named = [
        f"class {c} from {'no column' if column < 0 else f'column {column}'}"
        for c, column in enumerate(given[:MOST_COLUMNS])
    ]
    more = len(given) - MOST_COLUMNS
    return [*named, f"and {more} more"] if more > 0 else named


def _again(verdict: Verdict) -> str:
    """Return Python code that reproduces the verdict."""
    options = [f"alpha={verdict.alpha}"]
    if len(verdict.levels) == 1:  # naming a level costs as much as reading all that were declared
        options.append(f"access={verdict.access!r}")
    if "score_channel" in verdict.channels:
        options.append("data=data")
    if "forward" in verdict.called:
        options.append("forward=forward")
    if any(one["origin"] == "claimant" for one in verdict.code["foreign"]):
        options.append("code_from='claimant'")
    if verdict.controls:
        options.append("controls=controls")
    if verdict.suspects > 1:
        options.append(f"suspects={verdict.suspects}")
    return (
        "import invgnn\n"
        'mark = invgnn.Watermark.load("your.mark", passphrase)\n'
        f"print(invgnn.verify(suspect, mark, {', '.join(options)}))"
    )


def _bars(verdict: Verdict, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the lengths of the bars and the positions of the two lines, in percent of the chart."""
    alpha = -math.log2(verdict.alpha)
    evidence = [row.evidence_bits for _, row, _ in rows]
    full = 1.04 * max([GRINDING_BITS, alpha, *evidence])
    return {
        "lengths": [round(100 * bits / full, 2) for bits in evidence],
        "alpha": round(100 * alpha / full, 2),
        "far": round(100 * GRINDING_BITS / full, 2),
        "alpha_bits": alpha,
    }


def power(log10: float) -> str:
    """Return a probability as text, rounded up: it never looks smaller than it is.

    Args:
        log10: Base-10 logarithm of the probability.

    Returns:
        The number, in scientific notation below 0.001.
    """
    if log10 >= -3:
        return f"{min(1.0, math.ceil(1e4 * 10**log10 - 1e-6) / 1e4):g}"
    if log10 == -math.inf:
        return "0"
    exponent = math.floor(log10)
    mantissa = math.ceil(100 * 10 ** (log10 - exponent) - 1e-6) / 100
    if mantissa >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    return _scientific(f"{mantissa:g}", exponent)


def level(alpha: float) -> str:
    """Return a level as text, not rounded.

    Args:
        alpha: The level.

    Returns:
        The number as it was given, e.g. 10⁻⁶.
    """
    mantissa, _, exponent = f"{alpha:g}".partition("e")
    return _scientific(mantissa, int(exponent)) if exponent else mantissa


def _scientific(mantissa: str, exponent: int) -> str:
    """Return a number in scientific notation."""
    ten = "10" + str(exponent).translate(_SUPERSCRIPT)
    return ten if mantissa == "1" else f"{mantissa} × {ten}"


def percent(share: float) -> str:
    """Return a share as a percentage.

    Args:
        share: A number from 0 to 1.

    Returns:
        The percentage with one decimal.
    """
    return f"{100 * share:.1f} %"
