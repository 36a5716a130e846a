"""The page of a verdict: whole, harmless, honest, private where it must be."""

import html
import itertools
import math
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from invgnn.audit.report import figures, write_report
from invgnn.audit.report.layout import place
from invgnn.audit.report.page import level, power, render
from invgnn.audit.verdict import floor_bits
from invgnn.audit.verify import verify
from invgnn.errors import ExistingFileError, FileError, ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.secret import Secret
from invgnn.stats import laws
from invgnn.stats.evidence import decode
from invgnn.watermark.mark import Watermark

VOID = {"meta", "br", "img", "hr", "link", "input"}
SECTIONS = [
    "The numbers", "Access levels", "What chance would give", "The bits, carrier by carrier",
    "Some carriers", "Evidence after each edit", "Code between the auditor and the weights",
    "The condition", "Innocent explanations that remain", "What would void it", "Digests and version",
    "How to reproduce this verdict",
]  # fmt: skip
WARNING = "Contains private material: do not publish."


class Page(HTMLParser):
    """Tags, attributes and visible text of a page; unbalanced tags raise."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.texts = [], [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in {"th", "td"}:
            self.words.append(" ")
        if tag not in VOID:
            self.open.append((tag, len(self.words)))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        name, start = self.open.pop()
        assert name == tag, f"<{name}> closed by </{tag}>"
        self.texts.setdefault(tag, []).append(" ".join("".join(self.words[start:]).split()))

    def handle_data(self, data):
        if not any(tag == "style" for tag, _ in self.open):
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def with_attribute(self, name):
        return [(tag, attrs[name]) for tag, attrs in self.tags if name in attrs]


def both_ways(edges):
    return torch.cat([edges, edges.flip(0)], dim=1)


def reference(count=400):
    rng = np.random.default_rng(5)
    for n in rng.integers(14, 34, count):
        tree = [(i, int(rng.integers(i))) for i in range(1, n)]
        chords = [tuple(rng.choice(n, 2, replace=False)) for _ in range(rng.integers(2, n // 2))]
        edges = torch.tensor(np.array(tree + chords).T)
        yield Data(x=torch.ones(int(n), 3), edge_index=both_ways(edges), num_nodes=int(n), y=int(n) % 2)


def suspect(mark, wrong=0, *, seed=0, constant=False):
    """Scores that say all bits but `wrong` right: it knows the secret's order of asking."""
    rng = np.random.default_rng(seed)
    total = mark.m + len(mark.ordinary)
    values = rng.normal(size=total) * 0.2
    sign = 2 * mark.bits - 1
    for bit in (0, 1):  # evenly, so that the median stays between the two groups
        flipped = rng.permutation(np.flatnonzero(mark.bits == bit))[: wrong // 2]
        sign[flipped] *= -1
    values[: mark.m] += 2.0 * sign
    if constant:
        values[:] = 1.0
    order = mark.secret.derive("order", mark.bound).permutation(total)
    scores = torch.tensor(values[order][:, None]) * mark.direction("logits", 2)[None] / 2
    return lambda batch: scores


class Net(torch.nn.Module):
    """A module that says all bits but `wrong` right; its columns may be rolled, and carriers refused."""

    def __init__(self, mark, wrong=0, *, roll=0, refuse=0):
        super().__init__()
        scores = suspect(mark, wrong)(None).clone()
        order = mark.secret.derive("order", mark.bound).permutation(len(scores))
        labels = torch.from_numpy(np.append(np.full(mark.m, -1), mark.labels)[order])
        scores[labels >= 0] += 9.0 * torch.nn.functional.one_hot(labels[labels >= 0], 2)
        scores[torch.from_numpy(order < refuse)] = torch.nan
        self.first = torch.nn.Linear(1, 1)
        self.table = scores.roll(roll, 1)

    def forward(self, x, edge_index, batch):
        return self.table


def drawn(m, key="keyed"):
    secret = Secret(bytes(range(32)))
    return Watermark.draw(secret, DATA, m=m, key=key, access=("logits", "labels"))


DATA = list(reference())


@pytest.fixture(scope="module")
def mark():
    return drawn(128)


@pytest.fixture(scope="module")
def owned(mark):
    controls = [suspect(mark, 64, seed=s) for s in (1, 2)]
    found = verify(suspect(mark, 6), mark, controls=controls, with_answers=True)
    assert found.status == "owned"
    assert found.matches == 122
    return found


@pytest.fixture(scope="module")
def public(owned):
    return replace(owned, answers=None, ordinary=None, bits=None)


@pytest.fixture(scope="module")
def cases(mark, owned, public):
    large, plain = drawn(512), drawn(64, "plain")
    big = verify(suspect(large, 8), large, with_answers=True)
    unmarked = [suspect(plain, 20 + s, seed=s) for s in range(21)]
    rows = [("as released", owned, 0.873), ("unmarked control", public, None)]
    far = {"p": 0.0, "log10_p": -1230.337, "evidence_bits": 4087.19, "matches": 4090, "threshold": 2208}
    return {
        "owned": (owned, {"mark": mark, "rows": rows}),
        "public": (public, {"rows": rows}),
        "not shown": (verify(suspect(mark, 60), mark, with_answers=True, suspects=12), {}),
        "searched": (verify(suspect(mark, 30), mark), {}),
        "constant": (verify(suspect(mark, constant=True), mark, with_answers=True), {}),
        "labels": (verify(suspect(mark, 9), mark, access="labels", with_answers=True), {}),
        "m=512": (big, {"mark": large, "rows": [("as released", big, 0.9)]}),
        "plain": (verify(suspect(plain, 4), plain, alpha=0.1, controls=unmarked), {}),
        "plain, no controls": (verify(suspect(plain, 4), plain), {}),
        "far": (replace(public, m=4096, ones=2048, **far), {"rows": rows}),
        "no threshold": (replace(public, alpha=1e-60, threshold=129), {}),
        "rolled": (verify(Net(mark, 6, roll=1), mark, suspects=3), {}),
        "refused": (verify(Net(mark, 6, refuse=60), mark), {}),
        "claimant": (verify(Net(mark, 2), mark, code_from="claimant"), {}),
    }


CASES = [
    "owned", "public", "not shown", "searched", "constant", "labels", "m=512", "plain",
    "plain, no controls", "far", "no threshold", "rolled", "refused", "claimant",
]  # fmt: skip


@pytest.fixture(scope="module")
def pages(cases):
    return {name: render(verdict, **more) for name, (verdict, more) in cases.items()}


@pytest.mark.parametrize("case", CASES)
def test_page_is_sound_and_asks_for_nothing(pages, case):
    page = Page(pages[case])
    assert not {"script", "link", "iframe", "img", "object", "base", "form"} & {tag for tag, _ in page.tags}
    assert "://" not in pages[case]
    assert "@import" not in pages[case]
    assert re.findall(r"url\((?!#)", pages[case]) == []
    for name in ("href", "xlink:href", "src"):
        assert all(value.startswith("#") for _, value in page.with_attribute(name))
    assert [a for _, attrs in page.tags for a in attrs if a.startswith("on")] == []
    assert [tag for tag, _ in page.tags].count("style") == 1


@pytest.mark.parametrize("case", CASES)
def test_page_can_be_heard(pages, case):
    page = Page(pages[case])
    ids = [value for _, value in page.with_attribute("id")]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for _, value in page.with_attribute("href")]
    targets += [value for _, value in page.with_attribute("aria-labelledby")]
    assert set(targets) <= set(ids)
    for tag, attrs in page.tags:
        if tag == "svg" or attrs.get("role") == "img":
            assert attrs["role"] == "img"
            assert len(attrs["aria-label"]) > 10
        if tag == "th":
            assert attrs["scope"] in {"row", "col"}
    assert page.texts["h1"] == ["Watermark verdict"]
    assert len(page.texts.get("figcaption", [])) == len(page.texts.get("figure", []))


