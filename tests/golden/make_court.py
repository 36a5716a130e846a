"""Write the golden files of the court, once: python tests/golden/make_court.py (from the repository root).

They are never written again: a later version has to read these.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from _helpers.court import constant, golden_people, golden_rings
from invgnn.court.bound import draw_bound
from invgnn.court.challenge import Challenge
from invgnn.court.claim import Claim
from invgnn.court.exhibits import Exhibits
from invgnn.court.judging import judge
from invgnn.court.local_authority import LocalAuthority
from invgnn.court.opening import load_opening, open_drawn, open_fully, open_prefix
from invgnn.court.revocation import Revocation
from invgnn.court.timestamp import load_roots
from invgnn.secret import Secret

FOLDER = Path(__file__).parent / "court"


def main() -> None:
    owner, judge_ = golden_people()
    with TemporaryDirectory() as folder, LocalAuthority(folder, days=3650) as tsa:
        (FOLDER / "v1-root.pem").write_bytes(tsa.root.read_bytes())
        data = golden_rings()
        mark, token = draw_bound(Secret(bytes(range(32))), data, tsa.url, m=16, classes=2)
        claim = Claim.make(mark, constant(), owner, data, token=token, label="licence 17")
        claim = claim.dated(tsa.url, owner)
        roots = load_roots(tsa.root)
    claim.save(FOLDER / "v1-claim.json")
    token.save(FOLDER / "v1-mark.token")
    owner.save(FOLDER / "v1-owner.key", "golden")
    owner.public().save(FOLDER / "v1-owner.pub.json")
    challenge = Challenge.draw(claim, judge_, "golden", 10)
    challenge.save(FOLDER / "v1-challenge.json")
    held = (claim, mark, owner, judge_.public())
    open_fully(FOLDER / "v1-full.opening", *held, "golden")
    open_prefix(FOLDER / "v1-prefix.opening", *held, "golden")
    open_drawn(FOLDER / "v1-drawn.opening", *held, challenge)
    Revocation.make(owner, "superseded", claim=claim, successor=judge_).save(FOLDER / "v1-revocation.json")
    exhibits = Exhibits(constant(), data, roots=roots)
    made = judge(claim, load_opening(FOLDER / "v1-full.opening", judge_), exhibits, judge_, "golden")
    made.save(FOLDER / "v1-judgement.json")


if __name__ == "__main__":
    main()
