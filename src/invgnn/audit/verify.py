"""verify(suspect, mark): read a suspect at every declared level and decide what the answers prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from invgnn.audit.examine import Finding, Level, examine
from invgnn.audit.provenance import Code, Origin, digest_model, require_plain, trace, trace_function
from invgnn.audit.verdict import BOTH_CONDITION, CONDITION, Status, Verdict, ceil_p, floor_bits
from invgnn.checks import check_choice, check_whole
from invgnn.errors import ParameterError
from invgnn.nn.forward import Forward, unwrap
from invgnn.nn.model_file import load_model
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.stats import laws, null
from invgnn.stats.evidence import Evidence, empirical_p
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel, ScoreShift

GRINDING_BITS = 80
"""Evidence beyond the reach of trying secrets until one fits: nobody grinds 2^80 of them."""


def verify(
    suspect: Suspect | str | Path,
    mark: Watermark,
    alpha: float = 1e-6,
    *,
    access: Access | None = None,
    data: Any = None,
    architecture: nn.Module | None = None,
    forward: Forward | None = None,
    code_from: Origin = "auditor",
    controls: Sequence[Suspect | str | Path] = (),
    suspects: int = 1,
    with_answers: bool = False,
) -> Verdict:
    """Read a suspect with a mark and say what the answers prove.

    Every declared access level that the suspect can answer is read, and the columns of its scores are
    matched to the task's classes by its answers to labelled ordinary inputs. All of that is paid for.

    Args:
        suspect: A module, a weights file (with `architecture`, unless invgnn wrote it), or any function
        from
            a PyG batch to scores or labels.
        mark: The mark.
        alpha: The false-positive rate you accept.
        access: One of the declared levels, to read it alone; it costs as much as reading all.
        data: The data the mark was drawn from. Needed if it has a score channel, which is read from the
            suspect's scores on them and counts together with the carriers.
        architecture: For a weights file: a model of the right shape, without hooks and unsaved tensors.
        forward: How to call an unusual model. It must only call it; the verdict names it.
        code_from: Who wrote the suspect's classes, the architecture and `forward`, where no known library
            did. With "claimant" only a model file that invgnn rebuilds by itself can be `owned`.
        controls: Unmarked models; if one of them verifies, the verdict is inconclusive. A `plain` mark
            needs them: its null is their match counts.
        suspects: Number of suspects tested with this mark; log2 of it is subtracted from the evidence.
        with_answers: Whether the verdict keeps raw answers and bits.

    Returns:
        The verdict.

    Raises:
        SuspectError: If the suspect cannot be asked, or answers no ordinary input.
        ParameterError: If an argument does not fit the mark.
    """
    laws.check_alpha(alpha)
    check_choice("code_from", code_from, ("auditor", "claimant"))
    check_whole("suspects", suspects, 1, 2**62)
    if type(mark) is not Watermark:
        raise ParameterError(f"the mark is a {type(mark).__name__}", "pass a Watermark, as it was loaded")
    mark = Watermark.fresh(mark)
    rebuilt = isinstance(suspect, str | Path) and architecture is None and (forward or mark.forward) is None
    suspect = _opened(suspect, architecture)
    between = _between(suspect, forward or mark.forward, code_from, rebuilt)
    channel = _score_channel(mark, data)
    found = examine(mark, suspect, access=access, channel=channel, forward=forward)
    others = [_opened(control, architecture) for control in controls]
    tests = [examine(mark, one, access=access, channel=channel, forward=forward) for one in others]
    law, log_p, tau, level = _law(mark, found, tests, alpha)
    paid = suspects * found.tests
    between = between.checked(_between(suspect, forward or mark.forward, code_from, rebuilt))
    status, reasons = _decide(found, mark, log_p, alpha, suspects, tests)
    if status == "owned" and between.blocked:
        status, reasons = "inconclusive", [between.blocked, *reasons]
    evidence, answers = level.evidence or found.evidence, level.answers
    exactly = CONDITION if channel is None else BOTH_CONDITION
    return Verdict(
        status=status,
        reasons=tuple(reasons),
        matches=evidence.matches,
        m=mark.m,
        threshold=tau,
        ones=evidence.ones,
        wm_acc=evidence.matches / mark.m,
        alpha=alpha,
        p=laws.p_of(log_p),
        log10_p=laws.log10_of(log_p),
        evidence_bits=laws.evidence_bits(log_p, suspects),
        tests=paid,
        suspects=suspects,
        statistic="matches" if law == "models" else _statistic(evidence, found.score_shift),
        null=law,
        exact=evidence.exact and law == "exact",
        access=level.access,
        reading=mark.reading(level.access).record(),
        key=mark.context["key"],
        queries=found.queries,
        channels=_channels(evidence, found.score_shift),
        levels=tuple(_shown(one, law) for one in found.levels),
        columns=found.columns if found.aligned else None,
        refused=_refused(found),
        called=between.called,
        code=between.record,
        controls=tuple(_control(o, t, law, level.access) for o, t in zip(others, tests, strict=True)),
        digests={
            "mark": mark.digest,
            "reference": mark.context["reference"],
            "suspect": between.digest,
            "weights": between.weights,
        },
        condition=(exactly if law == "exact" else MODELS_CONDITION) + between.trust,
        answers=tuple(answers.carriers.tolist()) if with_answers and answers else None,
        ordinary=tuple(answers.ordinary.tolist()) if with_answers and answers else None,
        bits=tuple(mark.bits.tolist()) if with_answers else None,
    )


def _score_channel(mark: Watermark, data: Any) -> ScoreChannel | None:
    """The score channel of a mark that has one: it was declared, so it is always read."""
    if mark.score_channel is None:
        return None
    if data is None:
        raise ParameterError(
            "this mark has a score channel, read from the suspect's scores on the data it was drawn from",
            "pass data= (on the command line --task), the training data; a channel left out after the fact "
            "proves nothing",
        )
    return mark.channel(data)


def _statistic(evidence: Evidence, lean: ScoreShift | None) -> str:
    return evidence.statistic if lean is None else f"{evidence.statistic} and lean"


def _shown(level: Level, law: str) -> dict[str, Any]:
    """One level as plain values; bits are those of the level alone, nothing paid for."""
    if level.evidence is None:
        return {"access": level.access, "read": False, "note": level.note}
    bits = {"evidence_bits": level.evidence.bits()} if law == "exact" else {}
    return {"access": level.access, "read": True, "matches": level.evidence.matches, **bits}


def _refused(found: Finding) -> dict[str, Any] | None:
    refusal = found.refusal
    if not refusal.carriers + refusal.ordinary:
        return None
    return asdict(refusal) | {"log10_p": laws.log10_of(refusal.log_p)}


def _channels(carriers: Evidence, lean: ScoreShift | None) -> dict[str, Any]:
    found: dict[str, Any] = {"carriers": {"evidence_bits": carriers.bits()}}
    return (
        found if lean is None else found | {"score_channel": asdict(lean) | {"evidence_bits": lean.bits()}}
    )


MODELS_CONDITION = (
    "The suspect, if innocent, is exchangeable with the unmarked control models. The bits of a plain "
    "mark are a public function of its carriers, so a model that perceives the invariant matches "
    "everybody's carriers: this is no evidence of whose mark it is."
)


def _opened(suspect: Suspect | str | Path, architecture: nn.Module | None) -> Suspect:
    if not isinstance(suspect, str | Path):
        return unwrap(suspect) if isinstance(suspect, nn.Module) else suspect
    if architecture is not None:
        require_plain(architecture)
    return load_model(suspect, architecture)


def _control(suspect: Suspect, test: Finding, law: str, access: str) -> dict[str, Any]:
    """What a control shows: matches at the level that is shown of the suspect, evidence of all levels."""
    evidence = {"evidence_bits": laws.evidence_bits(test.log_p)} if law == "exact" else {}
    digest = digest_model(suspect) if isinstance(suspect, nn.Module) else "function"
    shown = next((one.evidence for one in test.levels if one.access == access), None) or test.evidence
    return {"matches": shown.matches, **evidence, "digest": digest}


@dataclass(frozen=True)
class _Between:
    """What stands between the auditor and the weights, in the words of a verdict.

    `blocked` says why the verdict cannot be `owned`; empty if it can.
    """

    called: str
    trust: str
    record: dict[str, Any]
    digest: str
    weights: str
    blocked: str = ""

    def checked(self, after: _Between) -> _Between:
        """Compare tensors and code with what stands there once the suspect has answered.

        Plain settings may change meanwhile: models count calls or note the shape of their last input.
        """
        if (self.weights, self.record) == (after.weights, after.record):
            return self
        changed = (
            "the suspect's weights or code changed while it was asked, so they did not give the answers"
        )
        return replace(self, blocked=changed)


def _between(suspect: Suspect, forward: Forward | None, author: Origin, rebuilt: bool) -> _Between:
    """Name all code that runs when the suspect is asked, and what has to be trusted because of it.

    Objects can be made to hide code, so of a claimant only a file is accepted that is `rebuilt` here.
    """
    code: list[Code] = []
    if isinstance(suspect, nn.Module):
        found = trace(suspect, author)
        digest, weights, record, called = (
            found.digest,
            found.tensors,
            found.record(),
            "by its own signature",
        )
        code += found.foreign
    else:
        digest = weights = "function"
        record = {"libraries": [], "foreign": [], "unsaved": [], "unknown": []}
        called = "as a function"
        code.append(trace_function(suspect, author))
    if isinstance(suspect, nn.Module) and forward is not None:
        called = "through a forward function given by the verifier"
        code.append(trace_function(forward, author))
    record["foreign"] = [asdict(one) for one in code]
    objects = author == "claimant" and not rebuilt
    if not code and not objects:
        return _Between(called, "", record, digest, weights)
    names = "; ".join(map(str, code[:5])) + (f"; and {len(code) - 5} more" if len(code) > 5 else "")
    listed = f" This code only computes the suspect's answers and knows no bits: {names}."
    trust = listed if code else " The object that was asked is the claimant's and hides no code."
    if author == "auditor":
        return _Between(called, trust + " Whoever checks this reads it.", record, digest, weights)
    blocked = (
        "code or objects of the claimant stand between the auditor and the weights: read the code and "
        "build the model yourself, or ask for a model file that invgnn rebuilds"
    )
    return _Between(called, trust, record, digest, weights, blocked)


def _law(
    mark: Watermark, found: Finding, tests: list[Finding], alpha: float
) -> tuple[str, float, int, Level]:
    """The null this mark allows, the log p under it, the match count it asks for, and the level shown."""
    if mark.context["key"] == "keyed":
        return "exact", found.log_p, null.NULLS["exact"].threshold(mark.m, alpha), found.best
    ways = []
    for place, level in enumerate(found.levels):
        if level.evidence is not None:
            counts = [e.matches for test in tests if (e := test.levels[place].evidence) is not None]
            ways.append((empirical_p(level.evidence.matches, counts), counts, level))
    p, counts, level = min(ways, key=lambda way: way[0])
    log_p = laws.log_p_times(math.log(p), found.tests)
    return "models", log_p, null.models(counts).threshold(mark.m, alpha), level


def _decide(
    found: Finding,
    mark: Watermark,
    log_p: float,
    alpha: float,
    suspects: int,
    tests: list[Finding],
) -> tuple[Status, list[str]]:
    limit = laws.log_level(alpha, suspects)
    hidden = _hidden(found, limit)
    if found.constant and not hidden and found.score_shift is None:
        return "inconclusive", ["the suspect answers the same on every carrier: nothing to read"]
    if mark.context["key"] == "plain":
        return _decide_plain(log_p, limit, _readable(tests, found), found.tests)
    verified = sum(test.log_p <= laws.log_level(alpha) for test in tests)
    if verified:
        return "inconclusive", [f"{verified} of {len(tests)} unmarked controls verify as well"]
    if log_p > limit and hidden:
        return "inconclusive", [hidden]
    if log_p > limit:
        return "not shown", ["the answers are what an unrelated model could give by chance"]
    more = [hidden] if hidden else []
    if laws.evidence_bits(log_p, suspects) >= GRINDING_BITS:
        return "owned", [f"at least {GRINDING_BITS} bits: beyond trying secrets until one fits", *more]
    looks = 2 if mark.context["statistic"] == "combined" else 1
    most = math.log2(math.comb(mark.m, mark.m // 2)) - math.log2(looks * suspects * found.tests)
    taught = "" if mark.baseline is None else " and the digest of the mark as it was taught"
    small = most < GRINDING_BITS and found.score_shift is None
    short = f"; m={mark.m} bits can give {floor_bits(most)} at most" if small else ""
    return "inconclusive", [
        "chance is ruled out at this level, but nothing here proves that the secret is older than "
        f"the suspect, and below {GRINDING_BITS} bits a secret could have been searched for: "
        f"publish a commitment to the secret{taught} before releasing a model{short}",
        *more,
    ]


def _hidden(found: Finding, limit: float) -> str:
    """What to say if the suspect refuses carriers more often than ordinary inputs; empty if it does not."""
    refusal = found.refusal
    if refusal.log_p > limit:
        return ""
    return (
        f"the suspect refused {refusal.carriers} of {refusal.asked_carriers} carriers and "
        f"{refusal.ordinary} of {refusal.asked_ordinary} ordinary inputs (p = "
        f"{ceil_p(laws.log10_of(refusal.log_p))} if it did not tell them apart); refused answers count as "
        "the median"
    )


def _readable(tests: list[Finding], found: Finding) -> int:
    """How many controls could be read at every level at which the suspect was."""
    read = [place for place, level in enumerate(found.levels) if level.evidence is not None]
    return sum(all(test.levels[place].evidence is not None for place in read) for test in tests)


def _decide_plain(log_p: float, limit: float, controls: int, tests: int) -> tuple[Status, list[str]]:
    """A plain mark shows that the invariant is perceived, and never whose mark it is."""
    if math.log(tests / (controls + 1)) > limit:
        least = f"{min(1.0, tests / (controls + 1)):.2g}"
        return "inconclusive", [
            f"a plain mark rests on unmarked models; with {controls} of them no p-value is below {least}"
        ]
    if log_p > limit:
        return "not shown", ["unmarked models match as many bits"]
    return "inconclusive", [
        "the suspect matches more bits than unmarked models do, which any model that perceives the "
        "invariant would; draw a keyed mark to show whose it is"
    ]
