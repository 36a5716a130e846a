"""Reports: everything in them follows from the rows, and a check notices when it does not."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from invgnn.bench.grids.grid import load_grid
from invgnn.bench.grids.run import Results
from invgnn.bench.grids.store import Row
from invgnn.bench.intervals import normal_half, paired, paired_p
from invgnn.bench.report import publish
from invgnn.bench.report.attacked import Attacked, attacked, best_removal
from invgnn.bench.report.beside import Beside, beside, summary
from invgnn.bench.report.check import check_report, hyperparameters, row_problems
from invgnn.bench.report.claims import claim_problems, claims_markdown, read_claims
from invgnn.bench.report.evidence import Cell, Evidence
from invgnn.bench.report.kept import kept_problems, read_kept
from invgnn.bench.report.page import heat
from invgnn.bench.report.paper import Explained, Published, read_paper, read_reasons
from invgnn.bench.report.publish import publish_report
from invgnn.bench.report.table import Table, latex_text
from invgnn.bench.report.tables import outcome
from invgnn.bench.trials.measures import MEASURES
from invgnn.errors import FileError

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "benchmarks" / "paper.csv"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
GRID = """
about = "made up"
settings = ["Cora/GCN", "PROTEINS/GIN"]
seeds = [41, 42, 43]

[[part]]
measure = "mark"
schemes = ["SS", "TRIG", "InvGNN-WM (beta 1e-4)", "ours"]

[[part]]
measure = "change"
schemes = ["TRIG", "ours"]
changes = ["prune 40%", "KD-kill"]
thieves = ["1%", "100%"]

[[part]]
measure = "scratch"
thieves = ["1%", "100%"]

[[part]]
measure = "variant"
settings = ["PROTEINS/GIN"]
schemes = ["ours"]
variants = ["beta=0.1", "beta=1", "m=64"]

[[part]]
measure = "refresh"
schemes = ["ours"]

[[part]]
measure = "uniqueness"
schemes = ["InvGNN-WM (best)", "ours"]

[[part]]
measure = "sensitivity"
schemes = ["ours"]
levels = ["0%", "10%"]

[[part]]
measure = "search"
settings = ["Cora/GCN"]
searches = ["random", "CMA"]

