"""Read a suspect at every declared level and decide what its answers prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from invgnn.audit.examine import Finding, Level, examine
from invgnn.audit.provenance import Code, Origin, digest_model, require_plain, trace, trace_function
from invgnn.audit.remote import Endpoint, Transcript
from invgnn.audit.remote.session import Session
from invgnn.audit.sequential import STOPS, Progress, Sequential, examine_sequentially
from invgnn.audit.verdict import BOTH_CONDITION, CONDITION, Status, Verdict, ceil_p, floor_bits
from invgnn.checks import check_choice, check_whole
from invgnn.errors import ParameterError
from invgnn.nn.forward import Forward, unwrap
from invgnn.nn.model_file import Architecture, built, load_model
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.stats import laws, null
from invgnn.stats.evidence import GRINDING_BITS, Evidence, empirical_p
from invgnn.stats.sequential import WEAKEST
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift


class Sufficient(NamedTuple):
    """How much evidence is enough, because of what is known about the age of the secret.

    Attributes:
        bits: Evidence in bits.
        reason: What is known, as the reason of a verdict.
    """

    bits: float
    reason: str


def beyond_search() -> Sufficient:
    """Return the evidence that is enough whatever the age of the secret."""
    beyond = "more than a search for a fitting secret could reach"
    return Sufficient(GRINDING_BITS, f"at least {GRINDING_BITS} bits of evidence, {beyond}")


def verify(
    suspect: Suspect | Endpoint | Transcript | str | Path,
    mark: Watermark,
    alpha: float = 1e-6,
    *,
    access: Access | None = None,
    data: Any = None,
    architecture: Architecture | None = None,
    forward: Forward | None = None,
    code_from: Origin = "auditor",
    controls: Sequence[Suspect | str | Path] = (),
    suspects: int = 1,
    with_answers: bool = False,
    sufficient: Sufficient | None = None,
    sequential: Sequential | str | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Test whether a suspect contains a mark and return the verdict.

    The suspect is read at every declared access level that it supports. The columns of its scores are
    matched to the task's classes by its answers to labelled ordinary inputs. The evidence is corrected for
    the number of levels and of ways to read the columns.

    Args:
        suspect: A module, a weights file (with `architecture`, unless invgnn wrote the file), or a function
            from a PyG batch to scores or labels. An `Endpoint` for a model behind HTTP, or the `Transcript`
            of such an audit.
        mark: The mark.
        alpha: The false-positive rate that you accept.
        access: One of the declared levels, to read only that one. The evidence is corrected for all
            declared levels nevertheless.
        data: The data that the mark was drawn from. Required if the mark has a score channel: the suspect's
            scores on these data count together with its answers to the carriers. Decoys of an `Endpoint`
            are taken from them, too.
        architecture: For a weights file, a model of the right shape without hooks and unsaved tensors, or a
            function that builds it.
        forward: How to call a model with an unusual signature. It must only call the model; the verdict
            names it.
        code_from: Who wrote the suspect's classes, the architecture and `forward`, where no known library
            defines them. With "claimant", the verdict can be `owned` only for a model file that invgnn
            rebuilds by itself.
        controls: Unmarked models. If one of them verifies, the verdict is inconclusive. A `plain` mark
            needs them: its null distribution is their match counts.
        suspects: Number of suspects tested with this mark; log2 of it is subtracted from the evidence.
        with_answers: Whether the verdict keeps raw answers and bits.
        sufficient: Less evidence than 80 bits that is enough, and why. Only somebody who has checked when
            the secret was fixed can know it (`invgnn.court.judge`).
        sequential: For an `Endpoint`: ask question by question and stop as soon as the evidence suffices or
            is hopeless. `"betting"`, `"sprt"` or a `Sequential`. Choose before you ask; a second test of
            the same suspect counts as another suspect.
        progress: For an `Endpoint`: called with the state of the audit after every step.

    Returns:
        The verdict.

    Raises:
        SuspectError: If the suspect cannot be queried, or answers no ordinary input.
        ParameterError: If an argument does not fit the mark.
    """
    laws.check_alpha(alpha)
    check_choice("code_from", code_from, ("auditor", "claimant"))
    check_whole("suspects", suspects, 1, 2**62)
    if type(mark) is not Watermark:
        raise ParameterError(
            f"the mark must be a Watermark, not a {type(mark).__name__}",
            "pass the object that Watermark.load returned",
        )
    mark = Watermark.fresh(mark)
    enough = sufficient or beyond_search()
    how = Sequential(sequential) if isinstance(sequential, str) else sequential  # type: ignore[arg-type]
    session = None
    if isinstance(suspect, Endpoint | Transcript):
        settings = _settings(how, enough, access, alpha, suspects)
        suspect = session = Session(suspect, mark, data, settings, progress)
    elif how is not None:
        raise ParameterError(
            "only a suspect behind HTTP is asked question by question",
            "pass an Endpoint, or no sequential=",
        )
    rebuilt = isinstance(suspect, str | Path) and architecture is None and (forward or mark.forward) is None
    suspect = open_suspect(suspect, architecture)
    between = _between(suspect, forward or mark.forward, code_from, rebuilt)
    channel = _score_channel(mark, data)
    if session is not None and how is not None:
        found = examine_sequentially(
            mark,
            session,
            how,
            alpha=alpha,
            suspects=suspects,
            bits=settings["bits"],
            access=access,
            channel=channel,
            step=settings["step"],
        )
    else:
        found = examine(mark, suspect, access=access, channel=channel, forward=forward)
    others = [open_suspect(control, architecture) for control in controls]
    tests = [examine(mark, one, access=access, channel=channel, forward=forward) for one in others]
    law, log_p, tau, level = _law(mark, found, tests, alpha)
    paid = suspects * found.tests
    between = between.checked(_between(suspect, forward or mark.forward, code_from, rebuilt))
    status, reasons = _decide(found, mark, log_p, alpha, suspects, tests, enough)
    if session is not None:
        if how is None:
            session.finish()
        status, reasons = _seen_from_outside(status, reasons, session, found, how)
    if status == "owned" and between.blocked:
        status, reasons = "inconclusive", [between.blocked, *reasons]
    evidence, answers = level.evidence or found.evidence, level.answers
    exactly = CONDITION if channel is None else BOTH_CONDITION
    return Verdict(
        status=status,
        reasons=tuple(reasons),
        matches=evidence.matches,
        m=evidence.m,
        threshold=tau,
        ones=evidence.ones,
        wm_acc=evidence.matches / evidence.m,
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
        queries=found.queries if session is None else max(found.queries, session.position),
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
        audit=None if session is None else _audit(session, found, how),
        condition=(exactly if law == "exact" else MODELS_CONDITION) + between.trust,
        answers=tuple(answers.carriers.tolist()) if with_answers and answers else None,
        ordinary=tuple(answers.ordinary.tolist()) if with_answers and answers else None,
        bits=tuple(mark.bits.tolist()) if with_answers and found.stop is None else None,
    )


