"""Read a suspect at every declared level, and return the verdict on its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from invgnn.audit.between import between
from invgnn.audit.decision import (
    MODELS_CONDITION,
    Sufficient,
    allowed_null,
    beyond_search,
    decide,
    seen_from_outside,
)
from invgnn.audit.examine import Finding, Level, examine
from invgnn.audit.origin import Origin
from invgnn.audit.provenance import digest_model, require_plain
from invgnn.audit.remote import Endpoint, Transcript
from invgnn.audit.remote.session import Session
from invgnn.audit.sequential import STEP, STOPS, Progress, Sequential, examine_sequentially
from invgnn.audit.verdict import BOTH_CONDITION, CONDITION, Verdict
from invgnn.audit.votes import RULES
from invgnn.checks import check_choice, check_whole
from invgnn.errors import ParameterError
from invgnn.nn.forward import Forward, unwrap
from invgnn.nn.model_file import Architecture, built, load_model
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.stats import laws
from invgnn.stats.evidence import Evidence
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift


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
    if how is not None and mark.context["key"] != "keyed":
        raise ParameterError(
            "a sequential audit bets on bits that come from the secret, and those of a plain mark do not",
            "leave out sequential=, or draw a keyed mark",
        )
    session = None
    if isinstance(suspect, Endpoint | Transcript):
        settings = _settings(how, enough, access, alpha, suspects, suspect.journal.plan)
        suspect = session = Session(suspect, mark, data, settings, progress)
    elif how is not None:
        raise ParameterError(
            "only a suspect behind HTTP is asked question by question",
            "pass an Endpoint, or no sequential=",
        )
    rebuilt = isinstance(suspect, str | Path) and architecture is None and (forward or mark.forward) is None
    suspect = open_suspect(suspect, architecture)
    trusted = between(suspect, forward or mark.forward, code_from, rebuilt)
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
            rules=settings.get("rules", 1),
        )
    else:
        found = examine(mark, suspect, access=access, channel=channel, forward=forward)
    others = [open_suspect(control, architecture) for control in controls]
    tests = [examine(mark, one, access=access, channel=channel, forward=forward) for one in others]
    law, log_p, tau, level = allowed_null(mark, found, tests, alpha)
    paid = suspects * found.tests
    trusted = trusted.checked(between(suspect, forward or mark.forward, code_from, rebuilt))
    status, reasons = decide(found, mark, log_p, alpha, suspects, tests, enough)
    if session is not None:
        if how is None:
            session.finish()
        status, reasons = seen_from_outside(status, reasons, session, found, how)
    if status == "owned" and trusted.blocked:
        status, reasons = "inconclusive", [trusted.blocked, *reasons]
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
        called=trusted.called,
        code=trusted.record,
        controls=tuple(_control(o, t, law, level.access) for o, t in zip(others, tests, strict=True)),
        digests={
            "mark": mark.digest,
            "reference": mark.context["reference"],
            "suspect": trusted.digest,
            "weights": trusted.weights,
        },
        audit=None if session is None else _audit(session, found, how),
        condition=(exactly if law == "exact" else MODELS_CONDITION) + trusted.trust,
        answers=tuple(answers.carriers.tolist()) if with_answers and answers else None,
        ordinary=tuple(answers.ordinary.tolist()) if with_answers and answers else None,
        bits=tuple(mark.bits.tolist()) if with_answers and found.stop is None else None,
    )


def _settings(
    how: Sequential | None,
    enough: Sufficient,
    access: str | None,
    alpha: float,
    suspects: int,
    begun: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return everything that decides when an audit ends, as it is written before the first question.

    An audit that was begun by the rules of an earlier version goes on by them.
    """
    settings: dict[str, Any] = {"access": access, "alpha": alpha, "suspects": suspects}
    if how is None:
        return settings | {"method": "fixed"}
    bits = min(enough.bits, beyond_search().bits) if how.bits is None else how.bits
    by = {} if begun is not None and "rules" not in begun else {"rules": RULES}
    return settings | how.record() | {"bits": float(bits), "step": STEP} | by


def _audit(session: Session, found: Finding, how: Sequential | None) -> dict[str, Any]:
    """Return how a suspect behind HTTP was asked."""
    ended = {} if found.stop is None else {"stop": found.stop, "ended": STOPS[found.stop]}
    return session.record() | {"method": "fixed" if how is None else how.method} | ended


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
    read = [one.access for one in test.levels if one.evidence is not None]
    return {"matches": shown.matches, **evidence, "digest": digest, "read_at": read}
