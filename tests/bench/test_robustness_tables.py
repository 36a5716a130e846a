"""The robustness benchmark: every change has its row, and the tables say what the rows say."""

from __future__ import annotations

import pytest

from invgnn.attacks import denial, edits, registry
from invgnn.bench import changes, released
from invgnn.bench import robustness_rows as planned_rows
from invgnn.bench import robustness_tables as tables
from invgnn.bench.robustness_rows import ACCESSES, COLLUDE, DENIALS, PROMISED, REFRESH, SETTINGS
from invgnn.errors import ParameterError
from invgnn.storage.tables import read_rows
from invgnn.stress_test.run import RELEASED


def row(change, seed, access, bits, headroom, accuracy=0.8, kind="edit", setting="Cora/GCN"):
    return {
        **{"setting": setting, "seed": str(seed), "change": change, "access": access, "kind": kind},
        **{"accuracy_before": "0.8", "accuracy": str(accuracy), "evidence": str(bits)},
        **{"headroom": str(headroom), "seconds": "60", "model": "a", "knows": "", "note": ""},
    }


ROWS = [
    *(row(RELEASED, seed, a, 123, 36, kind="released") for seed in (41, 42) for a in ACCESSES),
    row("prune 50%", 41, "embedding", 90, 20),
    row("prune 50%", 41, "logits", 19.9, -4),
    row("prune 50%", 42, "embedding", 40, 2, 0.7),
    row("prune 50%", 42, "logits", 60, 6, 0.7),
    row("distil", 41, "embedding", 3, -30, 0.78),
    row("distil", 41, "logits", 4, -28, 0.78),
    row("permute units", 41, "embedding", 0, -40),
    row("permute units", 41, "logits", 123, 36),
]
TABLE = planned_rows.index(ROWS)


def test_every_change_of_the_suites_has_a_row_and_can_be_found(script):
    robustness = script("benchmarks/robustness")
    planned = [trial["change"] for trial in robustness.grid(["Cora/SGC"], [41])]
    wanted = [*map(repr, edits.suite()), *map(repr, registry.suite())]
    usual = [name for name in wanted if name not in DENIALS]
    assert planned == [RELEASED, *usual, COLLUDE, REFRESH]
    assert len({*planned}) == len(planned)
    denied = [trial["change"] for trial in robustness.grid(["Cora/SGC"], [41], [RELEASED, *DENIALS])]
    assert {*denied} == {RELEASED, *DENIALS}
    assert {*DENIALS} <= {*wanted}
    assert [repr(changes.find_change(name, "Cora/SGC", 41)) for name in wanted] == wanted
    assert planned_rows.RELEASED == RELEASED


def test_what_tables_and_figures_name_is_in_the_suites(script):
    figures = script("benchmarks/robustness_figures")
    names = set(changes.change_names())
    assert {change for change, _ in PROMISED} <= names
    assert {f"serve {form}" for form in denial.FORMS if "label" not in form} == {*planned_rows.FORMS}
    assert {change for _, some, _ in tables.EDIT_SETS for change in some} <= names
    assert {*figures.KILLSHOTS} <= names
    for name in names - {RELEASED, REFRESH}:
        assert sum(name.startswith(starts) for *_, starts in figures.FAMILIES.values()) == 1, name


def test_seeds_come_in_turn_and_models_are_trained_apart(script):
    planned = list(script("benchmarks/robustness").grid(changes=["prune 20%", "KD-kill"]))
    first = planned[: len(SETTINGS)]
    assert {trial["change"] for trial in first} == {RELEASED}
    assert [trial["setting"] for trial in first] == list(SETTINGS)
    assert [trial["seed"] for trial in planned] == sorted(trial["seed"] for trial in planned)
    assert {trial["change"] for trial in planned} == {
        *(RELEASED, "prune 20%", "prune 20% of channels", "KD-kill")
    }


def test_the_least_seed_decides_what_held():
    text = tables.promise_table(TABLE, ["Cora/GCN"])
    assert "2 of 3 hold" in text
    assert "| prune 50% | embedding | 40 ✓ |" in text
    assert "| prune 50% | logits | 20 **✗** |" in text  # 19.9 is not 20
    assert "| permute units | logits | 123 ✓ |" in text
    assert "| permute units | embedding" not in text  # not asked for


