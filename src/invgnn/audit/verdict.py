"""The verdict on a suspect: what its answers prove, and under which condition."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from invgnn.version import __version__

Status = Literal["owned", "not shown", "inconclusive"]
"""The three possible decisions about a suspect."""

CONDITION = (
    "The secret was fixed before the suspect model existed, and the reading was declared before the "
    "suspect was examined. Then, if the suspect is unrelated to the secret, every key with equally many "
    "zeros and ones is equally likely given its answers, whatever the model, the carriers and their "
    "dependence."
)
"""The condition of a verdict on carriers alone."""
BOTH_CONDITION = (
    "The secret, the baseline scores and the data were fixed before the suspect model existed, and the "
    "reading was declared before the suspect was examined. Then, if the suspect is unrelated to the "
    "secret, every key with equally many zeros and ones and every direction of the score channel are "
    "equally likely given all its answers and scores, whatever the model and the inputs."
)
"""The condition of a verdict on carriers and score channel."""
EXPLANATIONS = (
    "The suspect may be a licensed copy, or both models may descend from the same pre-trained model.",
    "Evidence shows that a model descends from a marked model. It does not show who acted wrongly.",
)
"""Innocent explanations that a match leaves open."""
EXIT_CODES: dict[Status, int] = {"owned": 0, "not shown": 1, "inconclusive": 3}
"""Exit code of `invgnn verify` for each status."""


@dataclass(frozen=True)
class Verdict:
    """What a suspect's answers prove about a mark, with everything needed to check it.

    Guarantee: for a suspect independent of the secret, Pr[p <= u] <= u for every u (null `exact`).
    Void if the secret, the reading or the statistic was chosen after looking at the suspect.

    Attributes:
        status: The decision: `owned`, `not shown` or `inconclusive`.
        reasons: Why the decision was made, one sentence each.
        matches: Number of bits that the answers match, at the level `access`.
        m: Number of carriers, and so of bits.
        threshold: Number of matches needed at `alpha` if matches at one level were the only test; m + 1 if
            no number is enough.
        ones: Number of answers decoded as 1.
        wm_acc: Share of matching bits, `matches / m`.
        alpha: The accepted false-positive rate.
        p: The p-value, corrected for all declared levels and all ways to read the columns.
        log10_p: Base-10 logarithm of `p`, also where `p` underflows to 0.
        evidence_bits: `-log2(p) - log2(suspects)`, at least 0.
        tests: Number of tests: suspects × declared levels × ways to read the columns. In a sequential audit
            levels and ways share one test.
        suspects: Number of suspects tested with this mark, as given to `verify`.
        statistic: Name of the statistic that `p` belongs to.
        null: Name of the null distribution: `exact` for a keyed mark, `models` (match counts of unmarked
            models) for a plain one.
        exact: Whether `p` is exact. If false for the null `exact`, it is an upper bound.
        access: The access level with the most evidence, which the counts belong to.
        reading: How the suspect was read at that level.
        key: `keyed` if the bits come from the secret, `plain` if they come from the carriers.
        queries: Number of inputs that the suspect was queried with.
        channels: Evidence of the carriers and, if the mark has one, of the score channel.
        levels: For each declared level, or for the one that was requested: matches and evidence of that
            level alone, or the reason why it could not be read.
        columns: For each class the column that its scores were read from, -1 for none. None if the columns
            were read in the order in which they come.
        refused: How many carriers and ordinary inputs the suspect refused. None if it refused none.
        called: How the suspect was called.
        code: The code that ran when the suspect was queried, as in `Provenance.record`.
        controls: Matches and evidence of each unmarked control, its digest, and the levels at which it was
            read.
        digests: Digests of the mark, the reference data, the suspect and its weights.
        audit: For a suspect behind HTTP: address, method, number of questions and requests, cost, repeated
            questions, and why a sequential audit ended. None for other suspects. For a sequential audit
            `m` counts the carriers asked, and `threshold` belongs to the test of all carriers.
        version: Version of invgnn.
        condition: The condition under which the guarantee holds.
        explanations: Innocent explanations that a match leaves open.
        answers: The answer to each carrier. None unless requested; private.
        ordinary: The answer to each ordinary input. None unless requested; private.
        bits: The key. None unless requested; private.
    """

    status: Status
    reasons: tuple[str, ...]
    matches: int
    m: int
    threshold: int
    ones: int
    wm_acc: float
    alpha: float
    p: float
    log10_p: float
    evidence_bits: float
    tests: int
    suspects: int
    statistic: str
    null: str
    exact: bool
    access: str
    reading: dict[str, Any]
    key: str
    queries: int
    channels: dict[str, Any]
    levels: tuple[dict[str, Any], ...]
    columns: tuple[int, ...] | None
    refused: dict[str, Any] | None
    called: str
    code: dict[str, Any]
    controls: tuple[dict[str, Any], ...]
    digests: dict[str, str]
    audit: dict[str, Any] | None = None
    version: str = __version__
    condition: str = CONDITION
    explanations: tuple[str, ...] = EXPLANATIONS
    answers: tuple[float, ...] | None = field(default=None, repr=False)
    ordinary: tuple[float, ...] | None = field(default=None, repr=False)
    bits: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def exit_code(self) -> int:
        """Exit code of the status: 0 for owned, 1 for not shown, 3 for inconclusive."""
        return EXIT_CODES[self.status]

    def to_json(self, *, private: bool = True) -> dict[str, Any]:
        """Return the verdict as plain values for JSON.

        Args:
            private: Whether to include raw answers and bits, if the verdict has them.

        Returns:
            A dictionary of the attributes.
        """
        record = asdict(self)
        if self.answers is None or not private:
            del record["answers"], record["ordinary"], record["bits"]
        return record

    def __str__(self) -> str:
        """Return the verdict as text: the decision first, then one line for each fact."""
        law = "" if self.exact or self.null != "exact" else " (upper bound)"
        fixed = self.audit is None or self.audit["method"] == "fixed"
        needed = (
            ""
            if self.null != "exact" or not fixed
            else f"; matches at one level alone would need {self.threshold}"
        )
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests, subtracted from the evidence"
        lines = [
            f"{self.status.upper()}: {floor_bits(self.evidence_bits)} bits of evidence "
            f"(p = {ceil_p(self.log10_p)}, alpha = {self.alpha:g})",
            f"  matches    {self.matches} of {self.m} bits ({self.wm_acc:.1%}){needed}",
            f"  read at    {self.access}, statistic {self.statistic}, null {self.null}{law}, "
            f"{self.queries} queries, {tests}",
        ]
        if self.audit is not None:
            lines += _audit_words(self.audit)
        if len(self.levels) > 1 and fixed:
            lines.append(f"  levels     {'; '.join(map(_level_words, self.levels))}")
        if self.columns is not None:
            order = ", ".join(map(str, self.columns))
            lines.append(f"  columns    classes 0, 1, ... are read from columns {order}")
        if self.refused is not None:
            counts = (
                "{carriers} of {asked_carriers} carriers, {ordinary} of {asked_ordinary} ordinary inputs"
            )
            lines.append(f"  refused    {counts.format(**self.refused)}")
        if "score_channel" in self.channels:
            lines.append(f"  channels   {_channel_words(self.channels)}")
        if self.controls:
            counts = ", ".join(str(control["matches"]) for control in self.controls)
            lines.append(f"  controls   {len(self.controls)} unmarked, which match {counts} bits")
        lines += [f"  because    {reason}" for reason in self.reasons]
        lines.append(f"  holds if   {self.condition}")
        lines += [f"  but        {text}" for text in self.explanations]
        return "\n".join(lines)


def _audit_words(audit: dict[str, Any]) -> list[str]:
    """Describe how a suspect behind HTTP was asked."""
    ended = (
        "" if audit["method"] == "fixed" else f"; {audit['method']} test, ended because {audit['ended']}"
    )
    cost = f", which cost {audit['cost']:g}" if audit["cost"] else ""
    compared = (
        f"; {audit['differing']} of {audit['repeated']} repeated questions answered differently"
        if audit["repeated"]
        else ""
    )
    lines = [
        f"  asked      {audit['carriers']} carriers and {audit['ordinary']} ordinary inputs among "
        f"{audit['questions']} questions, in {audit['requests']} requests{cost}{ended}",
        f"  server     {audit['endpoint']}{compared}",
    ]
    return lines + ([f"  record     {audit['transcript']}"] if audit["transcript"] else [])


def _level_words(level: dict[str, Any]) -> str:
    """Describe the result at one access level."""
    if not level["read"]:
        return f"{level['access']} not read ({level['note']})"
    bits = f", {floor_bits(level['evidence_bits'])} bits" if "evidence_bits" in level else ""
    return f"{level['access']} {level['matches']} matches{bits}"


def floor_bits(bits: float) -> str:
    """Return evidence bits as text, rounded down: 79.97 becomes 79.9, not 80.

    Args:
        bits: Evidence in bits.

    Returns:
        The number with one decimal, or `∞`.
    """
    return f"{math.floor(10 * bits) / 10:.1f}" if math.isfinite(bits) else "∞"


def ceil_p(log10_p: float) -> str:
    """Return a p-value as text, rounded up: it never looks smaller than it is.

    Args:
        log10_p: Base-10 logarithm of the p-value.

    Returns:
        The number with three digits, or a power of ten below 10^-4.
    """
    if log10_p >= -4:
        digit = 10.0 ** (math.floor(log10_p) - 2)  # three digits are shown
        near = math.ceil(10**log10_p / digit - 1e-6)
        shown = digit * (near if math.log10(digit * near) >= log10_p else near + 1)
        return f"{min(1.0, shown):.3g}"
    near = math.ceil(10 * log10_p - 1e-9)
    return f"10^{(near if near / 10 >= log10_p else near + 1) / 10:.1f}"


def _channel_words(channels: dict[str, Any]) -> str:
    """Describe the evidence of carriers and score channel."""
    shift = channels["score_channel"]
    return (
        f"carriers {floor_bits(channels['carriers']['evidence_bits'])} bits; score channel "
        f"{floor_bits(shift['evidence_bits'])} bits (cosine {max(shift['cosine'], shift['within']):.2f} in "
        f"{shift['dimension']} dimensions, {shift['inputs']} inputs)"
    )
