"""A grid of trials, read from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from invgnn.bench.grids.identity import Planned
from invgnn.bench.trials.measures import Measure, find_measure, identified
from invgnn.bench.trials.objects import changes, schemes
from invgnn.bench.trials.searches import SEARCHES
from invgnn.bench.trials.sensitivity import share_of
from invgnn.bench.trials.thieves import THIEVES
from invgnn.errors import FileError, ParameterError
from invgnn.training.tasks import parse_setting

LISTS = {
    "settings": "setting",
    "seeds": "seed",
    "schemes": "scheme",
    "changes": "change",
    "thieves": "thief",
    "variants": "variant",
    "forgeries": "forgery",
    "levels": "level",
    "searches": "search",
}
"""Keys of a part that hold lists, and the argument of a trial that each gives values to."""
NUMBERS = {"epochs": 100, "controls": 19, "audits": 1000}
"""Keys of a part that hold one number, with their defaults."""


@dataclass(frozen=True)
class Difference:
    """Hyperparameters of a scheme that differ between data sets, written down with the reason.

    Attributes:
        scheme: Name of the scheme.
        field: The setting, such as `access` or `recipe.beta`.
        why: The reason.
    """

    scheme: str
    field: str
    why: str


@dataclass(frozen=True)
class Part:
    """A product of lists: one kind of trial for every combination.

    Attributes:
        measure: The kind of trial.
        values: The values of every argument, in the order of the measure.
    """

    measure: Measure
    values: Mapping[str, tuple[Any, ...]]

    def trials(self, seed: Any) -> list[dict[str, Any]]:
        """Return the arguments of all trials with a seed.

        Args:
            seed: The seed.
        """
        if seed not in self.values["seed"]:
            return []
        lists = [[seed] if name == "seed" else self.values[name] for name in self.measure.arguments]
        return [dict(zip(self.measure.arguments, one, strict=True)) for one in product(*lists)]


@dataclass(frozen=True)
class Grid:
    """A grid of trials.

    Attributes:
        name: Name of the file, without its suffix.
        path: The file, as it was named.
        about: What the grid is for.
        parts: Its parts.
        differences: Hyperparameters that differ between data sets.
    """

    name: str
    path: Path
    about: str
    parts: tuple[Part, ...]
    differences: tuple[Difference, ...] = ()

    def trials(self) -> list[tuple[Measure, dict[str, Any]]]:
        """Return the kind and the arguments of every trial, each once.

        Seeds come in turn, so that an unfinished run is balanced.
        """
        seeds = dict.fromkeys(seed for part in self.parts for seed in part.values["seed"])
        found: dict[str, tuple[Measure, dict[str, Any]]] = {}
        for seed in seeds:
            for part in self.parts:
                for arguments in part.trials(seed):
                    found.setdefault(f"{part.measure.name} {arguments}", (part.measure, arguments))
        return list(found.values())

    def planned(self) -> list[Planned]:
        """Return every trial with what identifies its row: settings, code and command."""
        found, known = [], dict[str, tuple[Any, str]]()
        for measure, arguments in self.trials():
            key = " ".join(f"{arguments.get(name)}" for name in ("scheme", "change", "forgery"))
            key = f"{measure.name} {key}"
            if key not in known:
                known[key] = identified(measure.name, arguments)
            settings, code = known[key]
            found.append(
                Planned(
                    measure.name, arguments, settings, code, command(self.path, measure.name, arguments)
                )
            )
        return found


def command(path: Path, measure: str, arguments: Mapping[str, Any]) -> str:
    """Return the command that repeats one trial.

    Args:
        path: The grid.
        measure: Name of the kind of trial.
        arguments: The arguments of the trial.
    """
    chosen = [f"measure={measure}", *(f"{n}={v}" for n, v in arguments.items() if n not in NUMBERS)]
    return f'invgnn bench run {path} --again --only "{"; ".join(chosen)}"'


def load_grid(path: str | Path) -> Grid:
    """Read a grid.

    Args:
        path: A TOML file with a list `part`, and keys that hold for all parts.

    Raises:
        FileError: If the file cannot be read as TOML.
        ParameterError: If a key or a name in it is unknown.
    """
    path = Path(path)
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        advice = "pass a grid such as benchmarks/grids/smoke.toml"
        raise FileError(f"{path} cannot be read as a grid: {error}", advice) from error
    parts, differs = read.pop("part", []), read.pop("differs", [])
    about = read.pop("about", "")
    if not isinstance(parts, list) or not parts or not all(isinstance(one, dict) for one in parts):
        raise ParameterError(f"{path} has no part", "add at least one table [[part]] with a measure")
    made = tuple(_part(path, {**read, **one}, set(one)) for one in parts)
    return Grid(path.stem, path, str(about), made, tuple(_difference(path, one) for one in differs))


def _part(path: Path, given: dict[str, Any], own: set[str]) -> Part:
    """Return one part; keys that hold for all parts may be of no use to it."""
    measure = find_measure(str(given.pop("measure", "")))
    usable = {key: name for key, name in LISTS.items() if name in measure.arguments}
    numbers = {name for name in NUMBERS if name in measure.arguments}
    known = LISTS.keys() | NUMBERS.keys()
    strange = [key for key in given if key not in (usable.keys() | numbers if key in own else known)]
    lacking = [key for key in usable if not given.get(key)]
    if strange or lacking:
        what = f"the key {strange[0]!r}" if strange else f"no key {lacking[0]!r}"
        allowed = ", ".join([*usable, *sorted(numbers)])
        raise ParameterError(f"{path}: a part {measure.name!r} has {what}", f"its keys are {allowed}")
    values: dict[str, tuple[Any, ...]] = {name: _listed(key, given[key]) for key, name in usable.items()}
    values |= {name: (_number(name, given.get(name, NUMBERS[name])),) for name in numbers}
    return Part(measure, values)


def _listed(key: str, given: Any) -> tuple[Any, ...]:
    """Return the values of a list; "all" stands for all schemes, or for all edits and attacks."""
    every: dict[str, Callable[[], Iterable[str]]] = {"schemes": schemes, "changes": changes}
    if given == "all" and key in every:
        return tuple(every[key]())
    kind = int if key == "seeds" else str
    if not isinstance(given, list) or not all(type(one) is kind for one in given):
        raise ParameterError(f"{key} = {given!r} is not a list of {kind.__name__}", 'e.g. ["Cora/GCN"]')
    for one in given:
        if key == "settings":
            parse_setting(one)
        if key == "levels":
            share_of(one)
        for name, every_name in (("thieves", THIEVES), ("searches", SEARCHES)):
            if key == name and one not in every_name:
                raise ParameterError(
                    f"there is no {LISTS[name]} {one!r}", f"choose among {', '.join(every_name)}"
                )
    return tuple(dict.fromkeys(given))


def _number(name: str, given: Any) -> int:
    """Return a positive whole number."""
    if type(given) is not int or given < 1:
        raise ParameterError(f"{name} = {given!r} is not a positive whole number", "e.g. 100")
    return given


def _difference(path: Path, given: Any) -> Difference:
    """Return one difference that is written down."""
    try:
        return Difference(**given)
    except TypeError as error:
        advice = "each [[differs]] has the keys scheme, field and why"
        raise ParameterError(f"{path}: {given!r} is not a difference", advice) from error


def chosen(planned: Sequence[Planned], only: Sequence[str]) -> list[Planned]:
    """Return the trials that fit a selection.

    Args:
        planned: The trials.
        only: Conditions `NAME=VALUE` separated by semicolons, such as `setting=Cora/GCN; scheme=COS`. A
            trial fits if it fulfils every condition of at least one text. None selects all.

    Raises:
        ParameterError: If a text is not of this form, or fits no trial.
    """
    if not only:
        return list(planned)
    found: dict[str, Planned] = {}
    for text in only:
        pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
        conditions = {name.strip(): value.strip() for name, _, value in pairs}
        fit = [one for one in planned if conditions.items() <= one.cells().items()]
        if not conditions or not fit:
            names = ", ".join(dict.fromkeys(name for one in planned for name in one.cells()))
            raise ParameterError(f"{text!r} fits no trial", f"write NAME=VALUE; names: {names}")
        found |= {one.slot: one for one in fit}
    return [one for one in planned if one.slot in found]
