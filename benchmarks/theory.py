"""Measure the constants of the paper's theorems on the settings of its own table.

    make theory          # tables in docs/explanation/theory.md

One model a setting for the calibration (unmarked, then trained on at several weights) and one marked with
the defaults for margins, drift, budgets, mixing, other owners, certified radius and the thief. Seed 41.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.owner_tables import owner_tables
from invgnn.bench.released import access_levels
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows
from invgnn.theory.imperceptibility import PAPER_CONSTANTS, beta_max

RESULTS = Path(__file__).parent / "results"
PATH, OWNERS = RESULTS / "theory.csv", RESULTS / "owners.csv"
SEED = 41
SIGMAS = (0.05, 1.0)


def grid() -> Iterator[dict[str, Any]]:
    """Yield one trial per setting."""
    for setting in PAPER_CONSTANTS:
        yield {"setting": setting}


def trial(setting: str) -> list[dict[str, Any]]:
    """Return everything about one setting as one row."""
    return [{"setting": setting} | _calibration(setting) | _marked(setting)]


def _calibration(setting: str) -> dict[str, Any]:
    """Measure Theorem 1: constants, both weights, and what each embeds."""
    from invgnn.theory.calibration import calibrate
    from invgnn.theory.outcome import Plan

    eps, access = PAPER_CONSTANTS[setting].eps, access_levels(setting)[0]
    found = calibrate(setting, Plan(access=access, eps=eps, grid=(0.1, 1.0, 10.0), marked=20, seed=SEED))
    useful = found.useful
    return {
        "mu_fitted": _short(found.curvature.fitted),
        "mu_envelope": _short(found.curvature.envelope),
        "l_s": _short(found.lipschitz.value),
        "buffer_covers": found.lipschitz.covers,
        "beta_certified": _short(found.certified),
        "beta_paper": _short(found.paper),
        "chosen_beta": _short(found.chosen.beta),
        "chosen_t": found.chosen.matches,
        "chosen_bits": _short(found.chosen.bits),
        "chosen_standing": found.chosen.theorem.standing,
        "chosen_inside": found.chosen.theorem.inside,
        "control_inside": found.control.theorem.inside,
        "useful_beta": "" if useful is None else _short(useful.beta),
        "useful_bits": "" if useful is None else _short(useful.bits),
    }


def _marked(setting: str) -> dict[str, Any]:
    """Measure Theorems 2 to 4 on a marked model."""
    import numpy as np

    from invgnn.graphs.invariants import find_invariant
    from invgnn.secret import Secret, public_stream
    from invgnn.theory.hamming import HammingLaw
    from invgnn.theory.intervals import bound_share
    from invgnn.theory.mixing import mixing_of
    from invgnn.theory.smoothing import Noise, SmoothedEvidence, noisy_log_p, read_noisy
    from invgnn.theory.thief import steal
    from invgnn.theory.uniqueness import cross_scores, p_min
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe
    from invgnn.watermark.reference import Reference
    from invgnn.watermark.sampler import Sampler

    name, backbone = parse_setting(setting)
    task = load_task(name, SEED)
    reference = Reference.of(task.data)
    plain = reference.scale("lambda2")(find_invariant("lambda2")(reference.graphs)) >= 0.5
    least = p_min(bound_share(int(plain.sum()), len(plain)))

    def draw(owner: str) -> Watermark:
        secret = Secret(public_stream(owner, setting, SEED).bytes(32))
        how: dict[str, Any] = {
            "sampler": Sampler(donors=None),
            "recipe": Recipe(after_task=0, weight_scale=None),
        }
        return Watermark.draw(secret, reference, access=access_levels(setting), **how)

    mark, model = draw("owner"), new_model(task, backbone, SEED)
    train(model, task, mark, seed=SEED)
    mixed = mixing_of(mark, model, np.random.default_rng(SEED), permutations=100)
    others = cross_scores(model, {f"other {n}": draw(f"other {n}") for n in range(3)})
    fresh, radii = new_model(task, backbone, SEED + 1), {}
    for sigma in SIGMAS:
        noise = Noise.like(fresh, sigma)
        seen = read_noisy(mark, model, noise, np.random.default_rng(SEED))
        smooth = SmoothedEvidence(noisy_log_p(mark, seen), noise)
        radii[f"radius {sigma}"] = _short(max(0.0, smooth.radius(1e-6)))
    theft = steal(model, mark, task)
    return _robustness(model, mark, task) | {
        "rho_bank": _short(mixed.bank.value),
        "rho_bank_by_chance": _short(mixed.bank.expected),
        "rho_lag": _short(mixed.proxies.value),
        "rho_lag_by_chance": _short(mixed.proxies.expected),
        "mixing_c": _short(mixed.c),
        "p_plain": _short(float(plain.mean())),
        "p_min": _short(least),
        "log2_collision": _short(HammingLaw(mark.m, least).log_collision / np.log(2)),
        "others_t": max(score.matches for score in others),
        **radii,
        "weights_norm": _short(noise.norm(dict(model.named_parameters()))),
        "thief_found": theft.found,
        "thief_changes": theft.changed,
        "thief_of": theft.parameters,
        "thief_t": theft.matches[1],
        "thief_bits": _short(theft.bits[1]),
        "thief_points": _short(100 * (theft.acc[1] - theft.acc[0])),
    }


def _robustness(model: Any, mark: Any, task: Any) -> dict[str, Any]:
    """Measure Theorem 2: margins, worst drift, budgets."""
    from functools import partial

    from invgnn.attacks.edits import Distil, FineTune, Prune, Quantise
    from invgnn.theory.robustness import robustness_constants

    edits = [Prune(0.2), Prune(0.4), Prune(0.5), Quantise(8), Quantise(4), FineTune(20, 1e-3)]
    students = [
        (pi, partial(Distil(start="teacher", rho_kd=1 - pi, epochs=20), model, task))
        for pi in (0.25, 0.5, 0.75)
    ]
    found = robustness_constants(model, mark, task, edits, distilled=students)
    rows = {row.edit: row for row in found.rows}
    tuned = rows["fine-tune 20 epochs at 0.001"]
    return {
        "t": found.matches,
        "kappa_unsigned": _short(found.kappa_unsigned),
        "kappa_signed": _short(found.kappa_signed),
        "headroom": found.headroom,
        "least_headroom": found.least_headroom,
        "slope_here": _short(found.slopes.l_s),
        "c_prune": _short(found.slopes.c_prune),
        "c_distill": _short(found.slopes.c_distill),
        "pruned_gamma": _short(rows["prune 50%"].gamma),
        "pruned_certain": rows["prune 50%"].certain,
        "pruned_t": rows["prune 50%"].matches,
        "tuned_gamma": _short(tuned.gamma),
        "tuned_certain": tuned.certain,
        "tuned_t": tuned.matches,
        "tuned_budget": _short(tuned.budget.value),
        "tuned_standing": tuned.budget.standing,
        "vacuous": sum(row.budget.standing == "vacuous" for row in found.rows),
        "budgets": len(found.rows),
    }


def _power(value: float) -> str:
    """Write a small number as a multiple of a power of ten, which no browser breaks into two lines."""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}·10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _short(value: float | None) -> float | str:
    return "" if value is None else float(f"{value:.4g}")


def summary() -> str:
    """Return the tables of constants, in the paper's order, and those of the study `owners`."""
    if not PATH.exists():
        return "Not measured yet: `make theory`."
    rows = sorted(read_rows(PATH), key=lambda row: [*PAPER_CONSTANTS].index(row["setting"]))
    parts = [_overview(rows), _imperceptible(rows), _robust(rows), _unique(rows)]
    return "\n\n".join([*parts, owner_tables(read_rows(OWNERS))])


