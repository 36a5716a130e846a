"""verify(suspect, mark) → Verdict: what the answers prove, and under which condition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from invgnn import null
from invgnn.channel import Channel, Lean
from invgnn.errors import ParameterError
from invgnn.forward import Forward
from invgnn.models import load_model
from invgnn.query import Answers, Suspect, digest_model
from invgnn.reading import Access
from invgnn.version import __version__
from invgnn.watermark import Watermark

Status = Literal["owned", "not shown", "inconclusive"]
GRINDING_BITS = 80
"""Evidence beyond the reach of trying secrets until one fits: nobody grinds 2^80 of them."""

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
    channels: dict[str, Any]
    called: str
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
        needed = "" if self.null != "exact" else f"; {self.tau} needed by matches alone"
        lines = [
            f"{self.status.upper()}: {floor_bits(self.evidence_bits)} bits of evidence "
            f"(p = {ceil_p(self.log10_p)}, alpha = {self.alpha:g})",
            f"  matches    {self.t} of {self.m} bits ({self.wm_acc:.1%}){needed}",
            f"  read at    {self.access}, statistic {self.statistic}, null {self.null}{law}, "
            f"{self.queries} queries, {self.tried} tried",
        ]
        if "function" in self.channels:
            lines.append(f"  channels   {_told(self.channels)}")
        if self.controls:
            counts = ", ".join(str(control["t"]) for control in self.controls)
            lines.append(f"  controls   {len(self.controls)} unmarked, matching {counts} bits")
        lines += [f"  because    {reason}" for reason in self.reasons]
        lines.append(f"  holds if   {self.condition}")
        lines += [f"  but        {text}" for text in self.explanations]
        return "\n".join(lines)


def floor_bits(bits: float) -> str:
    """Evidence bits, rounded down: 79.97 is not 80."""
    return f"{math.floor(10 * bits + 1e-9) / 10:.1f}" if math.isfinite(bits) else "∞"


def ceil_p(log10_p: float) -> str:
    """A p-value from its log10, rounded up: never better than it is."""
    if log10_p >= -4:
        digit = 10.0 ** (math.floor(log10_p) - 2)  # three digits are shown
        return f"{min(1.0, digit * math.ceil(10**log10_p / digit - 1e-6)):.3g}"
    return f"10^{math.ceil(10 * log10_p - 1e-9) / 10:.1f}"


def verify(
    suspect: Suspect | str | Path,
    mark: Watermark,
    alpha: float = 1e-6,
    *,
    access: Access | None = None,
    data: Any = None,
    architecture: nn.Module | None = None,
    forward: Forward | None = None,
    controls: Sequence[Suspect | str | Path] = (),
    tried: int = 1,
    with_answers: bool = False,
) -> Verdict:
    """Read a suspect with a mark and say what the answers prove.

    suspect   a module, a weights file (with `architecture`, unless invgnn wrote it), or any function
              from a PyG batch to scores
    access    one of the mark's declared readings; by default the first that the suspect can answer.
              Naming one of several counts as having tried them all
    data      the data the mark was drawn from; needed if it has a second channel, which is then read
              from the suspect's scores on them and counts together with the carriers
    forward   how to call an unusual model; it must only call it, and the verdict says that it was used
    controls  unmarked models; if one of them verifies, the verdict is inconclusive. A `plain` mark
              needs them: its null is their match counts
    tried     how many suspects, readings and layers were looked at; it is paid for in evidence
    """
    null.check_alpha(alpha)
    if tried < 1:
        raise ParameterError(f"tried={tried}", "count every suspect and reading looked at")
    if access is not None:
        tried = max(tried, len(mark.readings))
    suspect = _opened(suspect, architecture)
    access = access or _first_possible(suspect, mark)
    answers = mark.read(suspect, access, forward)
    channel = _second_channel(mark, data, access)
    lean = channel.read(suspect, data, forward or mark.forward) if channel else None
    alone = mark.weigh(answers)
    found = together(alone, lean)
    others = [_opened(control, architecture) for control in controls]
    tests = [
        together(
            mark.weigh(mark.read(other, access, forward)),
            channel.read(other, data, forward or mark.forward) if channel else None,
        )
        for other in others
    ]
    law, log_p, tau = _law(mark, found, tests, alpha)
    status, reasons = _decide(answers, mark, log_p, alpha, tried, tests)
    called, trust = _call(suspect, forward or mark.forward)
    exactly = CONDITION if channel is None else BOTH_CONDITION
    condition = (exactly if law == "exact" else MODELS_CONDITION) + trust
    return Verdict(
        status=status,
        reasons=tuple(reasons),
        t=found.t,
        m=mark.m,
        tau=tau,
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
        queries=answers.queries + (lean.inputs if lean else 0),
        channels=_channels(alone, lean),
        called=called,
        controls=tuple(_control(o, test, law) for o, test in zip(others, tests, strict=True)),
        digests={
            "mark": mark.digest,
            "reference": mark.context["reference"],
            "suspect": _digest(suspect),
        },
        condition=condition,
        answers=tuple(answers.carriers.tolist()) if with_answers else None,
        ordinary=tuple(answers.ordinary.tolist()) if with_answers else None,
        bits=tuple(mark.bits.tolist()) if with_answers else None,
    )


def _second_channel(mark: Watermark, data: Any, access: Access) -> Channel | None:
    """The second channel of a mark that has one, wherever a suspect gives scores."""
    if mark.function is None or access == "labels":
        return None
    if data is None:
        raise ParameterError(
            "this mark has a second channel, read from the suspect's scores on the data it was drawn from",
            "pass data= (on the command line --task), the training data; a channel left out after the fact "
            "proves nothing",
        )
    return mark.channel(data)


def together(carriers: null.Evidence, lean: Lean | None) -> null.Evidence:
    """The evidence of both channels: two streams of one secret, declared beforehand, so independent."""
    if lean is None:
        return carriers
    both = null.log_p_channels([carriers.log_p, lean.log_p])
    return replace(carriers, log_p=both, statistic=f"{carriers.statistic} and lean")


def _channels(carriers: null.Evidence, lean: Lean | None) -> dict[str, Any]:
    found: dict[str, Any] = {"carriers": {"evidence_bits": carriers.bits()}}
    return found if lean is None else found | {"function": asdict(lean) | {"evidence_bits": lean.bits()}}


def _told(channels: dict[str, Any]) -> str:
    lean = channels["function"]
    return (
        f"carriers {floor_bits(channels['carriers']['evidence_bits'])} bits; function "
        f"{floor_bits(lean['evidence_bits'])} bits (cosine {max(lean['cosine'], lean['within']):.2f} in "
        f"{lean['dimension']} dimensions, {lean['inputs']} inputs)"
    )


MODELS_CONDITION = (
    "The suspect, if innocent, is exchangeable with the unmarked control models. The bits of a plain "
    "mark are a public function of its carriers, so a model that perceives the invariant matches "
    "everybody's carriers: this is no evidence of whose mark it is."
)


def _opened(suspect: Suspect | str | Path, architecture: nn.Module | None) -> Suspect:
    return load_model(suspect, architecture) if isinstance(suspect, str | Path) else suspect


def _digest(suspect: Suspect) -> str:
    return digest_model(suspect) if isinstance(suspect, nn.Module) else "function"


def _control(suspect: Suspect, test: null.Evidence, law: str) -> dict[str, Any]:
    evidence = {"evidence_bits": test.bits()} if law == "exact" else {}
    return {"t": test.t, **evidence, "digest": _digest(suspect)}


def _call(suspect: Suspect, forward: Forward | None) -> tuple[str, str]:
    """How the suspect was called, and what has to be trusted because of it."""
    if not isinstance(suspect, nn.Module):
        return "as a function", " The function passes the graphs on to the suspect and knows no bits."
    if forward is None:
        return "by its own signature", ""
    return (
        "through a forward function given by the verifier",
        " The forward function only calls the suspect and knows no bits: whoever checks this reads it.",
    )


def _law(
    mark: Watermark, found: null.Evidence, tests: list[null.Evidence], alpha: float
) -> tuple[str, float, int]:
    """The null this mark allows, the log p under it, and the match count it asks for."""
    if mark.context["key"] == "keyed":
        return "exact", found.log_p, null.NULLS["exact"].tau(mark.m, alpha)
    counts = [test.t for test in tests]
    return "models", math.log(null.empirical_p(found.t, counts)), null.models(counts).tau(mark.m, alpha)


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
    if mark.context["key"] == "plain":
        return _decide_plain(log_p, limit, len(tests))
    verified = sum(test.log_p <= math.log(alpha) for test in tests)
    if verified:
        return "inconclusive", [f"{verified} of {len(tests)} unmarked controls verify as well"]
    if log_p > limit:
        return "not shown", ["the answers are what an unrelated model could give by chance"]
    if null.evidence_bits(log_p, tried) >= GRINDING_BITS:
        return "owned", [f"at least {GRINDING_BITS} bits: beyond trying secrets until one fits"]
    most = math.log2(math.comb(mark.m, mark.m // 2)) - math.log2(2 * tried)
    taught = "" if mark.memory is None else " and the digest of the mark as it was taught"
    short = f"; m={mark.m} bits can give {floor_bits(most)} at most" if most < GRINDING_BITS else ""
    return "inconclusive", [
        "chance is ruled out at this level, but nothing here proves that the secret is older than "
        f"the suspect, and below {GRINDING_BITS} bits a secret could have been searched for: "
        f"publish a commitment to the secret{taught} before releasing a model{short}"
    ]


def _decide_plain(log_p: float, limit: float, controls: int) -> tuple[Status, list[str]]:
    """A plain mark shows that the invariant is perceived, and never whose mark it is."""
    if math.log(1 / (controls + 1)) > limit:
        least = f"{1 / (controls + 1):.2g}"
        return "inconclusive", [
            f"a plain mark rests on unmarked models; with {controls} of them no p-value is below {least}"
        ]
    if log_p > limit:
        return "not shown", ["unmarked models match as many bits"]
    return "inconclusive", [
        "the suspect matches more bits than unmarked models do, which any model that perceives the "
        "invariant would; draw a keyed mark to show whose it is"
    ]