@pytest.mark.parametrize("case", CASES)
def test_every_number_of_the_verdict_is_there(cases, pages, case):
    verdict, _ = cases[case]
    page = Page(pages[case])
    cells = dict(zip(page.texts["th"][:16], page.texts["td"][:16], strict=True))
    starts = {
        "Matches T": f"{verdict.matches} of {verdict.m} ",
        "Threshold τ": f"{verdict.threshold}",
        "WM-ACC": f"{100 * verdict.wm_acc:.1f} %",
        "Answered 1": f"on {verdict.ones} of {verdict.m} carriers",
        "p": power(verdict.log10_p),
        "Level α": level(verdict.alpha),
        "Evidence": f"{floor_bits(verdict.evidence_bits)} bits",
        "Statistic": verdict.statistic,
        "Null": verdict.null,
        "Key": verdict.key,
        "Read at": verdict.access,
        "Columns": "class 0 from column" if verdict.columns else "in their order",
        "Queries": f"{verdict.queries} inputs",
        "Refused": f"{verdict.refused['carriers']} of {verdict.m} carriers" if verdict.refused else "none",
        "Tests": f"{verdict.tests} tests, subtracted from the evidence" if verdict.tests > 1 else "1 test ",
        "Controls": f"{len(verdict.controls) or 'none'} ",
    }
    assert {name: cells[name][: len(start)] for name, start in starts.items()} == starts
    assert all(re.search(rf"\b{control['matches']}\b", cells["Controls"]) for control in verdict.controls)
    told = [verdict.condition, *verdict.explanations, *verdict.reasons, power(verdict.log10_p)]
    told += [*verdict.digests.values(), f"invgnn {verdict.version}", f"Called {verdict.called}"]
    told += [f"{name} {value}" for name, value in verdict.reading.items() if name != "access"]
    told += [f"log₁₀ p = {verdict.log10_p + 0.0:.2f}".replace("-", "−")]
    for words in told:
        assert words in page.text, words