[[part]]
measure = "forgery"
settings = ["Cora/GCN"]
schemes = ["TRIG"]
forgeries = ["transcribe answers"]
"""

FREE = """
[[part]]
measure = "change"
schemes = ["TRIG", "ours"]
changes = ["prune 40%"]
thieves = ["100%"]
"""


def figures(planned):
    """Made-up figures: TRIG is lost to KD-kill, ours is lost to it at a loss of accuracy."""
    a = planned.arguments
    seed, scheme = int(a["seed"]), a.get("scheme", "")
    strong = {"SS": 0.4, "TRIG": 125.0, "ours": 122.2}.get(scheme, 4.3) + (seed - 42) / 10
    found = dict.fromkeys(MEASURES[planned.measure].columns, "") | {"took": 7.5, "reason": ""}
    found |= {"test_accuracy": 0.87 + (seed - 42) / 100 - (0.01 + (seed == 43) / 500) * (scheme == "ours")}
    found |= {"matches": 70 if scheme == "SS" else 126, "asked": 128, "bits": strong, "null": "exact"}
    if planned.measure in ("mark", "variant"):
        found |= {"other_bits": 1.5, "innocents": 19, "at_alpha": 0, "seconds": 3.0 + (scheme == "ours")}
        found |= {"questions": 192, "audit_seconds": 0.02, "tau": 92, "margin": ""}
        found |= {"hyperparameters": json.dumps({"m": 128, "recipe": {"beta": 1.0}})}
    if planned.measure == "change":
        lost, worth = a["change"] == "KD-kill", 0.02 if scheme == "TRIG" else -0.03
        found |= {"accuracy_before": 0.87, "accuracy": (0.8 + worth if lost else 0.86) + seed / 1e4}
        found |= {"bits_before": strong, "bits": 1.0 if lost else strong, "labels": 9}
        found |= {"matches_before": 127, "drift": 0.25, "margin": 0.1, "moved": 0.05}
    if planned.measure == "scratch":
        found |= {"accuracy": 0.8 + seed / 1e4, "labels": 9}
    if planned.measure == "refresh":
        found |= {"accuracy_before": 0.87, "accuracy": 0.86, "matches_before": 128, "bits_before": 123.2}
    if planned.measure == "uniqueness":
        found |= {"tau": 92, "owners": 8, "others_mean": 64.5, "others_most": 70 + seed, "others_pass": 0}
        found |= {"draws": 10**7, "innocent_hits": 0, "innocent_limit": 3e-7}
        found |= {"marked_hits": 10 * (scheme != "ours"), "marked_limit": 3e-7}
    if planned.measure == "sensitivity":
        moved = a["level"] != "0%"
        found |= {"matches": 96 if moved else 128, "change": 0.4 * moved}
        found |= {"preserved_count": 32 if moved else 128, "preserved_right": 32 if moved else 128}
        found |= {"marginal_count": 0, "marginal_right": 0}
        found |= {"broken_count": 96 * moved, "broken_right": 64 * moved}
    if planned.measure == "search":
        naive = {"random": "10.0 12.0 30.0", "CMA": "1.0 2.0 3.0"}[a["search"]]
        passes = {"random": "0 0 1", "CMA": "0 0 0"}[a["search"]]
        found |= {"after": "10 30 100", "naive_bits": naive, "naive_passes": passes, "bits": "3.0 4.0 5.5"}
    if planned.measure == "forgery":
        found |= {"naive_bits": 128.0, "naive_passes": 1, "bits": 1.2, "succeeds": 0, "refused": ""}
    return {name: found[name] for name in MEASURES[planned.measure].all_columns}


def report_in(folder):
    """A grid with rows for all but one trial, one of them made by other code, and its report."""
    grid = folder / "tiny.toml"
    grid.write_text(GRID)
    loaded = load_grid(grid)
    planned = loaded.planned()
    rows = [Row.of(one, figures(one)) for one in planned[1:]]
    old = planned[-1]
    rows[-1] = Row.of(type(old)(old.measure, old.arguments, old.settings, "other", "c"), figures(old))
    results = Results(folder / "results")
    results.store.add(rows)
    results.export(loaded, planned)
    publish_report([grid], folder / "results", PAPER, folder / "out")
    return folder, grid, planned


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report with its figures."""
    return report_in(tmp_path_factory.mktemp("report"))


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A report to spoil. It has no figures, which take seconds to draw."""
    monkeypatch.setattr(publish, "all_drawings", lambda _: [])
    folder, *_ = report_in(tmp_path)

    def check(**options):
        return check_report([folder / "tiny.toml"], folder / "results", PAPER, folder / "out", **options)

    return folder, check


def spoil(path, old, new, count=1):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


def lines(folder, name):
    return (folder / "out" / f"{name}.md").read_text().splitlines()


# -- statistics -------------------------------------------------------------------------------------


def test_paired_tests_are_students():
    first, second = {1: 0.5, 2: 0.7, 3: 0.65, 4: 0.1}, {1: 0.4, 2: 0.65, 3: 0.66}
    apart = paired(first, second)
    assert apart == pytest.approx([0.1, 0.05, -0.01])
    assert paired_p(apart) == pytest.approx(ttest_rel([0.5, 0.7, 0.65], [0.4, 0.65, 0.66]).pvalue)
    assert paired_p([0.1]) is paired_p([0.1, 0.1]) is None
    assert normal_half([1.0, 2.0, 3.0]) == pytest.approx(1.96 / 3**0.5)
    assert normal_half([1.0]) is None


@pytest.mark.parametrize(
    ("before", "after", "worth", "said"),
    [
        ([100, 100, 90], [90, 30, 20], [-1, -1, -1], "kept"),
        ([100, 100, 90], [90, 10, 10], [0.1, 0.1, -0.01], "removed"),
        ([100, 100, 90], [0, 0, 0], [0.01, 0, -0.1], "gone, no gain"),
        ([100, 100, 90], [], [0.5], "removed"),
        ([100, 100, 90], [0], [], "gone; worth not measured"),
        ([10, 10, 90], [0], [0.5], "not shown before"),
        ([], [], [], "not shown before"),
    ],
)
def test_a_mark_is_removed_only_if_the_model_is_worth_more_than_a_new_one(before, after, worth, said):
    assert outcome(before, after, worth) == said


def test_heat_has_steps_at_the_limits_that_matter():
    assert [heat(b) for b in (None, 0, 4.9, 5, 19.9, 20, 79, 80, 123)] == [
        *("none", "0", "0", "1"),
        *"23456",
    ]


# -- tables -----------------------------------------------------------------------------------------


@pytest.mark.story
def test_tables_follow_from_the_rows(made):
    folder, *_ = made
    (line,) = [one for one in lines(folder, "main") if one.startswith("| PROTEINS/GIN | ours |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:4] == ["3", "85.9 ± 2.2"]  # 85.0, 86.0 and 86.8: worked out by hand
    assert cells[4] == "-1.1 ± 0.3 (&lt; 0.01)"
    assert cells[5:] == ["98.4 ± 0.0", "122.2 (122.1)", "0 of 57", "1.5", "–", "–"]
    (line,) = [one for one in lines(folder, "main") if one.startswith("| PROTEINS/GIN | InvGNN-WM (beta")]
    assert line.endswith("| 72.5 ± 2.6 | 89.8 ± 2.1 |")  # the paper's OURS
    removal = {tuple(c.strip() for c in one.split("|")[1:5]): one for one in lines(folder, "removal")}
    assert "| removed |" in removal["Cora/GCN", "TRIG", "KD-kill", "1%"]
    assert "| gone, no gain |" in removal["Cora/GCN", "ours", "KD-kill", "1%"]
    assert "| kept |" in removal["Cora/GCN", "ours", "prune 40%", "100%"]
    cost = next(one for one in lines(folder, "cost") if one.startswith("| ours |"))
    assert "| 1.33 | 1.33 | 192 | 20 | 0 of 6 | 0 of 2 |" in cost
    literal = next(one for one in lines(folder, "cost") if one.startswith("| InvGNN-WM (beta"))
    assert "| 6 of 6 | 0 of 2 |" in literal  # 4.3 bits by an exact law do not show a mark


@pytest.mark.story
def test_tables_of_the_studies_follow_from_the_rows(made):
    folder, *_ = made
    unique = {tuple(c.strip() for c in one.split("|")[1:3]): one for one in lines(folder, "uniqueness")}
    ours = unique["Cora/GCN", "ours"]
    assert "| 126.0 | 92 | +34.0 | 0 of 3e+07 (≤ 1.0e-07) | 0 of 3e+07 (≤ 1.0e-07) |" in ours
    assert ours.endswith("| 64.5 (113) | 0 of 24 |")
    assert "| 1.0e-06 (≤ " in unique["Cora/GCN", "InvGNN-WM (best)"]  # 30 of 3e7
    moved = next(one for one in lines(folder, "sensitivity") if "| Cora/GCN | ours | 10% |" in one)
    assert moved.endswith("| 0.40 | 75.0 ± 0.0 | 100 (96) | – | 67 (288) |")
    searches = "\n".join(lines(folder, "searches"))
    assert "| Cora/GCN | random | 3 | 100 | 3 of 3 | 100 | 30.0 | 5.5 (5.5) |" in searches
    assert "| Cora/GCN | CMA | 3 | 100 | 0 of 3 | – | 3.0 | 5.5 (5.5) |" in searches
    refreshed = next(one for one in lines(folder, "refresh") if one.startswith("| Cora/GCN | ours |"))
    assert "| 87.0 ± 0.0 | 86.0 ± 0.0 | 98.4 ± 0.0 |" in refreshed


def attack(worth, gone=True, **more):
    given = {"setting": "a/b", "scheme": "S", "change": "c", "thief": "1%", "bits": 1.0, "shown": True}
    return Attacked(**{**given, **more}, worth=worth, gone=gone)


def test_the_best_removal_is_the_one_that_leaves_the_best_model():
    assert best_removal([attack(-3), attack(-1), attack(5, gone=False)]).worth == -1
    assert best_removal([attack(5, gone=False)]) is None


@pytest.mark.story
def test_an_edit_that_needs_no_labels_counts_for_every_thief(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(GRID.replace('changes = ["prune 40%", "KD-kill"]', 'changes = ["KD-kill"]') + FREE)
    grid = load_grid(path)
    planned = grid.planned()
    evidence = Evidence([grid], [Row.of(one, figures(one)) for one in planned], planned)
    found = {(one.change, one.thief) for one in attacked(evidence)}
    assert found == {(change, thief) for change in ("KD-kill", "prune 40%") for thief in ("1%", "100%")}
    kept = [one for one in attacked(evidence) if one.change == "prune 40%"]
    assert [one.worth for one in kept] == [pytest.approx(6.0)] * 8
    assert not any(one.gone for one in kept)


@pytest.mark.story
def test_a_row_of_other_code_is_marked(made):
    folder, *_ = made
    text = (folder / "out" / "forgeries.md").read_text()
    assert "†" in text
    assert "†" not in (folder / "out" / "main.md").read_text()


def test_latex_is_escaped():
    assert latex_text("50 % & a_b ± 1 †") == r"50 \% \& a\_b $\pm$ 1 $^\dagger$"
    table = Table("t", "T", "About.", ("a", "b"), [[Cell("x_1"), Cell("2", (), 2.0, True)]], text=1)
    assert r"x\_1 & 2 $^\dagger$ \\" in table.latex()
    assert "| x_1 | 2 † |" in table.markdown()
    assert "Not run yet." in Table("t", "T", "", ("a",), []).markdown()


@pytest.mark.story
def test_every_published_number_stands_beside_ours(made):
    folder, grid, _ = made
    published = read_paper(PAPER)
    assert len(published) == 284
    assert {one.table for one in published} == {
        *("tab:main_comparison", "tab:uniq_strip", "tab:m_vs_tau", "tab:inv_choice"),
        *("tab:protocol_thresholds", "tab:imperceptibility_check", "tab:robustness_budget"),
    }
    evidence = Evidence.load([grid], folder / "results")
    found = beside(evidence, published)
    assert {id(one.published) for one in found} == {id(one) for one in published}
    main = next(
        one
        for one in found
        if (one.published.setting, one.scheme, one.published.quantity)
        == ("PROTEINS/GIN", "InvGNN-WM (beta 1e-4)", "WM-ACC")
        and one.published.table == "tab:main_comparison"
    )
    assert main.published.value == "89.8"
    assert main.ours == pytest.approx(100 * 126 / 128)
    assert main.difference == pytest.approx(8.6375)
    assert len(main.rows) == 3
    taus = [one for one in found if one.published.quantity == "tau" and one.published.variant]
    assert [(one.published.value, one.shown) for one in taus] == [
        *(("42", "52"), ("68", "72"), ("94", "92"), ("150", "130")),
    ]
    assert {one.shown for one in found if one.published.table == "tab:inv_choice"} >= {"not run yet"}
    assert summary(found)["tab:inv_choice"][1:] == (0, 0, None)
    assert main.comes_out is False
    assert main.why == ""
    reasons = [Explained({"quantity": ("WM-ACC",), "row": ("another",)}, "no")]
    reasons.append(Explained({"quantity": ("WM-ACC",), "row": (main.scheme,)}, "because"))
    told = beside(evidence, [main.published], reasons=reasons)
    assert [one.why for one in told] == ["because", ""]  # the other form has no rows
    constants = [
        {"setting": "Cora/GCN", "mu_envelope": "0.058", "l_s": "2.038", "beta_certified": "0.0092"}
    ]
    mu = next(one for one in published if one.quantity == "mu_PL" and one.setting == "Cora/GCN")
    (ours,) = beside(evidence, [mu], constants)
    assert (ours.ours, ours.scheme, ours.comes_out) == (0.058, "make theory", False)
    assert ours.difference == pytest.approx(0.058 - 0.85)


@pytest.mark.parametrize(
    ("value", "half", "ours", "width", "expected"),
    [
        ("89.8", "2.1", 86.0, 1.5, False),
        ("89.8", "2.1", 86.0, 1.7, True),  # the intervals meet
        ("94", "", 94.4, None, True),  # 94 stands for 93.5 to 94.5
        ("94", "", 92.0, None, False),
        ("7.6e-4", "", 7.64e-4, None, True),
        ("7.6e-4", "", 0.93, None, False),
        ("<1e-7", "", 3e-7, None, False),
        ("<1e-6", "", 3e-7, None, True),
        ("94", "", None, None, None),
    ],
)
def test_a_number_comes_out_if_intervals_meet_or_printed_digits_agree(value, half, ours, width, expected):
    one = Published("t", "s", "OURS", "", "q", value, half)
    assert Beside(one, "x", ours, "", width).comes_out is expected


def test_sentences_name_columns_and_say_something(tmp_path):
    assert all(one.why.endswith(".") for one in read_reasons(ROOT / "benchmarks" / "differences.toml"))
    path = tmp_path / "differences.toml"
    assert read_reasons(path) == []
    for bad in (
        'colour = ["x"]\nwhy = "w"',
        'quantity = ["tau"]',
        'why = "w"',
        'quantity = ["tau"]\nwhy = " "',
    ):
        path.write_text(f"[[difference]]\n{bad}\n")
        with pytest.raises(FileError, match="does not hold sentences"):
            read_reasons(path)


def test_every_script_and_file_of_rows_is_accounted_for(tmp_path):
    folder = ROOT / "benchmarks"
    names = {path.stem for path in (folder / "grids").glob("*.toml")}
    assert kept_problems(folder / "kept.toml", folder / "results", names) == []
    listed = [name for one in read_kept(folder / "kept.toml") for name in one.rows]
    assert len(listed) == len(set(listed))
    for one in read_kept(folder / "kept.toml"):
        assert not one.page or (ROOT / "docs" / "results" / one.page).is_file(), one.page
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        if one.command.startswith("make "):
            assert {*one.command.split()[1:]} <= {*targets}, one.command
    small = tmp_path / "benchmarks"
    (small / "results" / "gone").mkdir(parents=True)
    (small / "extra.py").touch()
    for name in ("orphan.csv", "gone/mark.csv"):
        (small / "results" / name).touch()
    entry = 'rows = ["lost.csv"]\nscript = "benchmarks/away.py"\ncommand = "c"\npage = ""\nwhy = "w"\n'
    (small / "kept.toml").write_text(f"[[kept]]\n{entry}")
    found = "\n".join(kept_problems(small / "kept.toml", small / "results", {"main"}))
    for name in ("orphan.csv", "lost.csv", "gone belongs to no grid", "extra.py", "away.py"):
        assert name in found
    assert len(found.splitlines()) == 5


def test_the_papers_numbers_are_those_of_its_text():
    """Some of them, typed by hand from the paper."""
    held = {(o.table[4:], o.setting, o.scheme, o.variant, o.quantity): str(o) for o in read_paper(PAPER)}
    for key, value in {
        ("main_comparison", "Cora/GCN", "COS", "", "WM-ACC"): "86.2 ± 4.1",
        ("main_comparison", "Photo/SGC", "OURS", "", "Task ACC"): "91.0 ± 0.7",
        ("main_comparison", "NCI1/GraphSAGE", "EXPL", "", "WM-ACC"): "92.1 ± 3.5",
        ("uniq_strip", "NCI1/GIN", "OURS", "", "Owner T"): "125 ± 2",
        ("m_vs_tau", "PROTEINS/GIN", "OURS", "m=192", "Gap"): "24",
        ("inv_choice", "PROTEINS/GIN", "OURS", "invariant=triangle_count", "kappa_marg"): "0.315",
        ("protocol_thresholds", "PROTEINS/GIN", "OURS", "swap_cap=5 delta=0.05", "rho0"): "9.1e-4",
        ("imperceptibility_check", "Photo/GraphSAGE", "OURS", "", "L_s"): "1.55e3",
        ("robustness_budget", "PROTEINS/GIN", "OURS", "KD+WM", "WM-ACC"): "90.6 ± 2.1",
    }.items():
        assert held[key] == value, key


# -- check ------------------------------------------------------------------------------------------


def test_a_report_of_its_rows_is_sound(copy):
    _, check = copy
    found = check()
    assert found.problems == []
    assert (found.missing, found.stale) == (1, 1)
    assert str(found).startswith("sound: ")
    strict = check(strict=True).problems
    assert len(strict) == 3  # a missing row, one of other code, and numbers without a sentence


def test_a_table_that_differs_from_its_rows_is_noticed(copy):
    folder, check = copy
    spoil(folder / "out" / "main.md", "122.2", "123.2")
    (problem,) = check().problems
    assert "main.md differs from the rows" in problem
    (folder / "out" / "cost.tex").unlink()
    assert any("cost.tex does not exist" in one for one in check().problems)


@pytest.mark.story
def test_a_row_that_differs_from_its_table_is_noticed(copy):
    folder, check = copy
    spoil(folder / "results" / "tiny" / "mark.csv", "122.2", "99.9")
    assert any("index.html differs" in one for one in check().problems)


@pytest.mark.story
def test_a_row_without_a_command_or_with_another_scheme_is_noticed(copy):
    folder, check = copy
    path = folder / "results" / "tiny" / "mark.csv"
    rows = Evidence.load([folder / "tiny.toml"], folder / "results").rows
    bare = Row(**{**vars(rows[0]), "command": " "})
    other = Row(**{**vars(rows[0]), "code": "another"})
    assert "no command" in row_problems([bare])[0]
    assert "not those of its id" in row_problems([other])[0]
    assert row_problems(rows) == []
    spoil(path, rows[0].code, "0" * 12)
    assert any("not those of its id" in one for one in check().problems)


@pytest.mark.story
def test_hyperparameters_that_differ_have_to_be_written_down(copy):
    folder, check = copy
    path = folder / "results" / "tiny" / "mark.csv"
    text = path.read_text().splitlines()
    held = [i for i, one in enumerate(text) if ",ours," in one and "PROTEINS" in one]
    for i in held:
        text[i] = text[i].replace('""beta"": 1.0', '""beta"": 9.0')
    path.write_text("\n".join(text) + "\n")
    publish_report([folder / "tiny.toml"], folder / "results", PAPER, folder / "out")
    (problem,) = check().problems
    assert problem.startswith("ours: recipe.beta differs without a reason in the grid")
    with (folder / "tiny.toml").open("a") as file:
        file.write('\n[[differs]]\nscheme = "ours"\nfield = "recipe.beta"\nwhy = "tuned per level"\n')
    assert check().problems == []


def test_one_setting_with_two_values_counts_as_a_difference():
    rows = [
        Row(
            "",
            "",
            "mark",
            "",
            {"scheme": "S", "setting": "a"},
            {"hyperparameters": f'{{"m": {m}}}'},
            "",
            "",
        )
        for m in (1, 2)
    ]
    assert hyperparameters(rows) == {"S": {"a": {"m": "1 or 2"}}}
    assert hyperparameters([Row(**{**vars(one), "measure": "variant"}) for one in rows]) == {}


def test_claims_name_their_rows_and_commands(tmp_path):
    claims = read_claims(ROOT / "benchmarks" / "claims.toml")
    assert len(claims) >= 20
    assert claim_problems(ROOT / "benchmarks" / "claims.toml") == []
    assert "not run yet" in claims_markdown(claims)
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    bad = folder / "claims.toml"
    one = 'claim = "c"\nwhere = "w"\nstatus = "{}"\nfinding = "f"\nrows = ["{}"]\ncommand = "{}"\n'
    bad.write_text("".join("[[claim]]\n" + one.format(*x) for x in (("true", "no.csv", ""),)))
    assert len(claim_problems(bad)) == 3
    bad.write_text("[[claim]]\nclaim = 1\n")
    with pytest.raises(FileError, match="does not hold claims"):
        read_claims(bad)


def test_no_claim_counts_as_run_whose_grid_has_no_rows():
    """A claim that only a grid can settle says `not run yet` until the grid's file is there."""
    for one in read_claims(ROOT / "benchmarks" / "claims.toml"):
        if one.command.startswith("invgnn bench run"):
            there = bool(one.rows) and all((ROOT / name).exists() for name in one.rows)
            assert there or one.status == "not run yet", one.claim


