"""The kept measurements show what the pages state, and what was promised."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from scipy.stats import binomtest, ttest_1samp

from invgnn.bench.comparison import cells, lines
from invgnn.bench.markdown import table_row
from invgnn.bench.script import published
from invgnn.schemes import suite
from invgnn.schemes.settings import TUNED
from invgnn.storage.tables import read_rows

PAGES = {
    "benchmarks/false_positives": "results/appendix/false-positives",
    "benchmarks/strength": "results/appendix/strength",
    "benchmarks/robustness": "results/appendix/robustness",
    "benchmarks/theory": "explanation/theory",
    "benchmarks/scaling": "results/scaling",
    "studies/evidence": "results/paper-scheme",
    "studies/recipe": "results/appendix/embedding-study",
    "studies/presentations": "results/appendix/presentations",
    "studies/embedding": "results/appendix/trained-models",
    "benchmarks/own_models": "results/own-models",
    "studies/forgers": "results/appendix/forgeries",
    "studies/channel": "results/score-channel",
    "studies/stealth": "results/appendix/stealth",
    "studies/stealth_price": "results/stealth",
    "studies/stealth_variants": "results/appendix/stealth-variants",
    "studies/tuning_schemes": "results/appendix/tuning-schemes",
}


@pytest.fixture
def rows(script):
    return lambda name: read_rows(script(name).PATH)


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_page_shows_the_kept_results(script, root, name, page):
    into = f"docs/{page}.md"
    assert published(root / into) == script(name).summary(), f"run {name}.py --summary --into {into}"


def test_variants_of_the_recipe_that_were_removed_stay_in_the_table(script, rows):
    study = script("studies/recipe")
    known = {"unmarked", *study.VARIANTS, *study.RETIRED}
    assert {r["variant"] for r in rows("studies/recipe")} <= known
    assert not {*study.RETIRED} & {trial["variant"] for trial in study.grid()}
    assert study.summary().count("(not in Recipe)") == 2 * len(study.RETIRED)


def test_enough_suspects_were_read(rows):
    kept = rows("benchmarks/false_positives")
    models = {(r["setting"], r["seed"], r["kind"]) for r in kept}
    unmarked = [m for m in models if m[2] == "unmarked"]
    assert len(unmarked) >= 20
    assert len({m[0] for m in unmarked}) >= 4  # two tasks, two backbones
    assert len(models) - len(unmarked) >= 5
    assert all(int(r["derivations"]) >= 200 and int(r["draws"]) >= 10_000 for r in kept)
    levels = {"perception", "embedding", "logits", "labels", "score channel"}
    assert {r["access"] for r in kept} == levels | {"all levels", "all levels, columns shuffled"}


@pytest.mark.parametrize("level", ["0.1", "0.01", "0.001"])
@pytest.mark.parametrize("what", [("full", "derivations"), ("draws", "draws")])
def test_false_positives_are_not_too_many(rows, level, what):
    kept = rows("benchmarks/false_positives")
    for access in {r["access"] for r in kept}:
        part = [r for r in kept if r["access"] == access]
        count = sum(int(r[f"{what[0]}_{level}"]) for r in part)
        total = sum(int(r[what[1]]) for r in part)
        assert binomtest(count, total, float(level), "greater").pvalue > 1e-3, (access, count, total)


def test_default_mark_is_strong_and_unmarked_models_are_silent(rows):
    kept = rows("studies/evidence")
    marked = [r for r in kept if r["scheme"] == "keyed"]
    assert {(r["setting"], r["seed"]) for r in marked} == {
        (s, str(seed)) for s in ("PROTEINS/GIN", "NCI1/GIN", "Cora/GCN") for seed in (41, 42, 43)
    }
    assert min(float(r["evidence_bits"]) for r in marked) >= 40
    assert max(float(r["evidence_bits"]) for r in kept if r["scheme"] == "unmarked") < 10
    assert max(float(r["other_bits"]) for r in marked) < 20  # a stranger's keyed mark reads nothing


def test_marks_are_read_everywhere_and_unmarked_twins_are_silent(script, rows):
    module = script("benchmarks/strength")
    kept = rows("benchmarks/strength")
    settings = {r["setting"] for r in kept if r["kind"] == "marked"}
    assert settings <= set(module.SEEDS)
    assert len(settings) >= 12
    for r in kept:
        bits = [float(r[f"{a}_bits"]) for a in ("embedding", "logits", "labels") if r[f"{a}_bits"]]
        if r["kind"] in ("unmarked", "longer"):
            assert max(bits) < 15, r
        elif r["edit"] == "unedited":
            assert max(bits) > 20, r  # by one reading at least


def test_limits_are_students(script):
    differences = [-1.0, 0.5, 0.2, -0.4]
    interval = ttest_1samp(differences, 0).confidence_interval(0.90)
    assert script("benchmarks/strength").lower_limit(differences) == pytest.approx(interval.low)


@pytest.mark.slow
def test_false_positive_study_is_reproducible(script, rows):
    module = script("benchmarks/false_positives")
    again = module.study("Cora/GCN", 101, "unmarked")
    kept = [
        r for r in rows("benchmarks/false_positives") if (r["setting"], r["seed"]) == ("Cora/GCN", "101")
    ]
    for new, old in zip(again, kept, strict=True):
        assert {k: str(v) for k, v in new.items()} == old


def test_schemes_have_the_settings_that_were_tuned(script, rows):
    study = script("studies/tuning_schemes")
    kept = [r for r in rows("studies/tuning_schemes") if r["scheme"] != "Keyed"]  # ours has its defaults
    for setting, scheme in dict.fromkeys((r["setting"], r["scheme"]) for r in kept):
        grid = study.GRID[scheme][study.KINDS[setting]]
        tried = [
            r for r in kept if (r["setting"], r["scheme"]) == (setting, scheme) and r["values"] in grid
        ]
        assert {r["values"] for r in tried} == set(grid), (setting, scheme)
        wanted = study.made(scheme, study.chosen(tried))
        name = setting.partition("/")[0]
        task = SimpleNamespace(name=name, level="graph" if name == "PROTEINS" else "node")
        used = next(one for one in suite() if type(one) is type(wanted) and "1e-4" not in one.name)
        used = used.suited(None, task) if scheme in TUNED else used
        for name in [pair.partition("=")[0] for pair in study.chosen(tried).split()]:
            place = "recipe" if name in study.RECIPE and name != "beta" else name
            assert getattr(used, place) == getattr(wanted, place), (setting, scheme, name)


def test_every_scheme_had_the_same_number_of_trials(script):
    study = script("studies/tuning_schemes")
    count = Counter(trial["scheme"] for trial in study.grid())
    assert set(count.values()) == {8}
    assert len(count) == len({type(scheme) for scheme in suite()}) - 1  # SS has nothing to tune


def compared(root, name, seeds=("41", "42", "43")):
    """The lines of a kept comparison by scheme."""
    kept = read_rows(root / f"benchmarks/results/schemes_{name}.csv")
    return {line.scheme: line for line in lines([r for r in kept if seeds is None or r["seed"] in seeds])}


CORA, PROTEINS = "cora_gcn", "proteins_gin"
PAIRED, SPLITS = ("SS", "TRIG", "NAT"), tuple(str(seed) for seed in range(41, 61))
"""Schemes whose accuracy is compared in pairs on PROTEINS, and the splits."""


@pytest.mark.parametrize("name", [CORA, PROTEINS])
def test_the_page_of_baselines_shows_the_kept_comparison(root, name):
    page = (root / "docs/explanation/baselines.md").read_text()
    found = compared(root, name)
    assert set(found) == {scheme.name for scheme in suite()}
    for line in found.values():
        assert table_row(*cells(line)) in page, line.scheme


def paired(root):
    """The lines of SS, TRIG and NAT on all splits of PROTEINS, and their rows."""
    kept = [
        r for r in read_rows(root / "benchmarks/results/schemes_proteins_gin.csv") if r["scheme"] in PAIRED
    ]
    return {line.scheme: line for line in lines(kept)}, kept


def test_the_page_of_baselines_shows_the_differences_on_all_splits(root):
    page = (root / "docs/explanation/baselines.md").read_text()
    found, kept = paired(root)
    assert set(found) == set(PAIRED)
    for scheme in PAIRED:
        assert sorted(r["seed"] for r in kept if r["scheme"] == scheme) == list(SPLITS)
    for line in found.values():
        row = (line.scheme, str(line.accuracy), str(line.gap), str(line.wm_accuracy))
        assert table_row(*row) in page, line.scheme


def test_rivals_are_in_their_best_form(root):
    """They embed what their authors promise, so that no comparison is won against a weak form."""
    cora, proteins, (splits, _) = compared(root, CORA), compared(root, PROTEINS), paired(root)
    for scheme in ("TRIG", "NAT"):
        assert cora[scheme].wm_accuracy.mean >= 0.95
        assert abs(cora[scheme].gap.mean) <= 0.02
        assert splits[scheme].wm_accuracy.mean >= 0.9
        assert abs(splits[scheme].gap.mean) <= 0.02
    assert cora["InvGNN-WM (best)"].wm_accuracy.mean == 1
    assert proteins["InvGNN-WM (best)"].wm_accuracy.mean >= 0.95
    explained = [row for row in read_rows(root / "benchmarks/results/schemes_expl.csv") if row["more"]]
    assert {row["setting"] for row in explained} == {"Photo/GraphSAGE", "PubMed/GraphSAGE"}
    for row in explained:
        figures = dict(part.rsplit(" ", 1) for part in row["more"].split("; "))
        assert float(figures["p of the match index"]) < 1e-3, row["setting"]


def test_no_unmarked_model_verifies(root):
    for name in (CORA, PROTEINS):
        assert not any(line.at_alpha for line in compared(root, name, seeds=None).values())