def _overview(rows: list[dict[str, str]]) -> str:
    def count(name: str, value: str) -> int:
        return sum(row[name] == value for row in rows)

    shown = sum(float(row["chosen_bits"]) >= -math.log2(1e-6) for row in rows)
    steep = sum(float(row["mu_fitted"]) > float(row["mu_envelope"]) for row in rows)
    return (
        f"Of {len(rows)} settings, Theorem 1 is vacuous on {count('chosen_standing', 'vacuous')}; training "
        f"leaves the neighbourhood even\nwithout a mark on {count('control_inside', 'False')}. At the "
        f"certified weight the mark shows at α = 10⁻⁶ on {shown}. The fitted μ exceeds\nthe envelope on "
        f"{steep}; the buffer on L_s fails at other checkpoints on {count('buffer_covers', 'False')}. "
        f"The budget\nof fine-tuning is vacuous on {count('tuned_standing', 'vacuous')}."
    )


def _imperceptible(rows: list[dict[str, str]]) -> str:
    head = ["setting", "μ paper", "μ fitted", "μ envelope", "L_s paper", "L_s", "β paper chose"]
    head += ["corrected bound there", "β certified here", "T at it", "β that embeds", "bits", "Theorem 1"]
    lines = []
    for row in rows:
        eps, mu, steep, beta = PAPER_CONSTANTS[row["setting"]]
        bound = beta_max(mu, eps, steep)
        line = [row["setting"], mu, row["mu_fitted"], row["mu_envelope"], steep, row["l_s"], _power(beta)]
        line += [_power(bound), row["beta_certified"], row["chosen_t"], row["useful_beta"] or "none"]
        lines.append([*line, row["useful_bits"] or "–", row["chosen_standing"]])
    return table(head, (map(str, line) for line in lines))