def test_removal_names_the_reading_and_the_price():
    text = tables.removal_table(TABLE, ["Cora/GCN"], ["prune 50%", "distil", "permute units"])
    assert "| distil | removed, -2.0 |" in text
    assert "| permute units | removed at embedding, +0.0 |" in text
    assert "prune 50%" not in text  # medians of 65 and 39.95 bits
    assert planned_rows.accuracy_change(TABLE, "Cora/GCN", "prune 50%") == pytest.approx(-5)


def test_who_refuses_carriers_is_seen_to():
    def rows(change, *notes):
        return [row(change, seed, "logits", 0, -40) | {"m": "128", "note": note}
                for seed, note in zip((41, 42), notes, strict=True)]  # fmt: skip

    seen = "embedding: scores only; refused 120 carriers, 1 others"
    few = "refused 12 carriers, 5 others"
    table = planned_rows.index(
        [*rows("refuse", seen, seen), *rows("partly", seen, few), *rows("silent", "", "")]
    )
    text = tables.removal_table(table, ["Cora/GCN"], ["refuse", "partly", "silent"])
    assert "| refuse | refuses carriers, +0.0 |" in text
    assert "| partly | removed, +0.0 |" in text  # at one seed chance would do as much
    assert "| silent | removed, +0.0 |" in text
    assert "| +0.0, refuses carriers |" in tables.change_table(table, "Cora/GCN", ["refuse"])


def test_headroom_is_the_worst_edit_of_every_seed_and_the_papers_own():
    rooms, worst = planned_rows.least_headroom(TABLE, "Cora/GCN", "logits", lambda r: r["kind"] == "edit")
    assert (sorted(rooms), worst) == ([-28, 6], "distil")
    text = tables.headroom_table(TABLE, ["Cora/GCN"])
    assert "| Cora/GCN | embedding | +36 (+36) | +11 (+2: prune 50%) |" in text
    assert "| Cora/GCN | *paper* | *+33* |" in text  # T = 127 against 94, as its Table of uniqueness has it
    paper = tables.headroom_table(TABLE, ["PROTEINS/GIN"])
    assert "*+21* | *+19* |  | *-11* |" in paper


def test_what_cannot_be_made_or_read_is_blank():
    refused = row("prune 20%", 41, "logits", "", "", accuracy="") | {"note": "no hidden units"}
    table = planned_rows.index([*ROWS, refused])
    assert "| prune 20% |  |  |  |  | no hidden units |" in tables.change_table(
        table, "Cora/GCN", ["prune 20%"]
    )
    assert planned_rows.accuracy_change(table, "Cora/GCN", "prune 20%") is None
    assert planned_rows.removed(table, "Cora/GCN", "prune 20%") == []


def test_rows_of_one_setting_and_seed_are_about_one_model(script):
    kept = read_rows(script("benchmarks/robustness").PATH)
    found = {(r["setting"], r["seed"]): r["model"] for r in kept if r["change"] == RELEASED}
    assert all(r["model"] == found[r["setting"], r["seed"]] for r in kept)


def test_every_kept_change_still_exists(script):
    benchmark = script("benchmarks/robustness")
    kept = {r["change"] for path in (benchmark.PATH, benchmark.DENIALS_PATH) for r in read_rows(path)}
    assert kept <= {*changes.change_names()}


def test_an_unknown_change_is_named():
    with pytest.raises(ParameterError, match="no change named 'melt'"):
        changes.find_change("melt", "Cora/GCN", 41)


def test_models_are_cached_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("INVGNN_CACHE", str(tmp_path))
    assert released.cache_folder().parent == tmp_path
    assert released.cache_folder().is_dir()


def test_a_model_without_hidden_layer_is_read_at_its_scores():
    assert released.access_levels("Cora/SGC") == ("logits",)
    assert released.access_levels("Cora/GCN") == ("embedding", "logits")