# -- page -------------------------------------------------------------------------------------------


@pytest.mark.story
def test_the_page_needs_nothing_else_and_every_link_has_its_rows(made):
    folder, *_ = made
    text = (folder / "out" / "index.html").read_text()
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert "http" not in text.replace("http-equiv", "")
    ids = set(re.findall(r'data-id="([0-9a-f]+)"', text))
    linked = {one for found in re.findall(r'href="#rows=([0-9a-f,]+)"', text) for one in found.split(",")}
    assert linked == ids
    for name in ("removal", "attacks", "tradeoff", "weights", "killshots", "sensitivity", "searches"):
        assert (folder / "out" / f"{name}.svg").read_text().startswith("<svg xmlns=")
        assert "var(" not in (folder / "out" / f"{name}.svg").read_text()
    assert len(set(re.findall(r' id="([^"]+)"', text))) == len(re.findall(r' id="([^"]+)"', text))


@pytest.mark.story
def test_names_of_others_are_escaped(made, tmp_path):
    folder, grid, _ = made
    evidence = Evidence.load([grid], folder / "results")
    from invgnn.bench.report.page import render_page

    row = evidence.rows[0]
    evidence.rows[0] = Row(**{**vars(row), "figures": {"reason": "<img src=x onerror=alert(1)>"}})
    text = render_page(evidence, [], [])
    assert "<img" not in text
    assert "&lt;img" in text