STEP = 16
"""Number of questions between two decisions of a sequential audit."""


def _settings(
    how: Sequential | None, enough: Sufficient, access: str | None, alpha: float, suspects: int
) -> dict[str, Any]:
    """Return everything that decides when an audit ends, as it is written before the first question."""
    settings: dict[str, Any] = {"access": access, "alpha": alpha, "suspects": suspects}
    if how is None:
        return settings | {"method": "fixed"}
    bits = min(enough.bits, beyond_search().bits) if how.bits is None else how.bits
    return settings | how.record() | {"bits": float(bits), "step": STEP}


def _audit(session: Session, found: Finding, how: Sequential | None) -> dict[str, Any]:
    """Return how a suspect behind HTTP was asked."""
    ended = {} if found.stop is None else {"stop": found.stop, "ended": STOPS[found.stop]}
    return session.record() | {"method": "fixed" if how is None else how.method} | ended


def _seen_from_outside(
    status: Status, reasons: list[str], session: Session, found: Finding, how: Sequential | None
) -> tuple[Status, list[str]]:
    """Return the status, and the reasons with findings about the server and an early stop added."""
    more, asked = [], found.best.evidence.m if found.best.evidence else 0
    if session.differing:
        more.append(
            f"the server answered {session.differing} of {session.repeated} repeated questions "
            "differently: it uses several models, or adds noise"
        )
    if status == "not shown" and session.differing > 1:
        return "inconclusive", [*more, *reasons]
    if status == "not shown" and found.stop == "budget":
        return "inconclusive", [f"the budget was used up after {asked} carriers", *more]
    if status == "not shown" and found.stop == "hopeless" and how is not None:
        least = WEAKEST if how.method == "betting" else how.rate
        more.append(
            f"the audit was given up after {asked} carriers; a copy that matches {least:.0%} of the bits "
            f"is given up with probability at most {how.miss:g}"
        )
    return status, [*reasons, *more]


def _score_channel(mark: Watermark, data: Any) -> ScoreChannel | None:
    """Return the mark's score channel, if it has one: a declared channel is always read."""
    if mark.score_channel is None:
        return None
    if data is None:
        raise ParameterError(
            "this mark has a score channel, which is read from the suspect's scores on the data that the "
            "mark was drawn from, and no data were given",
            "pass the training data as data= (on the command line: --task); a declared channel cannot be "
            "left out",
        )
    return mark.channel(data)