@pytest.mark.parametrize(
    ("case", "heading"),
    [
        ("owned", "✓ Owned"), ("not shown", "○ Not shown"), ("searched", "? Inconclusive"),
        ("constant", "? Inconclusive"), ("plain", "? Inconclusive"),
    ],
)  # fmt: skip
def test_status_is_a_word_and_a_symbol(pages, case, heading):
    assert Page(pages[case]).texts["h2"][0] == heading


@pytest.mark.parametrize("case", CASES)
def test_only_an_owned_verdict_states_that_the_mark_was_embedded(cases, pages, case):
    said = (
        "The mark was embedded in this model or in a model that it descends from" in Page(pages[case]).text
    )
    assert said == (cases[case][0].status == "owned")


def test_sections_are_in_order(pages):
    assert Page(pages["owned"]).texts["h2"][1:] == SECTIONS
    optional = {"Some carriers", "Evidence after each edit"}
    assert Page(pages["searched"]).texts["h2"][1:] == [s for s in SECTIONS if s not in optional]


# --- how the suspect was asked


def test_every_level_is_listed(cases, pages):
    verdict, _ = cases["owned"]
    text = Page(pages["owned"]).text
    for one in verdict.levels:
        used = " used" if one["access"] == verdict.access else ""
        assert (
            f"{one['access']}{used} {one['matches']} / 128 {floor_bits(one['evidence_bits'])} bits" in text
        )
    assert f"logits used {cases['plain'][0].matches} / 64 no exact null" in Page(pages["plain"]).text


def test_a_level_that_could_not_be_read_says_why(public):
    note = "the layer '<b>' was never called"
    levels = ({"access": "embedding", "read": False, "note": note}, *public.levels)
    assert f"embedding not read: {note}" in Page(render(replace(public, levels=levels))).text


