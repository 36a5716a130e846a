"""From licensed copies to a judgement: who leaked, whose model is it, and why a forger loses."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import invgnn
from invgnn.attacks.edits import Prune
from invgnn.court import Claim, Identity, LocalAuthority, draw_bound, named, open_fully, trace_suspect

CASE, INVGNN = "5-O-17/26", Path(sys.executable).with_name("invgnn")


def main(epochs=15, command=INVGNN):
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

    # Acme marks one copy per licensee. Bits are bound to a token: every other key costs a request.
    drawn = {who: draw_bound(invgnn.Secret.generate(), task.data, tsa.url) for who in ("north", "south")}
    for who, (mark, token) in drawn.items():
        model = invgnn.new_model(task, "GIN", seed=0)
        invgnn.train(model, task, mark, epochs=epochs)
        claim(acme, who, mark, token, model)
    # A pruned copy of one of them turns up. Which licensee's?
    leak = Prune(0.2)(invgnn.load_model(folder / "south.model"), task)
    rows = trace_suspect("leak", leak, {who: mark for who, (mark, _) in drawn.items()})
    print("leaked by", named(rows)["leak"])
    # A forger claims the leaked model, too, with a mark that is not in it.
    claim(forger, "forged", *draw_bound(invgnn.Secret.generate(), task.data, tsa.url), leak)
    # The judge, elsewhere: an installed invgnn, own data and controls, and what the parties hand in.
    invgnn.save_model(folder / "leak.model", leak)
    invgnn.train(control := invgnn.new_model(task, "GIN", seed=1), task, epochs=5)
    invgnn.save_model(folder / "control.model", control)
    since = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds")
    for ours, rival in (("south", "forged"), ("forged", "south")):
        words = f"judge {ours}.json {ours}.opening --suspect leak.model --task BA-2motif --key judge.key"
        words += f" --tsa-root {tsa.root} --suspect-since {since} --control control.model --case {CASE}"
        words += f" --original {ours}.model --rival {rival}.json,{rival}.opening,{rival}.model -o {ours}.is"
        subprocess.run([command, *words.split()], cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603
        said = invgnn.court.Judgement.load(folder / f"{ours}.is").payload  # its signature is checked
        print(f"{said['claim']['owner']}: {said['status'].upper()}, {said['reasons'][0]['says']}")
        yield said


if __name__ == "__main__":
    main()
