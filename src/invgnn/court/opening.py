"""Openings: what a claimant reveals to one judge, encrypted to this judge, for one case.

A full opening reveals the secret: the judge derives everything else. A partial opening reveals some of the
carriers with their bits, and proves less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invgnn.concealed import conceal
from invgnn.court.challenge import Challenge, check_case
from invgnn.court.claim import Claim
from invgnn.court.commitment import commit_mark, same
from invgnn.court.documents import Document, parse_document
from invgnn.court.identity import Identity
from invgnn.court.leaves import Leaf, Leaves
from invgnn.court.sealing import seal_to, unseal
from invgnn.court.signatures import verify_signature
from invgnn.errors import FileError, InvgnnError, ParameterError
from invgnn.graphs.attributed import Attributed
from invgnn.secret import Secret
from invgnn.storage import container, encoding
from invgnn.storage.atomic import AnyPath
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.mark import Watermark

MEDIA_TYPE = "application/vnd.invgnn.opening.v1"
"""The versioned media type of an opening."""
FORMS = ("full", "prefix", "drawn")
"""The forms of an opening."""
PROVES = {
    "full": "The judge regenerates the whole mark from the secret. Everything that the claim commits to "
    "can be checked. From now on the judge could forge or remove the mark.",
    "prefix": "Some carriers, with their bits, are those that the claim committed to. The order was "
    "committed too, and so was their number. Nobody can check that the bits were drawn at random, "
    "so the evidence holds only if the claimant followed the protocol, and is never enough for 'owned'.",
    "drawn": "Carriers that the judge drew, with their bits, are those that the claim committed to. Nobody "
    "can check that the bits were drawn at random, so the evidence holds only if the claimant "
    "followed the protocol, and is never enough for 'owned'.",
}
"""What each form proves and does not prove; written into every opening and every judgement."""


@dataclass(frozen=True)
class Opened:
    """The content of an opening, decrypted by the judge and not yet compared with the claim.

    Attributes:
        form: `full`, `prefix` or `drawn`.
        claim: Digest of the claim that it opens.
        case: The case that it was made for.
        judge: The signing key of the judge that it was made for.
        signer: The key that signed the opening.
        digest: Digest of the opening's file.
        secret: The secret, in a full opening.
        baseline: The baseline scores, in a full opening of a mark with a score channel.
        shown: The questions as a transform made them, in a full opening of a mark with a transform.
        leaves: The revealed leaves, in a partial opening.
        challenge: The judge's challenge, if the judge drew the carriers.
    """

    form: str
    claim: str
    case: str
    judge: str
    signer: str
    digest: str
    secret: Secret | None = field(default=None, repr=False)
    baseline: Baseline | None = field(default=None, repr=False)
    shown: Attributed | None = field(default=None, repr=False)
    leaves: tuple[Leaf, ...] = field(default=(), repr=False)
    challenge: Challenge | None = None


def open_fully(
    path: AnyPath,
    claim: Claim,
    mark: Watermark,
    owner: Identity,
    judge: Document,
    case: str,
    *,
    overwrite: bool = False,
) -> str:
    """Reveal the secret of a claim to a judge.

    Args:
        path: Where to write the opening.
        claim: The claim.
        mark: The mark that was claimed.
        owner: Who signed the claim.
        judge: The public identity of the judge.
        case: The judge's name of the case; the opening is of no use in another one.
        overwrite: Whether to replace an existing file.

    Returns:
        The digest of the opening.

    Raises:
        ParameterError: If the mark or the owner is not that of the claim.
    """
    _check(claim, mark, owner)
    held = mark.baseline
    known = None if held is None else {"scores": held.scores, "inputs": held.inputs}
    more = {"shown": mark.shown.record()} if claim.transformed and mark.shown is not None else {}
    revealed = conceal({"secret": bytes(mark.secret), "baseline": known, **more})
    return _write(path, "full", revealed, claim, owner, judge, case, overwrite)


def open_prefix(
    path: AnyPath, claim: Claim, mark: Watermark, owner: Identity, judge: Document, case: str, **how: bool
) -> str:
    """Reveal the first carriers in the secret's order, as many as the claim declares; see `open_fully`."""
    _check(claim, mark, owner)
    shown = _shown(claim, mark, range(claim.rule["prefix"]))
    return _write(path, "prefix", {"leaves": shown}, claim, owner, judge, case, **how)


def open_drawn(
    path: AnyPath,
    claim: Claim,
    mark: Watermark,
    owner: Identity,
    judge: Document,
    challenge: Challenge,
    *,
    overwrite: bool = False,
) -> str:
    """Reveal the carriers that a judge drew; see `open_fully`. The case is that of the challenge."""
    _check(claim, mark, owner)
    challenge.check(claim, judge.key)
    shown = _shown(claim, mark, challenge.drawn(claim))
    revealed = {"leaves": shown, "challenge": challenge.document.bytes}
    return _write(path, "drawn", revealed, claim, owner, judge, challenge.case, overwrite)