def test_suspects_are_told_from_tests(cases, pages):
    assert (
        "3 suspects were tested with this mark, so the verdict is based on 3 times"
        in Page(pages["rolled"]).text
    )
    assert "12 tests, subtracted from the evidence 3 suspects × 4 tests each" in Page(pages["rolled"]).text
    assert "divided by the 3 suspects" in Page(pages["rolled"]).text
    owned, missed = (cases[name][0] for name in ("owned", "not shown"))
    assert owned.tests in {2, 4}  # two levels, and as many again if the columns may be the other way round
    said = f"{owned.tests} tests, subtracted from the evidence 1 suspect × {owned.tests} tests ("
    assert said in Page(pages["owned"]).text
    assert missed.evidence_bits == 0
    assert missed.suspects == 12
    assert missed.tests in {24, 48}
    said = f"{missed.tests} tests, subtracted from the evidence 12 suspects × {missed.tests // 12} tests"
    assert said in Page(pages["not shown"]).text


def test_columns_are_named(cases, pages):
    assert cases["rolled"][0].columns == (1, 0)
    assert "class 0 from column 1, class 1 from column 0" in Page(pages["rolled"]).text
    many = replace(cases["rolled"][0], columns=(*range(1, 40), -1))
    text = Page(render(many)).text
    assert "class 23 from column 24, and 16 more" in text
    assert "class 1 from no column" in Page(render(replace(many, columns=(0, -1)))).text


def test_refusals_are_counted(cases, pages):
    verdict, _ = cases["refused"]
    text = Page(pages["refused"]).text
    assert "60 of 128 carriers, 0 of 64 ordinary inputs" in text
    assert f"at most {power(verdict.refused['log10_p'])} (Fisher" in text


def test_code_between_is_named(cases, pages):
    verdict, _ = cases["claimant"]
    assert verdict.status == "inconclusive"
    text = Page(pages["claimant"]).text
    (one,) = verdict.code["foreign"]
    assert f"Class {one['name']} from the claimant; SHA-256 of the source file: {one['source']}" in text
    assert "cannot be “owned”" in text
    assert "Libraries torch" in text
    assert "Unsaved tensors attribute table" in text
    assert "Anyone who relies on the verdict must read it" in Page(pages["rolled"]).text
    assert "not listed: the suspect is a function" in Page(pages["owned"]).text
    code = {"libraries": ["torch"], "foreign": [], "unsaved": [], "unknown": ["net.a, a Bag"]}
    text = Page(render(replace(verdict, code=code))).text
    assert "Only code of installed libraries ran" in text
    assert "Not covered net.a, a Bag" in text


def test_both_digests_say_what_they_cover(cases, pages):
    verdict, _ = cases["rolled"]
    text = Page(pages["rolled"]).text
    assert verdict.digests["suspect"] != verdict.digests["weights"]
    assert f"Suspect {verdict.digests['suspect']} every tensor" in text
    assert f"Weights {verdict.digests['weights']} the tensors alone" in text


# --- carriers and edits


def test_grid_is_the_key_and_shows_what_was_wrong(mark, owned, pages):
    grid = re.search(r'<div class="bits".*?</div>', pages["owned"], re.DOTALL)[0]
    cells = re.findall(r"<([ib])>(\d)</\1>", grid)
    assert [int(bit) for _, bit in cells] == mark.bits.tolist()
    wrong = [k + 1 for k, (tag, _) in enumerate(cells) if tag == "b"]
    said = decode(owned.answers)
    assert wrong == [k + 1 for k in range(128) if said[k] != mark.bits[k]]
    assert f"Not matched: carriers {', '.join(map(str, wrong))}." in Page(pages["owned"]).text


def test_page_without_answers_says_how_to_get_them(pages):
    assert 'class="bits' not in pages["public"]
    assert "with_answers=True" in Page(pages["public"]).text


def test_page_does_not_hide_a_contradiction(owned, pages):
    flipped = tuple(-answer for answer in owned.answers)
    said = "give 6 matches, not 122: do not rely on this page"
    assert said in Page(render(replace(owned, answers=flipped))).text
    assert not [name for name, text in pages.items() if "do not rely" in text]
    shifted = tuple(answer + 50 for answer in owned.answers)  # the median goes with them
    assert "do not rely" not in render(replace(owned, answers=shifted))


