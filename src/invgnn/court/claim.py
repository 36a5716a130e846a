"""Claims: public, signed and dated statements of an owner about a mark, made before a model is released."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from invgnn.audit.provenance import trace
from invgnn.court.bound import Token
from invgnn.court.commitment import commit_mark, commit_secret, digest_labels, message_before_drawing
from invgnn.court.documents import Document, load_checked
from invgnn.court.identity import Identity
from invgnn.court.leaves import Leaves
from invgnn.court.regeneration import reference_for, regenerate
from invgnn.court.timestamp import Roots, Stamp, binding, check_token
from invgnn.errors import ParameterError, TimestampError
from invgnn.nn.model_file import load_model
from invgnn.secret import SIZE
from invgnn.stats import laws
from invgnn.storage.atomic import AnyPath
from invgnn.version import __version__
from invgnn.watermark.context import FORMAT, check_context
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference


@dataclass(frozen=True)
class Claim:
    """A claim whose signature was checked.

    Attributes:
        document: The signed document.

    Raises:
        ParameterError: If the claim contradicts itself.
    """

    document: Document

    def __post_init__(self) -> None:
        """Refuse a claim that contradicts itself."""
        said, context, rule = self.document.payload, self.context, self.rule
        check_context(context)
        laws.check_alpha(rule["alpha"])
        agreed = {
            "owner": said["owner"]["signing"] == self.document.key,
            "reference": said["reference"]["graphs"] == context["reference"],
            "format": context["format"] == FORMAT,
            "access levels": rule["access"] == [one["access"] for one in context["readings"]],
            "statistic": rule["statistic"] == context["statistic"],
            "prefix": 2 <= rule["prefix"] <= context["m"],
            "token": ("token" in context) == (said["token"] is not None),
        }
        odd = [name for name, sound in agreed.items() if not sound]
        if odd:
            raise ParameterError(f"the claim contradicts itself in: {', '.join(odd)}", "make a new claim")

    @property
    def payload(self) -> dict[str, Any]:
        """What is claimed."""
        return dict(self.document.payload)

    @property
    def context(self) -> dict[str, Any]:
        """The context of the mark: all that its bits are bound to."""
        found: dict[str, Any] = self.document.payload["context"]
        return found

    @property
    def rule(self) -> dict[str, Any]:
        """How a suspect is decided about."""
        found: dict[str, Any] = self.document.payload["rule"]
        return found

    @property
    def digest(self) -> str:
        """The digest by which openings, judgements and revocations refer to the claim."""
        return self.document.digest

    @property
    def owner(self) -> str:
        """The name of the owner, as the owner states it."""
        return str(self.document.payload["owner"]["name"])

    @property
    def salt(self) -> bytes:
        """The public salt of the commitments."""
        return bytes.fromhex(self.document.payload["commitment"]["salt"])

    @property
    def tensors(self) -> list[str] | None:
        """The tensors that carriers were given besides `x`; None for all that the data have."""
        found: list[str] | None = self.document.payload.get("inputs", {}).get("tensors")
        return found

    @property
    def transformed(self) -> bool:
        """Whether a transform was applied to carriers and ordinary inputs when the mark was drawn."""
        return bool(self.document.payload.get("inputs", {}).get("transformed"))

    @classmethod
    def make(
        cls,
        mark: Watermark,
        model: nn.Module | str | Path,
        owner: Identity,
        data: Any,
        *,
        alpha: float = 1e-6,
        token: Token | None = None,
        label: str = "",
        supersedes: str | None = None,
        tensors: Collection[str] | None = None,
    ) -> Claim:
        """Make a claim on a model in which a mark is embedded.

        Date it (`dated`) and publish it before you release the model.

        Args:
            mark: The mark as it was embedded: with its baseline scores, if it has a score channel.
            model: The marked model, or its file.
            owner: The identity that signs.
            data: The reference data: what the mark was drawn from.
            alpha: The false-positive rate of the decision.
            token: The token that the mark is bound to, if it was drawn with `draw_bound`.
            label: A public remark, such as the number of a licence.
            supersedes: The digest of an earlier claim that this one replaces.
            tensors: As in `Watermark.draw`; needed only if it was given there together with a transform.

        Raises:
            ParameterError: If mark, data and token do not fit together, or the mark has no key yet.
        """
        names = tensors if tensors is not None or mark.shown is None else tuple(mark.shown.more)
        reference = reference_for(data, mark.context["reference"], names)
        if mark.format != FORMAT or not mark.complete:
            raise ParameterError("only a finished mark can be claimed", "draw it anew, then embed it")
        if reference.digest != mark.context["reference"]:
            raise ParameterError("the mark was drawn from other data", "pass the data of the mark")
        salt = os.urandom(SIZE) if token is None else token.salt
        leaves = Leaves(mark, salt)
        found = trace(load_model(model) if isinstance(model, str | Path) else model)
        payload = {
            "format": 1,
            "owner": {"name": owner.name, "signing": owner.key},
            "label": label,
            "model": {"digest": found.digest, "weights": found.tensors},
            "reference": {"graphs": reference.digest, "labels": digest_labels(reference.labels)},
            "context": mark.context,
            "rule": {
                "access": [one.access for one in mark.readings],
                "statistic": mark.context["statistic"],
                "null": "exact",
                "alpha": float(alpha),
                "prefix": mark.m // 2,
            },
            "commitment": {
                "salt": salt.hex(),
                "secret": commit_secret(mark.secret, salt),
                "mark": commit_mark(mark.secret, salt, mark.digest),
            },
            "tree": {"root": leaves.root, "leaves": len(leaves)},
            "token": None if token is None else base64.b64encode(token.token).decode(),
            "supersedes": supersedes,
            "software": f"invgnn {__version__}",
            **_inputs(mark, reference, data),
        }
        made = cls(Document.sign("claim", payload, owner))
        if token is not None and mark.context.get("token") != binding(token.token):
            raise ParameterError("the mark is not bound to this token", "pass the token of the mark")
        return made

    def dated(self, url: str, owner: Identity) -> Claim:
        """Return the claim with a timestamp from an authority.

        Args:
            url: Address of the authority.
            owner: Who signed the claim.
        """
        return Claim(self.document.dated(url, owner))

    def stamp(self, roots: Roots) -> Stamp | None:
        """Return what the timestamp of the claim proves; None without one.

        Raises:
            TimestampError: If it proves nothing under these roots.
        """
        return self.document.stamp(roots)

    def stamp_before_drawing(self, roots: Roots) -> Stamp | None:
        """Return what the token proves that the bits are bound to; None if they are bound to none.

        Raises:
            TimestampError: If the token is not for this commitment, or not the one that the bits are bound
                to, or proves nothing under these roots.
        """
        said = self.document.payload
        if said["token"] is None:
            return None
        token = base64.b64decode(said["token"])
        if binding(token) != self.context["token"]:
            raise TimestampError("the bits are bound to another token", "make a new claim")
        message = message_before_drawing(
            said["commitment"]["secret"], self.context, said["reference"]["labels"]
        )
        return check_token(token, message, roots)

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the claim to a public file.

        Args:
            path: Where to write it.
            overwrite: Whether to replace an existing file.
        """
        self.document.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath) -> Claim:
        """Read a claim, and check its form and its signature.

        Raises:
            FileError: If the file is no claim, or was altered.
        """
        return load_checked(path, "claim", cls)


def _inputs(mark: Watermark, reference: Reference, data: Any) -> dict[str, Any]:
    """Return what a judge has to know about the tensors of carriers; nothing for most marks."""
    held = reference.tensors
    whole = not isinstance(data, Reference) and Reference.of(data).digest == reference.digest
    names = None if whole else sorted([] if held is None else held.more)
    transformed = mark.shown is not None and mark.digest != _drawn(mark, reference).digest
    return {"inputs": {"tensors": names, "transformed": transformed}} if names or transformed else {}


def _drawn(mark: Watermark, reference: Reference) -> Watermark:
    """Return the mark as a judge draws it, without a transform."""
    return regenerate(mark.secret, reference, mark.context, mark.baseline)
