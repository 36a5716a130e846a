"""The kept measurements say what the documents say, and what was promised."""

import importlib.util
import sys
from pathlib import Path

import pytest
from scipy.stats import binomtest, ttest_1samp

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(name):
    module = benchmark(name)
    return module.trials.read(module.PATH)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("evidence", "results/paper-scheme"),
        ("false_positives", "results/false-positives"),
        ("strength", "results/strength"),
        ("recipe", "results/embedding-study"),
        ("theory", "explanation/theory"),
        ("forgers", "results/forgeries"),
        ("robustness", "results/robustness"),
        ("channel", "results/score-channel"),
        ("stealth", "results/stealth"),
    ],
)
def test_document_shows_the_kept_results(name, page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    table = text.split("<!-- table -->")[1].split("<!-- end -->")[0].strip()
    assert table == benchmark(name).summary(), f"run benchmarks/{name}.py --summary --into docs/{page}.md"


def test_enough_suspects_were_read():
    kept = rows("false_positives")
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
def test_false_positives_are_not_too_many(level, what):
    kept = rows("false_positives")
    for access in {r["access"] for r in kept}:
        part = [r for r in kept if r["access"] == access]
        count = sum(int(r[f"{what[0]}_{level}"]) for r in part)
        total = sum(int(r[what[1]]) for r in part)
        assert binomtest(count, total, float(level), "greater").pvalue > 1e-3, (access, count, total)


def test_default_mark_is_strong_and_unmarked_models_are_silent():
    kept = rows("evidence")
    marked = [r for r in kept if r["scheme"] == "keyed"]
    assert {(r["setting"], r["seed"]) for r in marked} == {
        (s, str(seed)) for s in ("PROTEINS/GIN", "NCI1/GIN", "Cora/GCN") for seed in (41, 42, 43)
    }
    assert min(float(r["evidence_bits"]) for r in marked) >= 40
    assert max(float(r["evidence_bits"]) for r in kept if r["scheme"] == "unmarked") < 10
    assert max(float(r["other_bits"]) for r in marked) < 20  # a stranger's keyed mark reads nothing


def test_marks_are_read_everywhere_and_unmarked_twins_are_silent():
    module = benchmark("strength")
    kept = rows("strength")
    settings = {r["setting"] for r in kept if r["kind"] == "marked"}
    assert settings <= set(module.SEEDS)
    assert len(settings) >= 12
    for r in kept:
        bits = [float(r[f"{a}_bits"]) for a in ("embedding", "logits", "labels") if r[f"{a}_bits"]]
        if r["kind"] in ("unmarked", "longer"):
            assert max(bits) < 15, r
        elif r["edit"] == "unedited":
            assert max(bits) > 20, r  # by one reading at least


def test_limits_are_students():
    differences = [-1.0, 0.5, 0.2, -0.4]
    interval = ttest_1samp(differences, 0).confidence_interval(0.90)
    assert benchmark("strength").lower_limit(differences) == pytest.approx(interval.low)


@pytest.mark.slow
def test_false_positive_study_is_reproducible():
    module = benchmark("false_positives")
    again = module.study("Cora/GCN", 101, "unmarked")
    kept = [r for r in rows("false_positives") if (r["setting"], r["seed"]) == ("Cora/GCN", "101")]
    for new, old in zip(again, kept, strict=True):
        assert {k: str(v) for k, v in new.items()} == old
