"""Scripts of benchmarks and studies, loaded from their files."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@cache
def load(name):
    """The module of a script such as `benchmarks/strength`."""
    spec = importlib.util.spec_from_file_location(f"script_{Path(name).name}", ROOT / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def load_package(name):
    """A package of scripts such as `benchmarks/speed`, whose modules import each other relatively."""
    place, known = ROOT / name, f"package_{Path(name).name}"
    found = [str(place)]
    spec = importlib.util.spec_from_file_location(
        known, place / "__init__.py", submodule_search_locations=found
    )
    sys.modules[known] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda part: importlib.import_module(f"{known}.{part}")


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def script():
    return load


@pytest.fixture(scope="session")
def speed():
    return load_package("benchmarks/speed")
