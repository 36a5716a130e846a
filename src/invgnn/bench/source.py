"""Find the modules that a computation can reach by imports, and digest their source code.

The closure is an upper bound: every import counts, inside functions too, whether it runs or not. A digest
of it therefore changes whenever code changes that the computation may run. It does not change with comments
and docstrings.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The folder of this library."""
DISPATCH = frozenset(
    f"invgnn.{name}"
    for name in (
        *("schemes.registry", "attacks.registry", "attacks.edits.registry"),
        *("bench.trials.objects", "bench.trials.measures"),
    )
)
"""Modules that only find an object by its name. Whoever uses them names the class that was found."""


@dataclass(frozen=True)
class SourceTree:
    """Packages whose imports are followed.

    Attributes:
        roots: Where each top-level package or module is: a folder, or a file without its suffix.
        cut: Modules that are not entered.
    """

    roots: Mapping[str, Path] = field(default_factory=lambda: {"invgnn": ROOT})
    cut: Collection[str] = DISPATCH
    _edges: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def path(self, module: str) -> Path | None:
        """Return the file of a module; None if it is not part of the tree.

        Args:
            module: Full name of the module.
        """
        top, *rest = module.split(".")
        if top not in self.roots:
            return None
        place = self.roots[top].joinpath(*rest)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file
        return None

    def reachable(self, starts: Iterable[str]) -> frozenset[str]:
        """Return all modules that can be reached by imports.

        A name imported from a package is followed to the module that defines it. The package's other
        imports are then left out: they define what is not used.

        Args:
            starts: Modules to begin with. Those outside the tree are ignored.
        """
        found: set[str] = set()
        waiting = list(starts)
        while waiting:
            module = waiting.pop()
            if module not in found and module not in self.cut and self.path(module) is not None:
                found.add(module)
                if module not in self._edges:
                    self._edges[module] = tuple(self._imported(module))
                waiting.extend(self._edges[module])
        return frozenset(found)

    def digest(self, starts: Iterable[str]) -> str:
        """Return the SHA-256 digest of the code that can be reached by imports.

        Args:
            starts: Modules to begin with.
        """
        hashed = hashlib.sha256()
        for module in sorted(self.reachable(starts)):
            hashed.update(f"{module} {_code(self._file(module))}\n".encode())
        return hashed.hexdigest()

    def _file(self, module: str) -> Path:
        """Return the file of a module that is part of the tree."""
        file = self.path(module)
        if file is None:
            raise AssertionError(f"{module} is not part of the tree")
        return file

    def _imported(self, module: str) -> Iterator[str]:
        """Yield the modules that a module imports."""
        file = self._file(module)
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for source, names in _imports(file, package):
            for name in names or ("",):
                yield from self._origins(source, name)

    def _origins(self, source: str, name: str) -> Iterator[str]:
        """Yield the modules that `from source import name` needs; an empty name is `import source`."""
        if name and self.path(f"{source}.{name}") is not None:
            yield f"{source}.{name}"
            return
        file = self.path(source)
        if file is None:
            return
        if name in ("", "*") or file.name != "__init__.py":
            yield source
            return
        bound = [(there, was) for there, was, here in _bindings(file, source) if here == name]
        if not bound:  # defined in the package itself, or found there by its name when it is used
            yield source
            for text in _texts(file):
                near = f"{source}.{text}"
                yield from (one for one in (text, near) if self.path(one) is not None)
        for there, was in bound:
            yield from self._origins(there, was)


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def _code(file: Path) -> str:
    """Return the digest of the code of a file."""
    return hashlib.sha256(stripped(_text(file)).encode()).hexdigest()


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(_text(file))


def _imports_of(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield all imports that may run: those below `if TYPE_CHECKING:` do not."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and _typing_only(node.test):
            waiting.extend(node.orelse)
        elif not isinstance(node, ast.expr):
            waiting.extend(ast.iter_child_nodes(node))


def _typing_only(test: ast.expr) -> bool:
    """Return whether a condition is `TYPE_CHECKING`."""
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


@cache
def _bindings(file: Path, package: str) -> tuple[tuple[str, str, str], ...]:
    """Return every import as the module, the name there, and the name here; both empty for a module."""
    found = []
    for node in _imports_of(_tree(file)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", "") for alias in node.names]
        else:
            base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found += [(source, alias.name, alias.asname or alias.name) for alias in node.names]
    return tuple(found)


def _imports(file: Path, package: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return every import as the module and the imported names."""
    return [(source, (name,) if name else ()) for source, name, _ in _bindings(file, package)]


@cache
def _texts(file: Path) -> frozenset[str]:
    """Return all text constants of a file."""
    return frozenset(
        node.value
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def stripped(source: str) -> str:
    """Return source code without docstrings, comments and the blank lines around them.

    Args:
        source: Code of a module.
    """
    lines = source.splitlines()
    tree = ast.parse(source)
    documented = _docstrings(tree)
    known = {id(node) for node in documented}
    for node in documented:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines[first] = lines[first].encode()[: node.col_offset].decode().rstrip()
        for row in range(first + 1, last + 1):
            lines[row] = ""
    texts: set[int] = set()  # lines with a text, where a blank line or a # may mean itself
    for one in ast.walk(tree):
        text = isinstance(one, ast.Constant) and isinstance(one.value, str | bytes)
        if (text or isinstance(one, ast.JoinedStr)) and id(one) not in known:
            texts.update(range(one.lineno - 1, one.end_lineno or one.lineno))  # type: ignore[attr-defined]
    for row, line in enumerate(lines):
        if row not in texts:
            lines[row] = line.partition("#")[0].rstrip()
    return "\n".join(line for row, line in enumerate(lines) if line or row in texts)


def _docstrings(tree: ast.Module) -> list[ast.expr]:
    """Return the texts that are statements of their own: docstrings of modules, functions and constants."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
