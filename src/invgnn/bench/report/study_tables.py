"""The tables of ablations, uniqueness, sensitivity, refresh and forgers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from invgnn.bench.grids.store import Row
from invgnn.bench.report.cells import SEEDS, interval_cell
from invgnn.bench.report.evidence import Cell, Evidence, numbers
from invgnn.bench.report.table import Table
from invgnn.bench.trials.sensitivity import BANDS
from invgnn.theory.intervals import bound_share


def variant_table(evidence: Evidence) -> Table:
    """Return the ablations.

    Args:
        evidence: The rows.
    """
    rows = []
    for scheme in evidence.values("variant", "scheme"):
        for variant in evidence.values("variant", "variant"):
            found = evidence.find("variant", scheme=scheme, variant=variant)
            if not found:
                continue
            t, bits = numbers(found, "matches"), numbers(found, "bits")
            margins = numbers(found, "margin").values()
            rows.append(
                [
                    *map(Cell, (scheme, variant)),
                    evidence.cell(str(len(found)), found, len(found)),
                    interval_cell(evidence, found, list(numbers(found, "test_accuracy").values())),
                    interval_cell(evidence, found, list(numbers(found, "share").values())),
                    evidence.cell(f"{mean(t.values()):.1f}", found, mean(t.values())),
                    evidence.cell(found[0].get("tau"), found, float(found[0].get("tau"))),
                    evidence.cell(f"{median(bits.values()):.1f}", found, median(bits.values())),
                    evidence.cell(f"{mean(margins):.3f}" if margins else "", found),
                ]
            )
    about = (
        f"{SEEDS} *τ*: exact threshold for α = 10⁻⁶. *Margin*: least distance of an answer from one half."
    )
    head = ("scheme", "changed", "seeds", "task accuracy, %", "WM-ACC, %", "T", "τ", "bits", "margin")
    return Table("variants", "Ablations", about, head, rows)


def forgery_table(evidence: Evidence) -> Table:
    """Return what forgers reach.

    Args:
        evidence: The rows.
    """
    rows = []
    for scheme in evidence.values("forgery", "scheme"):
        for forgery in evidence.values("forgery", "forgery"):
            found = evidence.find("forgery", scheme=scheme, forgery=forgery)
            if not found:
                continue
            naive, real = ([float(row.get(name)) for row in found] for name in ("naive_bits", "bits"))
            passes, wins = (sum(int(row.get(n)) for row in found) for n in ("naive_passes", "succeeds"))
            refusal = next((row.get("refused") for row in found if row.get("refused")), "")
            rows.append(
                [
                    *map(Cell, (scheme, forgery)),
                    evidence.cell(f"{passes} of {len(found)}", found, passes),
                    evidence.cell(f"{max(naive):.1f}", found, max(naive)),
                    evidence.cell(f"{wins} of {len(found)}", found, wins),
                    evidence.cell("refused" if refusal else f"{max(real):.1f}", found, max(real)),
                ]
            )
    about = (
        "Claims on models that were never marked. *Naive*: the check that the forger wants to be made, and "
        "its largest evidence. *Accepted*: by the scheme's own rules at 10⁻⁶, all tries paid for."
    )
    head = ("scheme", "forgery", "passes the naive check", "naive bits", "accepted", "bits")
    return Table("forgeries", "Forgeries", about, head, rows)


def refresh_table(evidence: Evidence) -> Table:
    """Return what the owner's refresh gives.

    Args:
        evidence: The rows.
    """
    rows = []
    for setting in evidence.values("refresh", "setting"):
        for scheme in evidence.values("refresh", "scheme"):
            found = evidence.find("refresh", setting=setting, scheme=scheme)
            if not found:
                continue
            before, after = (
                list(numbers(found, name).values()) for name in ("accuracy_before", "accuracy")
            )
            was, bits = (list(numbers(found, name).values()) for name in ("bits_before", "bits"))
            right = list(numbers(found, "share").values())
            rows.append(
                [
                    *map(Cell, (setting, scheme)),
                    *(interval_cell(evidence, found, part) for part in (before, after, right)),
                    evidence.cell(f"{median(was):.1f} → {median(bits):.1f}", found, median(bits)),
                ]
            )
    about = (
        f"{SEEDS} The owner distils the marked model into a fresh one and embeds the mark again (the "
        "paper's KD+WM)."
    )
    head = ("setting", "scheme", "accuracy before, %", "after, %", "WM-ACC after, %", "bits before → after")
    return Table("refresh", "The owner's refresh", about, head, rows)


def uniqueness_table(evidence: Evidence) -> Table:
    """Return the owner's score beside those of strangers.

    Args:
        evidence: The rows.
    """
    rows = []
    for setting in evidence.values("uniqueness", "setting"):
        for scheme in evidence.values("uniqueness", "scheme"):
            found = evidence.find("uniqueness", setting=setting, scheme=scheme)
            if not found:
                continue
            t, tau = list(numbers(found, "matches").values()), float(found[0].get("tau"))
            total = sum(int(row.get("owners")) for row in found)
            passing = sum(int(row.get("others_pass")) for row in found)
            most = max(numbers(found, "others_most").values())
            rows.append(
                [
                    *map(Cell, (setting, scheme)),
                    evidence.cell(f"{mean(t):.1f}", found, mean(t)),
                    evidence.cell(f"{tau:.0f}", found, tau),
                    evidence.cell(f"{mean(t) - tau:+.1f}", found, mean(t) - tau),
                    *(
                        evidence.cell(measured_alpha(found, kind), found, _share(found, kind))
                        for kind in ("innocent", "marked")
                    ),
                    evidence.cell(
                        f"{mean(numbers(found, 'others_mean').values()):.1f} ({most:.0f})", found, most
                    ),
                    evidence.cell(f"{passing} of {total}", found, passing),
                ]
            )
    about = (
        "*T*: the owner's matches, mean over seeds. *τ*: exact threshold for 10⁻⁶. *Measured α*: share of "
        "drawn keys of strangers that reach τ, and its upper 95 % limit (Clopper-Pearson): in unmarked "
        "models, and in the marked one. *Others' T*: matches of other owners, who never touched the model, "
        "on their own carriers: mean (most)."
    )
    head = ("setting", "scheme", "T", "τ", "gap", "measured α, unmarked", "measured α, marked")
    return Table("uniqueness", "Uniqueness", about, (*head, "others' T (most)", "others at τ"), rows)


def measured_alpha(rows: Sequence[Row], kind: str) -> str:
    """Return how many strangers reach the threshold, as a share with its upper limit.

    Args:
        rows: Rows of one setting and scheme.
        kind: "innocent" for unmarked models, "marked" for the marked one.
    """
    hits, draws = (sum(int(row.get(name)) for row in rows) for name in (f"{kind}_hits", "draws"))
    limit = bound_share(hits, draws).upper
    return f"{hits / draws:.1e} (≤ {limit:.1e})" if hits else f"0 of {draws:.0e} (≤ {limit:.1e})"


def _share(rows: Sequence[Row], kind: str) -> float:
    """Return the share of strangers that reach the threshold."""
    hits, draws = (sum(int(row.get(name)) for row in rows) for name in (f"{kind}_hits", "draws"))
    return hits / draws


def sensitivity_table(evidence: Evidence) -> Table:
    """Return what is read on carriers whose invariant changed, by band.

    Args:
        evidence: The rows.
    """
    rows = []
    for setting in evidence.values("sensitivity", "setting"):
        for scheme in evidence.values("sensitivity", "scheme"):
            for level in evidence.values("sensitivity", "level"):
                found = evidence.find("sensitivity", setting=setting, scheme=scheme, level=level)
                if not found:
                    continue
                change = mean(numbers(found, "change").values())
                cells = []
                for band in BANDS:
                    count, right = (
                        sum(int(row.get(f"{band}_{name}")) for row in found) for name in ("count", "right")
                    )
                    share = right / count if count else None
                    shown = "–" if share is None else f"{100 * share:.0f} ({count})"
                    cells.append(evidence.cell(shown, found, share))
                rows.append(
                    [
                        *map(Cell, (setting, scheme)),
                        evidence.cell(level, found, float(level.rstrip("%"))),
                        evidence.cell(f"{change:.2f}", found, change),
                        interval_cell(evidence, found, list(numbers(found, "share").values())),
                        *cells,
                    ]
                )
    about = (
        "Edges are removed from carriers whose invariant is above one half and added to the others; the "
        "bits stay. *Change*: mean change of the normalised invariant. Right answers in % (carriers) where "
        "it changes by 0.1 at most (*preserved*), by more on the same side of one half (*marginal*), and "
        "crosses it (*broken*)."
    )
    head = ("setting", "scheme", "edges changed", "change", "WM-ACC, %", *BANDS)
    return Table("sensitivity", "Sensitivity to the invariant", about, head, rows)


def search_table(evidence: Evidence) -> Table:
    """Return what forgers reach who search for carriers.

    Args:
        evidence: The rows.
    """
    rows = []
    for setting in evidence.values("search", "setting"):
        for search in evidence.values("search", "search"):
            found = evidence.find("search", setting=setting, search=search)
            if not found:
                continue
            audits = [int(row.get("after").split()[-1]) for row in found]
            naive, real = (
                [float(row.get(name).split()[-1]) for row in found] for name in ("naive_bits", "bits")
            )
            firsts = [first_pass(row) for row in found]
            passed = [one for one in firsts if one is not None]
            rows.append(
                [
                    *map(Cell, (setting, search)),
                    evidence.cell(f"{len(found)}", found, len(found)),
                    evidence.cell(f"{max(audits):,}", found, max(audits)),
                    evidence.cell(f"{len(passed)} of {len(found)}", found, len(passed)),
                    evidence.cell(
                        f"{median(passed):,.0f}" if passed else "–",
                        found,
                        median(passed) if passed else None,
                    ),
                    evidence.cell(f"{median(naive):.1f}", found, median(naive)),
                    evidence.cell(f"{median(real):.1f} ({max(real):.1f})", found, max(real)),
                ]
            )
    about = (
        "A forger submits sets of carriers to an unmarked model and sees the matches. *Passes*: seeds on "
        "which the naive check of the paper's bits passes at 10⁻⁶, and after how many audits at the "
        "latest. *Keyed*: the best evidence against keyed bits, median (most); the number of audits is not "
        "subtracted."
    )
    head = ("setting", "search", "seeds", "audits", "passes", "after", "naive bits", "keyed bits (most)")
    return Table("searches", "Forgers who search", about, head, rows)


def first_pass(row: Row) -> int | None:
    """Return the first checkpoint of a search at which the naive check passes; None if it never does.

    Args:
        row: A row of a search.
    """
    pairs = zip(row.get("after").split(), row.get("naive_passes").split(), strict=True)
    return next((int(audits) for audits, passes in pairs if passes == "1"), None)