def test_constant_answers_have_no_law_to_draw(pages):
    assert "T = 64 whatever the key" in Page(pages["constant"]).text
    assert "log₁₀ probability" not in pages["constant"]


def test_plain_mark_shows_its_controls_and_not_the_exact_law(pages):
    assert "unmarked models" in pages["plain"]
    assert "The exact distribution" in pages["owned"]
    assert "The exact distribution" not in pages["plain"]
    assert "none was tested" in pages["plain, no controls"]


def test_rows_are_a_table_and_bars_within_the_chart(owned, public):
    weak = replace(public, status="not shown", evidence_bits=3.14)
    text = render(public, rows=[("as released", owned, 0.873), ("8-bit", weak, None)])
    page = Page(text)
    cells = page.texts["td"]
    start = cells.index("✓ owned")
    bits = floor_bits(owned.evidence_bits)
    assert cells[start : start + 4] == ["✓ owned", "122 / 128", bits, "87.3 %"]
    assert cells[start + 4 : start + 8] == ["○ not shown", "122 / 128", "3.1", "not given"]
    widths = [float(w) for w in re.findall(r'<i style="width:([\d.]+)%', text)]
    line = float(re.search(r"--far:([\d.]+)%", text)[1])
    assert widths[0] == pytest.approx(line * owned.evidence_bits / 80, rel=1e-3)
    assert widths[1] == pytest.approx(line * 3.14 / 80, abs=0.01)
    assert max(widths) <= 100


# --- privacy and files


@pytest.mark.parametrize("private", ["mark", "answers"])
def test_private_page_says_so_and_is_yours_alone(tmp_path, mark, owned, public, private):
    args = (owned, None) if private == "answers" else (public, mark)
    path = write_report(tmp_path / "page.html", args[0], mark=args[1])
    assert WARNING in Page(path.read_text()).text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_public_page_has_no_warning_and_no_lock(tmp_path, public):
    before = os.umask(0o022)
    try:
        path = write_report(str(tmp_path / "page.html"), public)
    finally:
        os.umask(before)
    assert WARNING not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_overwriting_a_public_page_with_a_private_one_locks_it(tmp_path, owned, public):
    path = write_report(tmp_path / "page.html", public)
    write_report(path, owned, overwrite=True)
    assert WARNING in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_existing_file_is_kept(tmp_path, public):
    path = tmp_path / "page.html"
    path.write_text("mine")
    with pytest.raises(ExistingFileError):
        write_report(path, public)
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["page.html"]


def test_missing_folder_is_a_clear_error(tmp_path, public):
    with pytest.raises(FileError, match="cannot be written"):
        write_report(tmp_path / "no" / "page.html", public)


def test_mark_of_another_verdict_is_refused(public):
    with pytest.raises(ParameterError, match="not the one"):
        render(public, mark=drawn(16))


