"""From licensed copies to a judgement: who leaked, whose model is it, and why a forger loses."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import invgnn
from invgnn.attacks.edits import Prune
from invgnn.court import Claim, Identity, LocalAuthority, draw_bound, named, open_fully, trace_suspect

CASE = "5 O 17/26"


def main(epochs=15, command=Path(sys.executable).with_name("invgnn")):
    with TemporaryDirectory() as name, LocalAuthority(name) as tsa:
        return list(story(Path(name), tsa, epochs, command))


def story(folder, tsa, epochs, command):
    task = invgnn.load_task("BA-2motif")
    acme, forger, judge = (Identity.generate(who) for who in ("Acme Ltd", "Forger", "District Court"))
    judge.save(folder / "judge.key", None, insecure_no_passphrase=True)

    def claim(owner, label, mark, token, model):  # public and dated, before anything is released
        made = Claim.make(mark, model, owner, task.data, token=token, label=label).dated(tsa.url, owner)
        made.save(folder / f"{label}.json")
        invgnn.save_model(folder / f"{label}.model", model)
        open_fully(folder / f"{label}.opening", made, mark, owner, judge.public(), CASE)  # months later

    # Acme marks one copy per licensee. Bits are bound to a token, so each other key costs a request.
    drawn = {who: draw_bound(invgnn.Secret.generate(), task.data, tsa.url) for who in ("north", "south")}
    for who, (mark, token) in drawn.items():
        model = invgnn.new_model(task, "GIN", seed=0)
        invgnn.train(model, task, mark, epochs=epochs)
        claim(acme, who, mark, token, model)
    invgnn.save_model(folder / "other.model", invgnn.new_model(task, "GIN", seed=1))  # a control
    # A pruned copy of one of them turns up. Which licensee's?
    leak = Prune(0.2)(invgnn.load_model(folder / "south.model"), task)
    invgnn.save_model(folder / "leak.model", leak)
    found = named(trace_suspect("leak", leak, {who: mark for who, (mark, _) in drawn.items()}))
    print("leaked by", found["leak"])
    # A forger claims the leaked model, too, with a mark that is not in it.
    claim(forger, "forged", *draw_bound(invgnn.Secret.generate(), task.data, tsa.url), leak)

    # The judge, elsewhere: an installed invgnn, own data, the suspect, and what the parties hand in.
    since = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds")
    for ours, other in (("south", "forged"), ("forged", "south")):
        words = f"--suspect leak.model --task BA-2motif --key judge.key --tsa-root {tsa.root} --json"
        words += (
            f" --suspect-since {since} --original {ours}.model --control other.model -o {ours}.judgement"
        )
        words += f" --rival {other}.json,{other}.opening,{other}.model --report {ours}.html"
        whole = [command, "judge", f"{ours}.json", f"{ours}.opening", "--case", CASE, *words.split()]
        done = subprocess.run(whole, cwd=folder, capture_output=True, text=True)  # noqa: S603
        said = json.loads(done.stdout)
        print(f"{said['claim']['owner']}: {said['status'].upper()}, {said['reasons'][0]['says']}")
        yield said