def _robust(rows: list[dict[str, str]]) -> str:
    head = ["setting", "κ unsigned", "κ signed", "headroom", "c_prune", "c_distill"]
    head += ["γ pruned 50 %", "certain / T", "γ tuned 0.001", "certain / T", "budget", "vacuous budgets"]
    names = [
        "setting",
        "kappa_unsigned",
        "kappa_signed",
        "headroom",
        "c_prune",
        "c_distill",
        "pruned_gamma",
    ]
    lines = []
    for row in rows:
        pruned, tuned = (f"{row[f'{e}_certain']} / {row[f'{e}_t']}" for e in ("pruned", "tuned"))
        line = [row[name] for name in names] + [pruned, row["tuned_gamma"], tuned, row["tuned_budget"]]
        lines.append([*line, f"{row['vacuous']} of {row['budgets']}"])
    return table(head, (map(str, line) for line in lines))


def _unique(rows: list[dict[str, str]]) -> str:
    head = ["setting", "ρ bank (by chance)", "ρ lag (by chance)", "c", "p over task graphs (p_min)"]
    head += ["log₂ Pr[collision], bits independent", "T of three other owners, at most"]
    head += [*(f"certified radius, noise {sigma}" for sigma in SIGMAS), "norm of the weights"]
    head += ["thief with the key changes", "accuracy, points"]
    lines = []
    for row in rows:
        line = [row["setting"], f"{row['rho_bank']} ({row['rho_bank_by_chance']})"]
        line += [f"{row['rho_lag']} ({row['rho_lag_by_chance']})", row["mixing_c"]]
        line += [f"{row['p_plain']} ({row['p_min']})", row["log2_collision"], row["others_t"]]
        line += [*(row[f"radius {sigma}"] for sigma in SIGMAS), row["weights_norm"]]
        changes = f"{row['thief_changes']} of {row['thief_of']}"
        found = "" if row["thief_found"] == "True" else ", in vain"
        lines.append([*line, changes + found, row["thief_points"]])
    return table(head, (map(str, line) for line in lines))


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