def _statistic(evidence: Evidence, shift: ScoreShift | None) -> str:
    """Return the name of the statistic of carriers and, if there is one, score channel."""
    return evidence.statistic if shift is None else f"{evidence.statistic} and score shift"


def _shown(level: Level, law: str) -> dict[str, Any]:
    """Return one level as plain values; its evidence is that of the level alone, not corrected."""
    if level.evidence is None:
        return {"access": level.access, "read": False, "note": level.note}
    bits = {"evidence_bits": level.evidence.bits()} if law == "exact" else {}
    return {"access": level.access, "read": True, "matches": level.evidence.matches, **bits}


def _refused(found: Finding) -> dict[str, Any] | None:
    """Return the counts of refused inputs as plain values, or None if there are none."""
    refusal = found.refusal
    if not refusal.carriers + refusal.ordinary:
        return None
    return asdict(refusal) | {"log10_p": laws.log10_of(refusal.log_p)}


def _channels(carriers: Evidence, shift: ScoreShift | None) -> dict[str, Any]:
    """Return the evidence of each channel alone as plain values."""
    found: dict[str, Any] = {"carriers": {"evidence_bits": carriers.bits()}}
    if shift is not None:
        found["score_channel"] = asdict(shift) | {"evidence_bits": shift.bits()}
    return found


MODELS_CONDITION = (
    "The suspect, if innocent, is exchangeable with the unmarked control models. The bits of a plain mark "
    "are a public function of its carriers, so a model that perceives the invariant matches anybody's "
    "carriers: a match is no evidence of whose mark it is."
)
"""The condition of a verdict on a plain mark."""


def open_suspect(suspect: Suspect | str | Path, architecture: Architecture | None) -> Suspect:
    """Return the suspect ready to be queried: loaded if it is a file, unwrapped if it is a module.

    Args:
        suspect: A module, a file or a function.
        architecture: For a weights file, as in `verify`.
    """
    if not isinstance(suspect, str | Path):
        return unwrap(suspect) if isinstance(suspect, nn.Module) else suspect
    if architecture is not None:
        architecture = built(architecture)
        require_plain(architecture)
    return load_model(suspect, architecture)


def _control(suspect: Suspect, test: Finding, law: str, access: str) -> dict[str, Any]:
    """Return a control's matches at the level shown for the suspect, and its evidence over all levels."""
    evidence = {"evidence_bits": laws.evidence_bits(test.log_p)} if law == "exact" else {}
    digest = digest_model(suspect) if isinstance(suspect, nn.Module) else "function"
    shown = next((one.evidence for one in test.levels if one.access == access), None) or test.evidence
    return {"matches": shown.matches, **evidence, "digest": digest}


@dataclass(frozen=True)
class _Between:
    """The code between the auditor and the weights, in the words of a verdict.

    Attributes:
        called: How the suspect is called.
        trust: What the reader has to trust because of that code, for the condition of the verdict.
        record: The code as plain values.
        digest: Digest of the suspect.
        weights: Digest of its tensors alone.
        blocked: Why the verdict cannot be `owned`; empty if it can.
    """

    called: str
    trust: str
    record: dict[str, Any]
    digest: str
    weights: str
    blocked: str = ""

    def checked(self, after: _Between) -> _Between:
        """Compare tensors and code with those found after the suspect has answered.

        Plain settings may change meanwhile: some models count calls or store the shape of their last input.
        """
        if (self.weights, self.record) == (after.weights, after.record):
            return self
        changed = (
            "the suspect's weights or code changed while it was queried, so the answers are not those of "
            "the weights and code that are recorded here"
        )
        return replace(self, blocked=changed)


def _between(suspect: Suspect, forward: Forward | None, author: Origin, rebuilt: bool) -> _Between:
    """List the code that runs when the suspect is queried, and what has to be trusted because of it.

    Objects can hide code. From a claimant, only a file that is `rebuilt` here is therefore accepted.
    """
    if isinstance(suspect, Session):
        return _between_http(suspect, author)
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
    trust = listed if code else " The object that was queried comes from the claimant and hides no code."
    if author == "auditor":
        trust += " Anyone who relies on this verdict must read that code."
        return _Between(called, trust, record, digest, weights)
    blocked = (
        "code or objects of the claimant computed the answers: read the code and build the model yourself, "
        "or ask for a model file that invgnn can rebuild"
    )
    return _Between(called, trust, record, digest, weights, blocked)