def load_opening(path: AnyPath, judge: Identity) -> Opened:
    """Decrypt an opening and check the claimant's signature in it.

    Args:
        path: The file.
        judge: The judge that it was made for.

    Raises:
        FileError: If the file is no opening, was altered, or was made for another judge.
    """
    held = container.read(path, "opening")
    try:
        head = _head(held.body)
        box = held.tensors["box"].tobytes()
        found = conceal(encoding.decode(unseal(judge.encryption, held.body["once"], box, _label(head))))
        verify_signature(
            head["owner"], found["signature"].hex(), _signed(head, found["revealed"]), "the opening"
        )
        return _opened(head, conceal(encoding.decode(found["revealed"])), held.digest)
    except InvgnnError as error:
        raise FileError(f"{path} cannot be opened: {error.message[:300]}", error.advice) from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        what = type(error).__name__  # the text might show what was decrypted
        raise FileError(f"{path} is a malformed opening ({what})", "ask the claimant for another") from None


def _check(claim: Claim, mark: Watermark, owner: Identity) -> None:
    """Refuse to open a claim with a mark or an identity that is not its own."""
    said = claim.payload["commitment"]["mark"]
    if owner.key != claim.document.key:
        raise ParameterError("the claim was signed by another identity", "use the identity that signed it")
    if not same(said, commit_mark(mark.secret, claim.salt, mark.digest)):
        raise ParameterError("the claim is on another mark", "use the mark as it was when it was claimed")


def _shown(claim: Claim, mark: Watermark, positions: Sequence[int]) -> list[dict[str, Any]]:
    """Return carriers at these places of the tree, and what is needed to ask and to read a suspect."""
    leaves = Leaves(mark, claim.salt)
    shown = [leaves.show(index) for index in (*positions, *range(mark.m, len(leaves)))]
    return [
        {"index": one.index, "salt": one.salt, "content": bytes(one.content), "path": list(one.path)}
        for one in shown
    ]


def _write(
    path: AnyPath,
    form: str,
    revealed: dict[str, Any],
    claim: Claim,
    owner: Identity,
    judge: Document,
    case: str,
    overwrite: bool = False,
) -> str:
    """Sign what is revealed, encrypt both to the judge, and write the file."""
    check_case(case)
    head = {
        "mediaType": MEDIA_TYPE,
        "form": form,
        "claim": claim.digest,
        "case": case,
        "owner": owner.key,
        "judge": judge.key,
        "proves": PROVES[form],
    }
    data = conceal(encoding.encode(dict(revealed)))
    whole = conceal(
        encoding.encode({"revealed": bytes(data), "signature": owner.sign(_signed(head, data))})
    )
    once, box = seal_to(judge.payload["encryption"], whole, _label(head))
    tensors = {"box": np.frombuffer(box, np.uint8)}
    return container.write(
        path, "opening", {**head, "once": once}, tensors, private=True, overwrite=overwrite
    )


def _head(body: dict[str, Any]) -> dict[str, str]:
    """Return the public part of an opening, checked."""
    head = {name: value for name, value in body.items() if name != "once"}
    wanted = {"mediaType", "form", "claim", "case", "owner", "judge", "proves"}
    if head.keys() != wanted or not all(type(value) is str for value in body.values()):
        raise ParameterError("its public part is malformed", "ask the claimant for another opening")
    if head["mediaType"] != MEDIA_TYPE or head["form"] not in FORMS:
        raise ParameterError("it is of an unknown form or version", "use a newer version of invgnn")
    if head["proves"] != PROVES[head["form"]]:
        raise ParameterError("it misstates what it proves", "ask the claimant for another opening")
    return head


def _label(head: dict[str, str]) -> bytes:
    """Return what the ciphertext is bound to."""
    return encoding.encode(head)


def _signed(head: dict[str, str], revealed: bytes) -> bytes:
    """Return the bytes that the claimant signs in an opening."""
    return encoding.encode(["invgnn/opening/1", head, bytes(revealed)])


def _opened(head: dict[str, str], revealed: dict[str, Any], digest: str) -> Opened:
    """Return the content of an opening."""
    about: dict[str, Any] = {name: head[name] for name in ("form", "claim", "case", "judge")}
    if head["form"] == "full":
        known = revealed["baseline"]
        baseline = None if known is None else Baseline(known["scores"], known["inputs"])
        shown = Attributed.recall(revealed["shown"]) if "shown" in revealed else None
        return Opened(
            **about,
            signer=head["owner"],
            digest=digest,
            secret=Secret(revealed["secret"]),
            baseline=baseline,
            shown=shown,
        )
    leaves = tuple(
        Leaf(one["index"], one["salt"], one["content"], tuple(one["path"])) for one in revealed["leaves"]
    )
    drawn = None
    if head["form"] == "drawn":
        drawn = Challenge(parse_document(revealed["challenge"], "challenge", "the challenge"))
    return Opened(**about, signer=head["owner"], digest=digest, leaves=leaves, challenge=drawn)