PROBE = """<!DOCTYPE html>
<iframe id=f src="index.html" style="width:{width}px;height:900px;border:0"></iframe>
<pre id=o></pre><script>
f.onload = () => {{
  const d = f.contentDocument, w = f.contentWindow, out = [];
  const table = d.getElementById("b-main"), heads = [...table.tHead.rows[0].cells];
  const at = heads.findIndex(c => c.textContent.includes("bits"));
  const maps = () => [...d.querySelectorAll(".heat")].filter(m => !m.hidden).map(m => m.dataset.scheme);
  const rows = () => [...table.tBodies[0].rows].filter(r => !r.hidden).map(r => r.cells[1].textContent);
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[at].dataset.v);
  const button = table.tHead.rows[0].cells[at].querySelector("button");
  button.click(); out.push(["up", column()]);
  button.click(); out.push(["down", column()]);
  out.push(["sorted", table.tHead.rows[0].cells[at].getAttribute("aria-sort")]);
  const field = d.querySelector("input[data-table=b-main]");
  field.value = "proteins OURS"; field.dispatchEvent(new w.Event("input"));
  out.push(["filtered", rows()]);
  const link = d.querySelector(".heat:not([hidden]) a");
  const ids = link.getAttribute("href").slice(6).split(",");
  out.push(["maps", maps()]);
  const choice = d.getElementById("scheme");
  choice.value = "TRIG"; choice.dispatchEvent(new w.Event("change"));
  out.push(["chosen", maps()]);
  w.location.hash = link.getAttribute("href");
  setTimeout(() => {{
    const seen = [...d.querySelectorAll("#rows tbody tr")].filter(r => !r.hidden).map(r => r.dataset.id);
    out.push(["linked", seen.length === ids.length && ids.every(i => seen.includes(i))]);
    out.push(["count", d.getElementById("count").textContent]);
    out.push(["wide", d.documentElement.scrollWidth, d.documentElement.clientWidth]);
    o.textContent = JSON.stringify(out);
  }}, 300);
}};</script>"""


@pytest.mark.story
@pytest.mark.skipif(BROWSER is None, reason="no chromium")
@pytest.mark.parametrize("width", [390, 1100])
def test_the_page_works_in_a_browser(made, width):
    folder = made[0] / "out"
    (folder / f"probe{width}.html").write_text(PROBE.format(width=width))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    probe = (folder / f"probe{width}.html").as_uri()
    command = [BROWSER, *options, "--virtual-time-budget=6000", "--dump-dom", probe]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    told = re.search(r'<pre id="o">(.+?)</pre>', done.stdout)
    assert told, done.stderr[-2000:]
    found = {name: rest for name, *rest in json.loads(html.unescape(told[1]))}
    up = [float(one) for one in found["up"][0]]
    assert up == sorted(up)
    assert [float(one) for one in found["down"][0]] == sorted(up, reverse=True)
    assert found["sorted"] == ["descending"]
    assert found["filtered"] == [["ours"]]
    assert found["maps"] == [["ours"]]
    assert found["chosen"] == [["TRIG"]]
    assert found["linked"] == [True]
    assert found["count"] == ["3 rows behind the cell"]
    assert found["wide"][0] <= found["wide"][1]
