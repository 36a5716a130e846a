"""verify(suspect, mark) → Verdict: what the answers prove, and under which condition."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from invgnn.version import __version__

Status = Literal["owned", "not shown", "inconclusive"]

CONDITION = (
    "The secret was fixed before the suspect existed and the reading was declared beforehand; "
    "then the key is a uniformly random balanced vector given the suspect's answers, whatever "
    "the model, the carriers or their dependence."
)
BOTH_CONDITION = (
    "The secret, the remembered scores and the data were fixed before the suspect existed and the reading "
    "was declared beforehand; then the key is a uniformly random balanced vector and the direction a "
    "uniformly random one, given all that the suspect says, whatever the model and the inputs."
)
EXPLANATIONS = (
    "The suspect may be a licensed copy, or both may descend from a shared pre-trained model.",
    "Evidence says that the suspect descends from a model taught this mark, not who did wrong.",
)
EXIT_CODES: dict[Status, int] = {"owned": 0, "not shown": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Verdict:
    """What a suspect's answers prove about a mark, with everything needed to check it.

    Guarantee: for a suspect independent of the secret, Pr[p <= u] <= u for every u (null `exact`).
    Void if the secret, the reading or the statistic was chosen after looking at the suspect.
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
    version: str = __version__
    condition: str = CONDITION
    explanations: tuple[str, ...] = EXPLANATIONS
    answers: tuple[float, ...] | None = field(default=None, repr=False)
    ordinary: tuple[float, ...] | None = field(default=None, repr=False)
    bits: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def exit_code(self) -> int:
        """0 owned, 1 not shown, 3 inconclusive."""
        return EXIT_CODES[self.status]

    def to_json(self, *, private: bool = True) -> dict[str, Any]:
        """Plain values; raw answers and bits only if they were asked for, and never unless `private`."""
        record = asdict(self)
        if self.answers is None or not private:
            del record["answers"], record["ordinary"], record["bits"]
        return record

    def __str__(self) -> str:
        law = "" if self.exact or self.null != "exact" else " (upper bound)"
        needed = "" if self.null != "exact" else f"; {self.threshold} needed by matches alone, at one level"
        lines = [
            f"{self.status.upper()}: {floor_bits(self.evidence_bits)} bits of evidence "
            f"(p = {ceil_p(self.log10_p)}, alpha = {self.alpha:g})",
            f"  matches    {self.matches} of {self.m} bits ({self.wm_acc:.1%}){needed}",
            f"  read at    {self.access}, statistic {self.statistic}, null {self.null}{law}, "
            f"{self.queries} queries, {self.tests} tests paid for",
        ]
        if len(self.levels) > 1:
            lines.append(f"  levels     {'; '.join(map(_level_words, self.levels))}")
        if self.columns is not None:
            lines.append(f"  columns    read as classes in the order {', '.join(map(str, self.columns))}")
        if self.refused is not None:
            counts = (
                "{carriers} of {asked_carriers} carriers, {ordinary} of {asked_ordinary} ordinary inputs"
            )
            lines.append(f"  refused    {counts.format(**self.refused)}")
        if "score_channel" in self.channels:
            lines.append(f"  channels   {_channel_words(self.channels)}")
        if self.controls:
            counts = ", ".join(str(control["matches"]) for control in self.controls)
            lines.append(f"  controls   {len(self.controls)} unmarked, matching {counts} bits")
        lines += [f"  because    {reason}" for reason in self.reasons]
        lines.append(f"  holds if   {self.condition}")
        lines += [f"  but        {text}" for text in self.explanations]
        return "\n".join(lines)


def _level_words(level: dict[str, Any]) -> str:
    if not level["read"]:
        return f"{level['access']} not read ({level['note']})"
    bits = f", {floor_bits(level['evidence_bits'])} bits" if "evidence_bits" in level else ""
    return f"{level['access']} {level['matches']} matches{bits}"


def floor_bits(bits: float) -> str:
    """Evidence bits, rounded down: 79.97 is not 80."""
    return f"{math.floor(10 * bits) / 10:.1f}" if math.isfinite(bits) else "∞"


def ceil_p(log10_p: float) -> str:
    """A p-value from its log10, rounded up: never better than it is."""
    if log10_p >= -4:
        digit = 10.0 ** (math.floor(log10_p) - 2)  # three digits are shown
        near = math.ceil(10**log10_p / digit - 1e-6)
        shown = digit * (near if math.log10(digit * near) >= log10_p else near + 1)
        return f"{min(1.0, shown):.3g}"
    near = math.ceil(10 * log10_p - 1e-9)
    return f"10^{(near if near / 10 >= log10_p else near + 1) / 10:.1f}"


def _channel_words(channels: dict[str, Any]) -> str:
    shift = channels["score_channel"]
    return (
        f"carriers {floor_bits(channels['carriers']['evidence_bits'])} bits; score channel "
        f"{floor_bits(shift['evidence_bits'])} bits (cosine {max(shift['cosine'], shift['within']):.2f} in "
        f"{shift['dimension']} dimensions, {shift['inputs']} inputs)"
    )
