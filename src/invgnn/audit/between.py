"""State what stands between the auditor and the weights of a suspect, and what has to be trusted for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from invgnn.audit.origin import Code, Origin
from invgnn.audit.provenance import trace, trace_function
from invgnn.audit.remote import Endpoint, Transcript
from invgnn.audit.remote.session import Session
from invgnn.nn.forward import Forward
from invgnn.readout.query import Suspect


@dataclass(frozen=True)
class Between:
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

    def checked(self, after: Between) -> Between:
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


def between(suspect: Suspect, forward: Forward | None, author: Origin, rebuilt: bool) -> Between:
    """List the code that runs when the suspect is queried, and what has to be trusted because of it.

    Objects can hide code. From a claimant, only a file that is `rebuilt` here is therefore accepted.
    """
    if isinstance(suspect, Session):
        return _over_http(suspect, author)
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
        return Between(called, "", record, digest, weights)
    names = "; ".join(map(str, code[:5])) + (f"; and {len(code) - 5} more" if len(code) > 5 else "")
    listed = f" This code only computes the suspect's answers and knows no bits: {names}."
    trust = listed if code else " The object that was queried comes from the claimant and hides no code."
    if author == "auditor":
        trust += " Anyone who relies on this verdict must read that code."
        return Between(called, trust, record, digest, weights)
    blocked = (
        "code or objects of the claimant computed the answers: read the code and build the model yourself, "
        "or ask for a model file that invgnn can rebuild"
    )
    return Between(called, trust, record, digest, weights, blocked)


def _over_http(session: Session, author: Origin) -> Between:
    """Say what has to be trusted because a suspect is asked over HTTP, or read from a transcript."""
    record: dict[str, Any] = {"libraries": ["invgnn"], "foreign": [], "unsaved": [], "unknown": []}
    address = session.source.shown
    if isinstance(session.source, Endpoint):
        trust = f" The answers are those that {address} returned to the auditor."
        return Between(f"over HTTP at {address}", trust, record, "endpoint", "endpoint")
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
    return Between(f"from a transcript of {address}", trust, record, "transcript", "transcript", blocked)
