"""Judgements: what a judge found, signed, so that anybody can check who found it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from invgnn.audit.verdict import EXIT_CODES, ceil_p, floor_bits
from invgnn.court.documents import Document, load_checked
from invgnn.errors import ParameterError
from invgnn.storage.atomic import AnyPath


@dataclass(frozen=True)
class Judgement:
    """A signed judgement.

    Attributes:
        document: The signed document.

    Raises:
        ParameterError: If it contradicts itself.
    """

    document: Document

    def __post_init__(self) -> None:
        said = self.document.payload
        failed = [one["check"] for one in said["checks"] if one["fatal"] and not one["passed"]]
        lost = [one for one in said["rivals"] if one["outcome"] in LOST]
        holds = any(
            one["holds"] and one["available"] and one["found"] >= one["needed"] for one in said["grounds"]
        )
        owned = said["status"] == "owned"
        if said["judge"]["signing"] != self.document.key:
            raise ParameterError("the judgement names another judge than signed it", _ADVICE)
        if owned and (failed or lost or not holds or said["opening"]["form"] != "full"):
            raise ParameterError("the judgement contradicts itself: it cannot be owned", _ADVICE)

    @property
    def payload(self) -> dict[str, Any]:
        """What was found."""
        return dict(self.document.payload)

    @property
    def status(self) -> str:
        """The decision: `owned`, `not shown` or `inconclusive`."""
        return str(self.document.payload["status"])

    @property
    def codes(self) -> list[str]:
        """The codes of the reasons, the decisive one first."""
        return [one["code"] for one in self.document.payload["reasons"]]

    @property
    def exit_code(self) -> int:
        """Exit code of the status: 0 for owned, 1 for not shown, 3 for inconclusive."""
        return EXIT_CODES[self.status]  # type: ignore[index]  # one of three, by the schema

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the judgement to a file that everybody may read."""
        self.document.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath) -> Judgement:
        """Read a judgement, and check its form and its signature.

        Raises:
            FileError: If the file is no judgement, or was altered.
        """
        return load_checked(path, "judgement", cls)

    def __str__(self) -> str:
        """Return the judgement as text: the decision first, then one line for each fact."""
        said = self.document.payload
        verdict = said["verdict"]
        bits = "" if verdict is None else f": {floor_bits(verdict['evidence_bits'])} bits of evidence"
        p = "" if verdict is None else f" (p = {ceil_p(verdict['log10_p'])})"
        lines = [f"{self.status.upper()}{bits}{p}"]
        lines.append(f"  claim      of {said['claim']['owner']}, {said['claim']['digest'][:16]}")
        lines.append(f"  case       {said['case']}, judged by {said['judge']['name']}")
        settled = {one["outcome"] for one in said["rivals"]}  # shown below, unless it decides
        shown = [one for i, one in enumerate(said["reasons"]) if i == 0 or one["code"] not in settled]
        lines += [f"  because    {one['says']}" for one in shown]
        if self.status == "owned":
            held = [one for one in said["grounds"] if one["holds"]]
            lines += [f"  rests on   {one['ground']}: {one['says']}" for one in held]
        lines += [
            f"  {'passed' if one['passed'] else 'failed'}     {one['check']}: {one['says']}"
            for one in said["checks"]
        ]
        lines += [f"  rival      {one['owner']}: {one['outcome']}. {one['says']}" for one in said["rivals"]]
        lines += [f"  void if    {text}" for text in said["voids"]]
        return "\n".join(lines)


_ADVICE = "ask the judge for the original"
LOST = ("is the ancestor", "is older on the same secret", "not settled")
"""Outcomes of a rival claim that stand against `owned`."""
