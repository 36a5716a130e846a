"""invgnn threshold: plan how many bits, and how many of them must match."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, fold, verb
from invgnn.errors import ParameterError

EXAMPLES = """\b
Examples:
  invgnn threshold
  invgnn threshold --m 64 --alpha 1e-6 --null paper
"""
ACCURACIES = (0.7, 0.8, 0.9, 0.95)
PLAIN = "The bits of a plain key are a public function of the carriers: only unmarked models tell chance."


@verb
def threshold(
    m: Annotated[int, typer.Option(metavar="N", help="How many carriers, one bit each; even.")] = 128,
    alpha: Annotated[
        float, typer.Option(metavar="RATE", help="The false-positive rate you accept.")
    ] = 1e-6,
    null: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The law of chance: exact, binomial (independent bits), hoeffding (the paper's, "
            "corrected) or paper (literal, unsound).",
        ),
    ] = "exact",
    rho0: Annotated[
        float, typer.Option(metavar="RHO", help="Of hoeffding and paper: correlation of carriers.")
    ] = 7.6e-4,
    key: Annotated[
        str, typer.Option(metavar="NAME", help="The key the mark uses, keyed or plain.")
    ] = "keyed",
    json_: Json = False,
) -> Any:
    """Plan how many bits, and how many of them must match.

    tau is the threshold that the chosen null asks for. The true rate is how often an unrelated model
    reaches it with a keyed mark, whatever the null claims. Power is the chance that your own model
    reaches it if each bit is read right with the given probability.

    This plans for counting matches alone. verify weighs the size of the answers too, and asks for 80
    bits of evidence before it says owned.
    """
    from invgnn.stats import null as nulls

    made = {"hoeffding": nulls.hoeffding, "paper": nulls.paper}
    if null not in nulls.NULLS:
        raise ParameterError(f"unknown null {null!r}", f"choose one of {', '.join(nulls.NULLS)}")
    if key not in {"keyed", "plain"}:
        raise ParameterError(f"unknown key {key!r}", "choose keyed or plain")
    if not 0 <= rho0 <= 1:
        raise ParameterError(f"rho0 is {rho0}", "give a correlation from 0 to 1")
    law = made[null](rho0) if null in made else nulls.NULLS[null]
    tau = law.threshold(m, alpha)

    def smallest(accuracy: float) -> int | None:
        try:
            return nulls.smallest_m(alpha, accuracy, null=law)
        except ParameterError:  # beyond the range that is searched
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
    m, tau = record["m"], record["threshold"]
    asked = f"{tau} of {m} bits must match" if tau <= m else f"even {m} of {m} matching bits are not enough"
    valid = "valid" if record["valid"] else "NOT VALID"
    lines = [
        f"{asked} at alpha {record['alpha']:g}, null {record['null']}",
        f"true false-positive rate: {record['true_alpha']:.3g}",
        fold(f"{valid} for key {record['key']}: {record['caveat']}", 2),
        "",
        "bits read right    power    smallest m for power 0.99",
    ]
    for accuracy, power in record["power"].items():
        lines.append(f"{float(accuracy):>15.0%}   {power:>6.3f}    {record['smallest_m'][accuracy] or '-'}")
    return "\n".join(lines)