def _between_http(session: Session, author: Origin) -> _Between:
    """Say what has to be trusted because a suspect is asked over HTTP, or read from a transcript."""
    record: dict[str, Any] = {"libraries": ["invgnn"], "foreign": [], "unsaved": [], "unknown": []}
    address = session.source.shown
    if isinstance(session.source, Endpoint):
        trust = f" The answers are those that {address} returned to the auditor."
        return _Between(f"over HTTP at {address}", trust, record, "endpoint", "endpoint")
    source = session.source
    key, trusted = (source.key, source.trusted) if isinstance(source, Transcript) else (None, False)
    signer = "nobody has signed it" if key is None else f"it is signed with the Ed25519 key {key}"
    trust = f" The answers are those that {address} returned, as recorded in a transcript; {signer}."
    blocked = ""
    if key is None:
        blocked = "nobody has signed the transcript, so anybody could have written the answers"
    elif author == "claimant":
        blocked = "the claimant wrote the transcript: ask the server yourself"
    elif not trusted:
        blocked = "whoever signs a transcript can invent answers: name the key of the auditor you trust"
    return _Between(f"from a transcript of {address}", trust, record, "transcript", "transcript", blocked)


def _law(
    mark: Watermark, found: Finding, tests: list[Finding], alpha: float
) -> tuple[str, float, int, Level]:
    """Return the null that the mark allows, log p under it, the match threshold, and the level to show."""
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
    sufficient: Sufficient,
) -> tuple[Status, list[str]]:
    """Return the status and its reasons."""
    limit = laws.log_level(alpha, suspects)
    hidden = _hidden(found, limit)
    if found.constant and not hidden and found.score_shift is None:
        return "inconclusive", ["the suspect's answer is the same on every carrier, so no bit can be read"]
    if mark.context["key"] == "plain":
        return _decide_plain(log_p, limit, _readable(tests, found), found.tests)
    verified = sum(test.log_p <= laws.log_level(alpha) for test in tests)
    if verified:
        return "inconclusive", [f"{verified} of {len(tests)} unmarked controls verify as well"]
    if log_p > limit and hidden:
        return "inconclusive", [hidden]
    if log_p > limit:
        return "not shown", ["an unrelated model could give these answers by chance"]
    more = [hidden] if hidden else []
    for enough in (beyond_search(), sufficient):
        if laws.evidence_bits(log_p, suspects) >= enough.bits:
            return "owned", [enough.reason, *more]
    looks = 2 if mark.context["statistic"] == "combined" else 1
    most = math.log2(math.comb(mark.m, mark.m // 2)) - math.log2(looks * suspects * found.tests)
    embedded = "" if mark.baseline is None else " and the digest of the mark with its baseline scores"
    small = most < GRINDING_BITS and found.score_shift is None
    short = f"; {mark.m} carriers can give at most {floor_bits(most)} bits" if small else ""
    return "inconclusive", [
        "chance is ruled out at this level, but nothing here proves that the secret is older than the "
        f"suspect, and with fewer than {GRINDING_BITS} bits a fitting secret could have been searched for; "
        f"publish a commitment to the secret{embedded} before you release a model{short}",
        *more,
    ]


def _hidden(found: Finding, limit: float) -> str | None:
    """Return a reason if the suspect refuses carriers more often than ordinary inputs."""
    refusal = found.refusal
    if refusal.log_p > limit:
        return None
    return (
        f"the suspect refused {refusal.carriers} of {refusal.asked_carriers} carriers and "
        f"{refusal.ordinary} of {refusal.asked_ordinary} ordinary inputs (p = "
        f"{ceil_p(laws.log10_of(refusal.log_p))} if it treats both alike); a refused answer counts as the "
        "median answer"
    )


def _readable(tests: list[Finding], found: Finding) -> int:
    """Return the number of controls that could be read at every level at which the suspect was."""
    read = [place for place, level in enumerate(found.levels) if level.evidence is not None]
    return sum(all(test.levels[place].evidence is not None for place in read) for test in tests)


def _decide_plain(log_p: float, limit: float, controls: int, tests: int) -> tuple[Status, list[str]]:
    """Decide on a plain mark, which can show that the invariant is perceived, never whose mark it is."""
    if math.log(tests / (controls + 1)) > limit:
        least = f"{min(1.0, tests / (controls + 1)):.2g}"
        return "inconclusive", [
            f"a plain mark is compared with unmarked models; with {controls} of them no p-value is below "
            f"{least}"
        ]
    if log_p > limit:
        return "not shown", ["unmarked models match as many bits"]
    return "inconclusive", [
        "the suspect matches more bits than unmarked models do, but so would any model that perceives the "
        "invariant; draw a keyed mark to show whose mark it is"
    ]
