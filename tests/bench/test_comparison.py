"""The comparison of schemes: its trials, its table and its page."""

from __future__ import annotations

import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import t as student

from invgnn.bench.comparison import (
    HEAD,
    MEASURED,
    Interval,
    cells,
    grid,
    left_out,
    lines,
    options,
    text_table,
    trial,
)
from invgnn.bench.comparison_page import render, write_names
from invgnn.cli.compare import _numbers
from invgnn.errors import ParameterError
from invgnn.schemes import COS, SS, Found, Keyed
from invgnn.secret import Secret
from invgnn.training.tasks import new_model


def row(scheme, seed, **figures):
    key = {"setting": "Cora/GCN", "seed": seed, "scheme": scheme, "epochs": 5, "controls": 3, "reason": ""}
    plain = dict.fromkeys(MEASURED, 0) | {"asked": 128, "null": "exact", "more": "", "innocents": 3}
    return key | plain | figures


ROWS = [
    row("SS", 41, test_accuracy=0.8, seconds=2.0, matches=64),
    row("new", 41, test_accuracy=0.79, seconds=3.0, matches=128, bits=120.0, at_alpha=1),
    row("SS", 42, test_accuracy=0.9, seconds=4.0, matches=60),
    row("new", 42, test_accuracy=0.9, seconds=8.0, matches=120, bits=100.0, other_matches=64, more="x 1"),
    row("no", 41, reason="3 features are <too> few"),
]


def test_lines_are_means_with_student_intervals_and_pairs_with_ss():
    ss, new, no = lines(ROWS)
    half = float(student.ppf(0.975, 1)) * 0.05  # stdev / sqrt(2) of 0.8 and 0.9
    assert ss.accuracy.mean == pytest.approx(0.85)
    assert ss.accuracy.half == pytest.approx(half)
    assert new.gap.mean == pytest.approx(-0.005)
    assert new.cost == pytest.approx(1.75)
    assert (new.bits, new.least_bits, new.at_alpha, new.innocents) == (110, 100, 1, 6)
    assert new.other == pytest.approx(0.25)
    assert no.reason
    assert Interval.of([0.5]).half is None


def test_a_scheme_that_cannot_serve_the_task_gets_dashes_and_its_reason():
    found = lines(ROWS)
    assert cells(found[2]) == ("no", *["-"] * (len(HEAD) - 1))
    text = text_table(found)
    assert "no: 3 features are <too> few" in text
    page = render(found, setting="Cora/GCN", command="invgnn compare --task Cora/GCN")
    assert "3 features are &lt;too&gt; few" in page
    assert "<svg" in page
    assert "http-equiv" in page
    assert "src=" not in page


def test_names_in_the_figure_cover_neither_each_other_nor_points():
    """Also those of the paper's scheme, which has two long names and twice the evidence of its null."""
    placed = [("NAT", 86.4, 4.3), ("InvGNN-WM (beta 1e-4)", 86.7, 4.3), ("InvGNN-WM (best)", 87.2, 4.3)]
    placed += [("SS", 87.5, 0.9), ("TRIG", 87.1, 333.2)]
    figure = Figure(figsize=(4.5, 3.4), layout="constrained")
    ax = figure.add_subplot()
    ax.plot([x for _, x, _ in placed], [y for _, _, y in placed], "o")
    ax.margins(0.15)
    boxes = write_names(figure, ax, placed, [19.9, 80.0])
    assert len(boxes) == len(placed)
    for number, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:number]) == 0
        assert not any(box.contains(*ax.transData.transform(one[1:])) for one in placed)
        assert ax.get_window_extent().x0 <= box.x0 < box.x1 <= ax.get_window_extent().x1


def test_a_refusal_is_a_row_and_no_failure():
    (found,) = trial("BA-2motif/GIN", 41, "EXPL", 1, 1)
    assert "too few" in found["reason"]
    assert set(found) == {"setting", "seed", "scheme", "epochs", "controls", "reason", *MEASURED}


def test_unmarked_models_are_compared_with_the_others():
    found = [Found(k, 9, float(k), None, "models") for k in (1, 2, 8)]
    assert [one.shows(0.34) for one in left_out(found)] == [False, False, True]


def test_trials_are_balanced_over_seeds():
    trials = list(grid("Cora/GCN", ["SS", "ours"], [1, 2]))
    assert [(one["seed"], one["scheme"]) for one in trials] == [
        *((1, "SS"), (1, "ours"), (2, "SS"), (2, "ours"))
    ]


def test_seeds_are_numbers():
    assert _numbers("41, 42,41") == [41, 42]
    for bad in ("", "a", "1,-2"):
        with pytest.raises(ParameterError):
            _numbers(bad)


def test_every_scheme_is_trained_as_train_does(motifs, web, monkeypatch):
    """With the same optimiser, with or without `train`: otherwise rivals would be weaker than they are."""
    kinds = []
    for name in ("Adam", "AdamW"):
        kind = getattr(torch.optim, name)
        watched = lambda *a, _kind=kind, **k: kinds.append(_kind.__name__) or _kind(*a, **k)  # noqa: E731
        monkeypatch.setattr(torch.optim, name, watched)
    for task, wanted in ((motifs, "AdamW"), (web, "Adam")):
        for scheme in (SS(), COS(), Keyed()):
            kinds.clear()
            mark = scheme.prepare(Secret(bytes(32)), task)
            mark.train(new_model(task, "GIN", 0, hidden_channels=8), task, options(task, 0, epochs=1))
            assert set(kinds) == {wanted}, scheme
