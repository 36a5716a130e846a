"""verify(suspect, mark) → Verdict: what the answers prove, and under which condition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from invgnn import null
from invgnn.errors import ParameterError
from invgnn.models import load_model
from invgnn.query import Forward, Suspect, digest_model
from invgnn.reading import Access
from invgnn.version import __version__
from invgnn.watermark import Answers, Watermark

Status = Literal["owned", "not shown", "inconclusive"]
GRINDING_BITS = 80
"""Evidence beyond the reach of trying secrets until one fits: nobody grinds 2^80 of them."""

CONDITION = (
    "The secret was fixed before the suspect existed and the reading was declared beforehand; "
    "then the key is a uniformly random balanced vector given the suspect's answers, whatever "
    "the model, the carriers or their dependence."
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
    t: int
    m: int
    tau: int
    said_ones: int
    wm_acc: float
    alpha: float
    p: float
    log10_p: float
    evidence_bits: float
    tried: int
    statistic: str
    null: str
    exact: bool
    access: str
    reading: dict[str, Any]
    key: str
    queries: int
    controls: tuple[dict[str, Any], ...]
    digests: dict[str, str]
    version: str = __version__
    condition: str = CONDITION
    explanations: tuple[str, ...] = EXPLANATIONS
    answers: tuple[float, ...] | None = field(default=None, repr=False)
    bits: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def exit_code(self) -> int:
        """0 owned, 1 not shown, 3 inconclusive."""
        return EXIT_CODES[self.status]

    def to_json(self) -> dict[str, Any]:
        """Plain values; raw answers and bits only if they were asked for."""
        record = asdict(self)
        if self.answers is None:
            del record["answers"], record["bits"]
        return record

    def __str__(self) -> str:
        p = f"10^{self.log10_p:.1f}" if self.log10_p < -4 else f"{self.p:.3g}"
        lines = [
            f"{self.status.upper()}: {self.evidence_bits:.1f} bits of evidence (p = {p}, "
            f"alpha = {self.alpha:g})",
            f"  matches    {self.t} of {self.m} bits ({self.wm_acc:.1%}); "
            f"{self.tau} needed by matches alone",
            f"  read at    {self.access}, statistic {self.statistic}, null {self.null}"
            f"{'' if self.exact else ' (upper bound)'}, {self.queries} queries, {self.tried} tried",
        ]
        if self.controls:
            best = max(c["evidence_bits"] for c in self.controls)
            lines.append(f"  controls   {len(self.controls)}, at most {best:.1f} bits")
        lines += [f"  because    {reason}" for reason in self.reasons]
        lines.append(f"  holds if   {self.condition}")
        lines += [f"  but        {text}" for text in self.explanations]
        return "\n".join(lines)


def verify(
    suspect: Suspect | str | Path,
    mark: Watermark,
    alpha: float = 1e-6,
    *,
    access: Access | None = None,
    architecture: nn.Module | None = None,
    forward: Forward | None = None,
    controls: Sequence[Suspect] = (),
    tried: int = 1,
    with_answers: bool = False,
) -> Verdict:
    """Read a suspect with a mark and say what the answers prove.

    suspect   a module, a weights file (with `architecture`, unless invgnn wrote it), or any function
              from a PyG batch to scores
    access    one of the mark's declared readings; a function is read at the first it can answer
    controls  unmarked models; if one of them verifies, the verdict is inconclusive. A `plain` mark
              needs them: its null is their match counts
    tried     how many suspects, readings and layers were looked at; it is paid for in evidence
    """
    null.check_alpha(alpha)
    if tried < 1:
        raise ParameterError(f"tried={tried}", "count every suspect and reading looked at")
    if isinstance(suspect, str | Path):
        suspect = load_model(suspect, architecture)
    access = access or _first_possible(suspect, mark)
    answers = mark.read(suspect, access, forward)
    found = mark.weigh(answers)
    tests = [mark.weigh(mark.read(c, access, forward)) for c in controls]
    if mark.context["key"] == "plain":
        law, log_p = "models", math.log(null.empirical_p(found.t, [c.t for c in tests]))
    else:
        law, log_p = "exact", found.log_p
    status, reasons = _decide(answers, mark, log_p, alpha, tried, tests)
    return Verdict(
        status=status,
        reasons=tuple(reasons),
        t=found.t,
        m=mark.m,
        tau=null.NULLS["exact"].tau(mark.m, alpha),
        said_ones=found.ones,
        wm_acc=found.t / mark.m,
        alpha=alpha,
        p=math.exp(log_p),
        log10_p=log_p / math.log(10),
        evidence_bits=null.evidence_bits(log_p, tried),
        tried=tried,
        statistic="matches" if law == "models" else found.statistic,
        null=law,
        exact=found.exact and law == "exact",
        access=answers.reading.access,
        reading=answers.reading.record(),
        key=mark.context["key"],
        queries=answers.queries,
        controls=tuple({"t": c.t, "evidence_bits": c.bits()} for c in tests),
        digests={
            "mark": mark.digest,
            "reference": mark.context["reference"],
            "suspect": digest_model(suspect) if isinstance(suspect, nn.Module) else "function",
        },
        condition=CONDITION if law == "exact" else MODELS_CONDITION,
        answers=tuple(answers.standard.tolist()) if with_answers else None,
        bits=tuple(mark.bits.tolist()) if with_answers else None,
    )


MODELS_CONDITION = (
    "The suspect, if innocent, is exchangeable with the unmarked control models. The bits of a plain "
    "mark are a public function of its carriers, so a model that perceives the invariant matches "
    "everybody's carriers: this is no evidence of whose mark it is."
)


def _first_possible(suspect: Suspect, mark: Watermark) -> Access:
    module = isinstance(suspect, nn.Module)
    for reading in mark.readings:
        if module or not reading.hidden:
            return reading.access
    return mark.readings[0].access


def _decide(
    answers: Answers,
    mark: Watermark,
    log_p: float,
    alpha: float,
    tried: int,
    tests: list[null.Evidence],
) -> tuple[Status, list[str]]:
    if np.ptp(answers.carriers) == 0:
        return "inconclusive", ["the suspect answers the same on every carrier: nothing to read"]
    limit = math.log(alpha) - math.log(tried)
    verified = sum(test.log_p <= math.log(alpha) for test in tests)
    if mark.context["key"] == "keyed" and verified:
        return "inconclusive", [f"{verified} of {len(tests)} unmarked controls verify as well"]
    if mark.context["key"] == "plain" and 1 / (len(tests) + 1) > alpha:
        return "inconclusive", [
            f"a plain mark rests on unmarked models; with {len(tests)} of them no p-value is below "
            f"{1 / (len(tests) + 1):.2g}"
        ]
    if log_p > limit:
        return "not shown", ["the answers are what an unrelated model could give by chance"]
    if null.evidence_bits(log_p, tried) >= GRINDING_BITS and mark.context["key"] == "keyed":
        return "owned", [f"at least {GRINDING_BITS} bits: beyond trying secrets until one fits"]
    return "inconclusive", [
        "chance is ruled out at this level, but nothing here proves that the secret is older than "
        f"the suspect, and below {GRINDING_BITS} bits a secret could have been searched for: "
        "publish a commitment to the secret before releasing a model"
    ]
