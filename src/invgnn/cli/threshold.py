"""invgnn threshold: plan how many bits, and how many of them must match."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, verb
from invgnn.errors import ParameterError

ACCURACIES = (0.7, 0.8, 0.9, 0.95)


@verb
def threshold(
    m: Annotated[int, typer.Option(help="How many carriers.")] = 128,
    alpha: Annotated[float, typer.Option(help="False-positive rate you accept.")] = 1e-6,
    null: Annotated[
        str, typer.Option(help="exact, binomial, hoeffding (corrected) or paper (literal, unsound).")
    ] = "exact",
    rho0: Annotated[float, typer.Option(help="Mixing estimate of hoeffding and paper.")] = 7.6e-4,
    key: Annotated[str, typer.Option(help="keyed or plain: the key in use.")] = "keyed",
    json_: Json = False,
) -> Any:
    """How many of m bits must match for a false-positive rate of alpha, and what power that leaves.

    `tau` is the threshold of the chosen null. `true_alpha` is how often an unrelated model reaches it when
    the key is balanced and drawn from the secret, whatever the null claims.

    Example: `invgnn threshold --m 128 --alpha 1e-6 --null exact`
    """
    from invgnn import null as nulls

    made = {"hoeffding": nulls.hoeffding, "paper": nulls.paper}
    if null not in nulls.NULLS:
        raise ParameterError(f"unknown null {null!r}", f"choose one of {', '.join(nulls.NULLS)}")
    if key not in {"keyed", "plain"}:
        raise ParameterError(f"unknown key {key!r}", "choose 'keyed' or 'plain'")
    law = made[null](rho0) if null in made else nulls.NULLS[null]
    tau = law.tau(m, alpha)
    valid = law.valid_for_balanced and key == "keyed"
    record = {
        "m": m,
        "alpha": alpha,
        "null": null,
        "tau": tau,
        "true_alpha": law.true_alpha(m, tau),
        "key": key,
        "valid": valid,
        "caveat": law.caveat if key == "keyed" else PLAIN,
        "power": {f"{a:g}": nulls.power(m, tau, a) for a in ACCURACIES},
        "smallest_m": {f"{a:g}": nulls.smallest_m(alpha, a, null=law) for a in ACCURACIES},
    }
    if null in made:
        record["rho0"] = rho0
    return record, _words(record), 0


PLAIN = "The bits of a plain key are a public function of the carriers: only the `models` null applies."


def _words(record: dict[str, Any]) -> str:
    lines = [
        f"{record['tau']} of {record['m']} bits must match at alpha {record['alpha']:g}, null {record['null']}",
        f"true false-positive rate: {record['true_alpha']:.3g}",
        f"{'valid' if record['valid'] else 'NOT VALID'} for a {record['key']} key: {record['caveat']}",
        "",
        "bits read right    power    smallest m for power 0.99",
    ]
    for accuracy, power in record["power"].items():
        lines.append(f"{float(accuracy):>15.0%}   {power:>6.3f}    {record['smallest_m'][accuracy]}")
    return "\n".join(lines)
