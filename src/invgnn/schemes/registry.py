"""The schemes of the comparison, schemes of plug-ins, and selection by name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from invgnn.errors import ParameterError, SchemeError
from invgnn.schemes.backdoor import NAT
from invgnn.schemes.cosine import COS
from invgnn.schemes.edge_signs import WGLE
from invgnn.schemes.explanations import EXPL
from invgnn.schemes.keyed import Keyed
from invgnn.schemes.published import Published, literal
from invgnn.schemes.random_graphs import TRIG
from invgnn.schemes.scheme import Scheme
from invgnn.schemes.ss import SS

GROUP = "invgnn.schemes"


def suite() -> list[Scheme]:
    """Return the schemes of the comparison, in the order of the tables, with their tuned settings."""
    return [SS(), COS(), TRIG(), NAT(), EXPL(), WGLE(), literal(), Published("InvGNN-WM (best)"), Keyed()]


def find_schemes() -> list[Scheme]:
    """Return the suite, then the schemes that installed packages provide, sorted by name.

    Packages provide schemes as entry points of the group `invgnn.schemes`. An entry point is a scheme, or a
    callable without arguments that returns one or several.

    Raises:
        SchemeError: If a plug-in fails, returns something else, or uses the name of another scheme.
    """
    found = suite()
    for plugin in sorted(entry_points(group=GROUP), key=lambda plugin: plugin.name):
        for scheme in _offered(plugin):
            if scheme.name.lower() in {other.name.lower() for other in found}:
                raise _broken(plugin, f"there is another scheme named {scheme.name}", "choose another name")
            found.append(scheme)
    return found


def pick_schemes(names: str) -> list[Scheme]:
    """Return the schemes with these names, in the order of the tables.

    Args:
        names: "all", or names separated by commas. The beginning of a name is enough; capitals do not
            matter.

    Raises:
        ParameterError: If a name fits no scheme.
    """
    every = find_schemes()
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    if wanted == ["all"]:
        return every
    for name in wanted:
        if not any(scheme.name.lower().startswith(name) for scheme in every):
            raise ParameterError(f"there is no scheme named {name!r}", _advice(name, every))
    if not wanted:
        raise ParameterError("no scheme was named", _advice("", every))
    return [scheme for scheme in every if scheme.name.lower().startswith(tuple(wanted))]


def _advice(name: str, every: Sequence[Scheme]) -> str:
    """Return names that are close to this one, or all of them."""
    known = {scheme.name.lower(): scheme.name for scheme in every}
    near = get_close_matches(name, known, n=2, cutoff=0.4)
    if near:
        return f"did you mean {' or '.join(known[one] for one in near)}?"
    return f"choose among {', '.join(known.values())}, or write all"


def _offered(plugin: EntryPoint) -> list[Scheme]:
    """Return the schemes of one plug-in."""
    try:
        value: Any = plugin.load()
        made = value if isinstance(value, Scheme) else value()
        schemes: list[Any] = [made] if isinstance(made, Scheme) else list(made)
    except Exception as error:  # third-party code may raise anything
        what = f"it fails with {type(error).__name__}: {error}"
        raise _broken(plugin, what, "update it, or uninstall the package") from error
    strange = [type(scheme).__name__ for scheme in schemes if not isinstance(scheme, Scheme)]
    if strange:
        what = f"it returns a {strange[0]}, not a Scheme"
        raise _broken(plugin, what, "derive it from invgnn.schemes.Scheme")
    return schemes


def _broken(plugin: EntryPoint, what: str, advice: str) -> SchemeError:
    """Return the error for a plug-in that cannot be used."""
    return SchemeError(
        f"the plug-in {plugin.name} = {plugin.value} cannot be used: {what}",
        f"{advice}; its author can test it with invgnn.testing.check_scheme",
    )