def test_hostile_names_are_only_text(tmp_path, public):
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$\\frac$ 漢字 \udcff{{7*7}}"]
    one = {"what": evil[1], "name": evil[0], "origin": evil[1], "source": evil[1]}
    verdict = replace(
        public,
        reading={"access": "logits", "layer": evil[1]},
        reasons=(evil[0],),
        levels=({"access": evil[1], "read": False, "note": evil[0]},),
        code={"libraries": [evil[0]], "foreign": [one], "unsaved": [evil[0]], "unknown": [evil[1]]},
    )
    path = write_report(
        tmp_path / "page.html",
        verdict,
        rows=[(name, public, None) for name in evil],
        title="</title>" + evil[0],
        command=evil[1],
    )
    page = Page(path.read_text(encoding="utf-8"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if "onerror" in attrs]
    assert page.text.count(evil[0]) >= 8
    assert "{{7*7}}" in page.text


def test_command_is_given_word_for_word(public):
    command = 'invgnn verify "my model.pt"  --mark a.mark\n  --alpha 1e-6'
    code = re.search("<pre><code>(.*?)</code>", render(public, command=command), re.DOTALL)[1]
    assert html.unescape(re.sub("</?span>", "", code)) == command


def test_without_a_command_there_is_code_to_run(public, mark):
    code = re.search("<pre><code>(.*?)</code>", render(public), re.DOTALL)[1]
    code = html.unescape(re.sub("</?span>", "", code)).split("\n", 2)[2]
    controls = [suspect(mark, 64, seed=s) for s in (1, 2)]
    known = {"verify": verify, "suspect": suspect(mark, 6), "mark": mark, "controls": controls}
    again = eval(code.removeprefix("print(invgnn.").removesuffix(")"), known)  # noqa: S307
    assert again == public


def test_code_to_run_says_all_that_matters(cases, public):
    def told(verdict):
        return html.unescape(re.sub("<.*?>", "", render(verdict))).partition("verify(suspect, mark, ")[2]

    assert told(cases["rolled"][0]).startswith("alpha=1e-06, suspects=3)")
    assert told(cases["claimant"][0]).startswith("alpha=1e-06, code_from='claimant')")
    assert told(cases["labels"][0]).startswith("alpha=1e-06, access='labels')")
    lean = {"evidence_bits": 1.0, "inputs": 9, "dimension": 8}
    channels = public.channels | {"score_channel": lean}
    both = replace(public, channels=channels, called="through a forward function")
    assert told(both).startswith("alpha=1e-06, data=data, forward=forward, controls=controls)")


# --- figures


@pytest.mark.parametrize(("m", "ones"), [(8, 4), (8, 3), (10, 7), (8, 0)])
def test_law_is_that_of_all_balanced_keys(m, ones):
    said = np.arange(m) < ones
    keys = [np.isin(np.arange(m), k) for k in itertools.combinations(range(m), m // 2)]
    found = np.array([int((said == key).sum()) for key in keys])
    counts, heights = figures.matches_law(m, ones)
    assert counts.tolist() == sorted(set(found.tolist()))
    assert 10**heights == pytest.approx([np.mean(found == t) for t in counts])


def test_law_has_the_tail_of_the_verdict():
    counts, heights = figures.matches_law(128, 61)
    tail = math.log(sum(10 ** heights[counts >= 101]))
    assert tail == pytest.approx(laws.log_p_matches(101, 128, 61), rel=1e-9)


def test_figures_are_small_and_the_same_under_any_settings(monkeypatch, cases, pages):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it would now raise
    verdict, more = cases["m=512"]
    odd = {"xtick.direction": "in", "svg.fonttype": "path", "axes.xmargin": 0.4, "lines.marker": "s"}
    with matplotlib.rc_context(odd):
        before = matplotlib.rcParams.copy()
        assert render(verdict, **more) == pages["m=512"]
        assert matplotlib.rcParams.copy() == before
    sizes = [len(svg) for svg in re.findall("<svg.*?</svg>", pages["m=512"], re.DOTALL)]
    assert len(sizes) == 3
    assert max(sizes) < 60_000


def test_law_is_marked_where_t_and_tau_are(public):
    svg = figures.draw_law(public)
    assert {">T = 122<", f">τ = {public.threshold}<"} <= set(re.findall(r">[Tτ] = \d+<", svg))
    assert "τ" not in figures.draw_law(replace(public, threshold=129))


def test_answers_show_each_carrier_once(owned):
    answers, bits = np.array(owned.answers), np.array(owned.bits)
    right = (answers > np.median(answers)) == bits
    svg = figures.draw_answers(answers, bits, right, 0.0, True)
    uses = re.findall("<use .*?/>", svg)
    assert sum("fill: var(--ink)" in use for use in uses) == 122
    assert sum("stroke: var(--wrong)" in use for use in uses) == 6


def test_carriers_too_large_to_read_are_not_drawn():
    path = [
        Data(edge_index=both_ways(torch.tensor([range(n - 1), range(1, n)])), num_nodes=n)
        for n in (figures.LARGEST + 1, 5, 6)
    ]
    svg, chosen = figures.draw_carriers(Graphs.from_data(path), np.array([0, 1, 0]))
    assert chosen == [1, 2]
    assert {"2: bit 1", "3: bit 0"} == set(re.findall(r">(\d: bit \d)<", svg))


def graph(*edges):
    nodes = 1 + max(itertools.chain.from_iterable(edges), default=0)
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return Graphs.from_data([Data(edge_index=both_ways(index), num_nodes=nodes)])


def test_layout_keeps_hops():
    at = place(graph((0, 1), (1, 2), (2, 3), (3, 4)))
    apart = np.linalg.norm(at[:, None] - at[None], axis=2)
    hops = np.abs(np.subtract.outer(range(5), range(5)))
    assert apart == pytest.approx(hops, abs=0.05)


@pytest.mark.parametrize("drawing", [graph(), graph(*((0, k) for k in range(1, 9))), graph((0, 1), (2, 3))])
def test_layout_parts_all_nodes(drawing):
    at = place(drawing)
    assert at.shape == (drawing.num_nodes, 2)
    assert np.isfinite(at).all()
    apart = np.linalg.norm(at[:, None] - at[None], axis=2) + 9 * np.eye(len(at))
    assert apart.min() > 0.5


# --- numbers


@pytest.mark.parametrize(
    ("log10", "text"),
    [
        (0.0, "1"), (math.log10(0.05), "0.05"), (math.log10(0.01234), "0.0124"), (-6.0, "10⁻⁶"),
        (math.log10(1.004e-6), "1.01 × 10⁻⁶"), (math.log10(9.999e-7), "10⁻⁶"),
        (-28.15, "7.08 × 10⁻²⁹"), (-1230.337, "4.61 × 10⁻¹²³¹"), (-math.inf, "0"),
    ],
)  # fmt: skip
def test_probabilities_are_rounded_up(log10, text):
    assert power(log10) == text


@pytest.mark.parametrize(("alpha", "text"), [(1e-6, "10⁻⁶"), (1.234e-8, "1.234 × 10⁻⁸"), (0.05, "0.05")])
def test_level_is_as_given(alpha, text):
    assert level(alpha) == text


@pytest.mark.parametrize(("bits", "text"), [(79.97, "79.9"), (80.0, "80.0"), (0.0, "0.0"), (math.inf, "∞")])
def test_evidence_is_rounded_down(bits, text):
    assert floor_bits(bits) == text


# --- a browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PROBE = """<!DOCTYPE html><iframe width=360 height=600 style="border:0" srcdoc="{}"></iframe><script>
onload = () => {{ const d = document.querySelector("iframe").contentDocument.documentElement;
document.title = "width " + d.scrollWidth + " of " + d.clientWidth; }}</script>"""


@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: `apt-get install chromium`, or what your system calls it"
)
def test_page_fits_a_phone(tmp_path, cases):
    verdict, more = cases["owned"]
    long = "x" * 200
    one = {"what": "class", "name": long, "origin": "claimant", "source": "f" * 64}
    verdict = replace(
        verdict,
        reasons=(long,),
        reading={"access": "logits", "layer": long},
        access="perception",
        levels=(
            {"access": "embedding", "read": False, "note": long},
            {"access": "perception", "read": True, "matches": 40_964, "evidence_bits": 4087.19},
        ),
        columns=tuple(range(1, 30)),
        code={"libraries": [long], "foreign": [one], "unsaved": [long], "unknown": [long]},
        digests=dict.fromkeys(("mark", "reference", "suspect", "weights"), "f" * 64),
    )
    rows = [*more["rows"], (long, verdict, 0.5)]
    text = render(replace(verdict, digests=verdict.digests | {"mark": more["mark"].digest}),
                  mark=more["mark"], rows=rows, title=long, command=long)  # fmt: skip
    (tmp_path / "probe.html").write_text(PROBE.format(html.escape(text)))
    run = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", f"--user-data-dir={tmp_path / 'user'}", "--dump-dom",
        (tmp_path / "probe.html").as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stdout
    width, of = map(int, re.search(r"<title>width (\d+) of (\d+)", dom).groups())
    assert of > 330  # the scroll bar takes some of the 360
    assert width <= of
