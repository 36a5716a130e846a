"""invgnn threshold: plan how many carriers to use, and how many bits must match."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from invgnn.cli.console import fold, verb
from invgnn.cli.options import Alpha, Json, M
from invgnn.errors import ParameterError

EXAMPLES = """\b
Examples:
  invgnn threshold
  invgnn threshold --m 64 --alpha 1e-6 --null paper
"""
ACCURACIES = (0.7, 0.8, 0.9, 0.95)
PLAIN = (
    "The bits of a plain key are a public function of the carriers; only a comparison with unmarked models "
    "is valid."
)


@verb
def threshold(
    m: M = 128,
    alpha: Alpha = 1e-6,
    null: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Null distribution: exact, binomial (independent bits), hoeffding (the paper's bound, "
            "corrected) or paper (the paper's bound as printed, unsound).",
        ),
    ] = "exact",
    rho0: Annotated[
        float, typer.Option(metavar="RHO", help="Correlation of carriers, for hoeffding and paper.")
    ] = 7.6e-4,
    key: Annotated[str, typer.Option(metavar="NAME", help="Key of the mark: keyed or plain.")] = "keyed",
    json_: Json = False,
) -> Any:
    """Plan how many carriers to use, and how many bits must match.

    Prints the threshold for the number of matches that the chosen null requires, and its true
    false-positive rate: how often an unrelated model reaches the threshold with a keyed mark, whatever the
    null claims. Then prints the power: the probability that your own model reaches the threshold if each
    bit matches with the given probability.

    This plan counts matches alone. verify also uses the ranks of the answers, and it requires 80 bits of
    evidence for the verdict owned.
    """
    from invgnn.stats import null as nulls

    made = {"hoeffding": nulls.hoeffding, "paper": nulls.paper}
    if null not in nulls.NULLS:
        raise ParameterError(f"there is no null {null!r}", f"choose one of {', '.join(nulls.NULLS)}")
    if key not in {"keyed", "plain"}:
        raise ParameterError(f"there is no key {key!r}", "choose keyed or plain")
    if not 0 <= rho0 <= 1:
        raise ParameterError(f"rho0 must be from 0 to 1, not {rho0}", "give a correlation, e.g. 0.00076")
    law = made[null](rho0) if null in made else nulls.NULLS[null]
    tau = law.threshold(m, alpha)

    def smallest(accuracy: float) -> int | None:
        try:
            return nulls.smallest_m(alpha, accuracy, null=law)
        except ParameterError:  # outside the range that is searched
            return None

    record = {
        "m": m,
        "alpha": alpha,
        "null": null,
        "rho0": rho0 if null in made else None,
        "threshold": tau,
        "reachable": tau <= m,
        "true_alpha": law.true_alpha(m, tau),
        "key": key,
        "valid": law.valid_for_balanced and key == "keyed",
        "caveat": law.caveat if key == "keyed" else PLAIN,
        "power": {f"{a:g}": nulls.power(m, tau, a) for a in ACCURACIES},
        "smallest_m": {f"{a:g}": smallest(a) for a in ACCURACIES},
    }
    return record, _words(record), 0


def _words(record: dict[str, Any]) -> str:
    """Return the plan as text."""
    m, tau = record["m"], record["threshold"]
    asked = f"{tau} of {m} bits must match" if tau <= m else f"even {m} of {m} matching bits are not enough"
    valid = "valid" if record["valid"] else "NOT VALID"
    lines = [
        f"{asked} at alpha {record['alpha']:g}, null {record['null']}",
        f"true false-positive rate: {record['true_alpha']:.3g}",
        fold(f"{valid} for key {record['key']}: {record['caveat']}", 2),
        "",
        "bits that match    power    smallest m for power 0.99",
    ]
    for accuracy, power in record["power"].items():
        lines.append(f"{float(accuracy):>15.0%}   {power:>6.3f}    {record['smallest_m'][accuracy] or '-'}")
    return "\n".join(lines)
