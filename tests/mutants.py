"""Break the core on purpose, one small change at a time, and count how often the tests notice.

    make mutants                                              # 130 mutants of all core modules
    .venv/bin/python tests/mutants.py --only stats/null          # 130 of one module
    .venv/bin/python tests/mutants.py --only stats/null --list      # only name them
    .venv/bin/python tests/mutants.py --sample 500 --seed 1

A mutant is the package with one operator, constant, label or statement changed. The tests that `TABLE`
gives for its module run against a private copy of the package, never against the checkout. It is killed if
a test fails, the package no longer imports, or the tests take four times the computing time they should. A
survivor is a gap in the tests, or changes nothing that can be seen; such a one goes into `IGNORED`, with a
reason.

Results go to benchmarks/results/mutants.csv as they come, and a second run goes on where the first stopped.
`state` there is a digest of the module and its tests: once either changes, its mutants are tried again.
Line 0 is the module as it is: its tests must pass, and `seconds` are what they take of the processor.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("module", "line", "mutation", "result", "seconds", "state")
PYTEST = ("-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--hypothesis-seed=0")
LEAST_SECONDS, SLOWER = 30, 4  # of the processor's time: others may be using the machine
MEMORY = 8 << 30  # bytes that a mutant may allocate
UNCHANGED = "none"  # stands for the module as it is: how long its tests take

# Which tests should see a fault in a module, the quickest first; files that do not exist are left out.
TABLE: Mapping[str, str] = {
    "checks": "checks context bad_input reading verify",
    "secret": "secret carriers golden",
    "storage/encoding": "encoding secret golden container",
    "storage/canonical_json": "container secret golden",
    "storage/container": "container secret golden",
    "storage/packing": "container secret golden",
    "storage/encryption": "encryption secret container golden",
    "graphs/disjoint_union": "disjoint_union feature_donors invariants carriers golden bad_input",
    "graphs/invariants": "invariants carriers",
    "graphs/wl_hash": "wl_hash carriers",
    "stats/laws": "laws null verify",
    "stats/evidence": "null laws verify",
    "stats/null": "null laws verify",
    "stats/rank_sum": "null laws",
    "nn/observation": "observation reading query bad_input",
    "readout/reading": "reading query alignment bad_input mark",
    "readout/alignment": "alignment examine",
    "readout/answers": "query reading examine",
    "readout/replies": "query alignment examine",
    "readout/scores": "query reading alignment",
    "readout/query": "query reading examine verify bad_input",
    "watermark/context": "context carriers reading bad_input golden mark",
    "watermark/sampler": "context carriers bad_input golden",
    "watermark/reference": "carriers bad_input golden mark",
    "watermark/carriers": "carriers bad_input golden mark",
    "watermark/feature_donors": "feature_donors carriers",
    "watermark/questions": "questions golden examine file_format_page mark",
    "watermark/directions": "directions reading golden alignment mark",
    "watermark/inputs": "inputs public_features golden examine score_channel",
    "watermark/public_features": "public_features score_channel",
    "watermark/gaussians": "score_channel public_features file_format_page golden",
    "watermark/baseline": "score_channel golden",
    "watermark/score_shift": "public_features score_channel golden",
    "watermark/score_channel": "public_features golden score_channel",
    "watermark/schedule": "mixed_batch mark refresh",
    "watermark/carrier_batches": "mixed_batch mark",
    "watermark/embedding_loss": "mark mixed_batch perception",
    "watermark/mixed_batch": "mixed_batch mark",
    "watermark/derived": "mark golden carriers bad_input reading score_channel",
    "watermark/mark": "mark carriers reading mixed_batch golden bad_input container score_channel",
    "watermark/mark_file": "mark_file golden container mark score_channel",
    "audit/examine": "examine alignment verify",
    "audit/decision": "verify examine bad_input provenance score_channel",
    "audit/verify": "verify examine bad_input provenance score_channel",
    "audit/verdict": "verify examine report",
}
# Mutants that change nothing anybody could see: module, part of the line, how the mutation ends, and why.
IGNORED: Mapping[tuple[str, str, str], str] = {
    ("watermark/public_features", "", "min=0 → min=-1"): "below 0 is rounding: no features",
    ("watermark/carriers", "zip(keys, classes", "strict=False"): "as many keys as graphs, always",
    ("watermark/score_shift", "rounding = ", "< 1e-09 * float(np.linalg.norm(answers))"): "0 either way",
    ("graphs/disjoint_union", "in ((", "iux')"): "no type of numpy is of kind x",
    ("graphs/disjoint_union", "in ((", "('x', 'fiubx')"): "no type of numpy is of kind x",
    ("graphs/disjoint_union", ".dtype.kind", "in 'iux'"): "no type of numpy is of kind x",
    ("graphs/disjoint_union", "prepend=-1)", "-1 → -2"): "every key is above 0",
    ("graphs/disjoint_union", "prepend=-1)", "-1 → -0"): "every key is above 0",
    ("graphs/disjoint_union", "arrows = ", "u[proper] / int(ptr[-1])"): "only counted: as many differ",
    ("graphs/disjoint_union", "self.graph_of_node[self.edges", "(:, 1)"): "both ends are in one graph",
    ("graphs/disjoint_union", "self.graph_of_node[self.edges", "(:, -1)"): "both ends are in one graph",
    ("graphs/disjoint_union", "np.searchsorted(self.edges", "(:, 1)"): "both ends are in one graph",
    ("graphs/disjoint_union", "np.searchsorted(self.edges", "(:, -1)"): "both ends are in one graph",
    ("graphs/disjoint_union", "pairs.append(", "copy=True"): "a copy is equal",
    ("graphs/invariants", "eigvalsh(_dense_", "g.num_nodes, 2)"): "only the first graph is solved",
    ("graphs/invariants", "eigvalsh(_dense_", "g.num_nodes, 1)[-1]"): "there is one graph",
    ("graphs/invariants", "float(found[0])", "found[-1]"): "one eigenvalue is found",
    ("graphs/invariants", "golden = ", "/ 0.6180339887498949"): "1/0.618... is 1.618...",
    ("graphs/wl_hash", "own.dtype.kind", "not in 'iubx'"): "no type of numpy is of kind x",
    ("watermark/mixed_batch", "ptr = nn.functional.pad", "cumsum(-1)"): "there is one dimension",
    ("stats/laws", "if x >= 1.0", "x > 1.0"): "no square of a double is next to 1",
    ("stats/laws", "if x <= 0.5", "x < 0.5"): "at 1/2 both caps are the law",
    ("stats/laws", "if total > 2.0**500", ">= 2.0 ** 500"): "when terms are scaled changes nothing",
    ("stats/laws", "if total > 2.0**500", "2.0 * 500"): "when terms are scaled changes nothing",
    ("stats/laws", "if total > 2.0**500", "2.0 ** 501"): "when terms are scaled changes nothing",
    ("stats/laws", "if total > 2.0**500", "2.0 ** 499"): "when terms are scaled changes nothing",
    ("stats/laws", "math.exp(min(0.0, log_p))", "min(1.0, log_p)"): "p is at most 1 in any case",
    ("stats/laws", "term, total, ratio, j =", "(1.0, 1.0, 2.0, 0)"): "it only has to enter the loop",
    ("stats/laws", "while term * ratio >", ">= 2.0 ** (-53) * total * (1 - ratio)"): "they are never equal",
    ("stats/evidence", "by_t = log_p_matches", "else 1.0"): "not used by this statistic",
    ("stats/evidence", "by_u = log_p_rank", "RankTail(1.0, True)"): "not used by this statistic",
    ("stats/evidence", "math.nextafter(p, 1.0)", "2.0)"): "p is below 1 there",
    ("stats/rank_sum", "shift = max(0", "max(1, total.bit_length() - count.bit_length())"): "1 // 512 is 0",
    ("stats/rank_sum", "region = ", "(-1, None)"): "a slope below 0 is cut to 0",
    ("stats/rank_sum", "if not size <= 2.0**30", "size < 2.0 ** 30"): "as large after the cut",
    ("stats/rank_sum", "rows[0][0] = 1.0", "rows[0][-1]"): "there is one entry",
    ("stats/rank_sum", "tuple(zip(low, rows", "strict=False"): "a row for every size, always",
    ("stats/rank_sum", "step = math.gcd(", "ranks[0] → ranks[-1]"): "differences have the same divisor",
    ("stats/rank_sum", "step = math.gcd(", "or 2"): "all are 0 then",
    ("stats/null", "range(m, -1, -1)", "-1 → -2"): "fewer than all counts pass",
    ("stats/null", "range(m, -1, -1)", "-1 → -0"): "fewer than all counts pass",
    ("stats/null", "float(t <= 0)", "t <= 1"): "t is above m or not above 0 there",
    ("stats/null", "range(max(t, 0), m + 1)", "m + 1 → m + 2"): "no subset is larger than the whole",
    ("stats/null", "for t in range(m + 1)", "m + 1 → m + 2"): "as without a count",
    ("stats/null", "for t in range(m + 1)", "m + 1 → m + 2 #2"): "thresholds are cut to m + 1",
    ("secret", "given.dtype.kind", "not in 'iux'"): "no type of numpy is of kind x",
    ("secret", "while have < size", "have <= size"): "a block more is kept for the next draw",
    ("secret", "astype(np.uint64", "copy=True"): "a copy is equal",
    ("secret", "zip(tops", "strict=False"): "as many draws as places, always",
    (
        "secret",
        "words > np.uint64(0) - bounds",
        ">= np.uint64(0) - bounds",
    ): "a first look; an exact one follows",
    ("secret", "words > np.uint64(0) - bounds", "+ bounds"): "a first look; an exact one follows",
    ("storage/encryption", "zip(kdf, MOST", "strict=False"): "as many limits as costs, always",
    ("storage/encoding", "little = value.astype(", "copy=True"): "a copy is equal",
    ("secret", "np.unpackbits(", "'littlex'"): "numpy reads the first letter",
    ("storage/encoding", ".newbyteorder(", "('<x')"): "numpy reads the first letter",
    ("storage/encoding", ".newbyteorder(", "('=x')"): "numpy reads the first letter",
    ("storage/packing", ".newbyteorder(", "('<x')"): "numpy reads the first letter",
    ("storage/packing", ".newbyteorder(", "('=x')"): "numpy reads the first letter",
    ("storage/encoding", "_encode(name, 0)", "_encode(name, 1)"): "text needs no level",
    ("storage/encoding", "_encode(list(value.shape), 1)", "2)"): "a list of numbers needs one level",
    ("storage/encoding", "_decode(data, start, end, 0)", "end, 1)"): "what is no text is refused anyway",
    ("storage/encoding", "_decode(data, start, end, 1)", "end, 2)"): "what is no number is refused anyway",
    ("storage/encoding", "struct.unpack", "[-1]"): "there is one number",
    ("storage/encoding", "dict(zip(keys", "strict=False"): "as many keys as values: checked",
    ("storage/packing", "array.astype(little", "copy=True"): "a copy is equal",
    ("storage/container", "kind, version = (meta", "→ (1, 0)"): "neither number is a kind",
    ("storage/container", "kind, version = (meta", "→ (-1, 0)"): "neither number is a kind",
    ("storage/container", "kind, version = (meta", "→ (0, 1)"): "without a kind no version counts",
    ("storage/container", "kind, version = (meta", "→ (0, -1)"): "without a kind no version counts",
    ("watermark/reference", "known = y >= 0", "y >= 0 → y >= -1"): "-1 becomes -1",
    ("watermark/reference", "known = y >= 0", "y >= 0 → y >= -1 #2"): "-1 becomes -1",
    ("watermark/reference", "known = y >= 0", "-1 → -2"): "numpy takes any negative number for the rest",
    ("watermark/reference", "found.dtype.kind", "in 'iux'"): "no type of numpy is of kind x",
    ("watermark/reference", "version: int = 2", "version: int=3"): "only format 1 differs",
    ("watermark/inputs", "version: int = 2", "version: int=3"): "only format 1 differs",
    ("watermark/public_features", "version: int = 2", "version: int=3"): "only format 1 differs",
    ("watermark/baseline", "version: int = 2", "version: int=3"): "only format 1 differs",
    ("watermark/score_channel", "version: int = 2", "2 → 3"): "only format 1 differs",
    ("watermark/public_features", "values.flip(0)", "values.flip(-1)"): "there is one dimension",
    ("watermark/public_features", "spread >= FLAT", "spread > FLAT"): "no spread is exactly that",
    ("watermark/score_channel", "size > 1e-9", "size >= 1e-09"): "no size is exactly that",
    ("watermark/score_shift", "top = before.argmax", "!= np.arange(before.shape[1])"): (
        "the same span, since ones are among the columns"
    ),
    ("watermark/score_shift", "top = before.argmax", "before.shape[0]"): "columns of zeros change no fit",
    ("watermark/context", "MOST_M = ", "4097"): "m is even",
    ("watermark/context", 'check_whole("format"', "context['format'], 0, FORMAT)"): "0 is refused before",
    (
        "watermark/sampler",
        "MOST = {",
        "→ {'swap_step': 10001, 'swap_cap': 10000, 'rounds': 32, 'wave': 65536, 'patience': 100000}",
    ): "swap_cap is no larger",
    ("watermark/mixed_batch", "parts[0].x", "parts[-1]"): "all parts have the same features",
    ("watermark/mixed_batch", "own, ptr = getattr", "getattr(task, 'ptrx', None)"): (
        "counted instead, the offsets are the same"
    ),
    ("nn/observation", "log_softmax(-1)", "-1 → 1"): "scores have two dimensions; others are refused",
    ("nn/observation", ".all(-1)]", "-1 → 1 #2"): "there are two dimensions after reshaping",
    ("nn/observation", "torch.stack([", "-1 → 1"): "stacked columns have two dimensions",
    ("nn/observation", "whole - 1).abs()", "<= rounding → (rows.sum(-1) / whole - 1).abs() < rounding"): (
        "no double differs from 1 by exactly that much"
    ),
    ("watermark/baseline", "log_softmax(-1)", "-1 → 1"): "scores have two dimensions",
    ("readout/replies", "log_softmax(-1)", "-1 → 1"): "scores have two dimensions",
    ("watermark/carrier_batches", "self._rounds.pop(known[0])", "known[-1]"): "a round is kept once",
    ("watermark/carrier_batches", "list(zip(parts", "strict=False"): "as many parts as answers, always",
    ("readout/query", "_Reply = TypeVar(", "TypeVar('_Replyx')"): "a name for type checkers",
    (
        "readout/query",
        "raise AssertionError(",
        "→ pass",
    ): "it is never called; type checkers want a direction",
    ("readout/alignment", "torch.full_like(logs[:, :1]", ":1 → :2"): "the last column is the same",
    ("readout/scores", "found.dtype.kind not in", "'fiubUSx'"): "no type of numpy is of kind x",
    ("readout/reading", "is_autocast_available(place) and", "or torch.is_autocast_enabled(place)"): (
        "what is off can be switched off again"
    ),
    (
        "audit/examine",
        "if not readable and len(levels) == 1",
        "levels[0] → levels[-1]",
    ): "there is one level",
    ("audit/examine", "best=min(readable", "else 1.0"): "all of these have evidence",
    ("audit/examine", "found = min((level.evidence.log_p", "default=1.0"): "no p-value is above 1",
    ("audit/examine", "return min(0.0, found", "min(1.0, found + 1e-06 * abs(found))"): (
        "no logarithm of a probability is above 0"
    ),
    ("audit/verify", "zip(others, tests", "strict=False"): "as many tests as controls, always",
}

COMPARED = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change of a module: where, what, and the source with it."""

    module: str
    line: int
    mutation: str
    source: Callable[[], str]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, str(self.line), self.mutation

    def __str__(self) -> str:
        return f"src/invgnn/{self.module}.py:{self.line}  {self.mutation}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    tree, met = ast.parse(source), Counter[tuple[int, str]]()
    for holder, put, node, number in _sites(tree, False):
        for other in _options(node, number):
            before, after = ast.unparse(node), ast.unparse(other)
            if isinstance(node, ast.Constant) and len(ast.unparse(holder)) < 100:  # 1 → 2 tells little
                before, after = ast.unparse(holder), _swapped(put, node, other, holder)
            change = f"{before.splitlines()[0]} → {after.splitlines()[0]}"
            met[node.lineno, change] += 1
            again = met[node.lineno, change]
            change = change if again == 1 else f"{change} #{again}"
            yield Mutant(module, node.lineno, change, partial(_swapped, put, node, other, tree))


def _swapped(put: Callable, node: ast.AST, other: ast.AST, shown: ast.AST) -> str:
    """How a part of a tree reads while something else stands in the place of a node."""
    put(other)
    text = ast.unparse(shown)
    put(node)
    return text


def _sites(holder: ast.AST, number: bool) -> Iterator[tuple]:
    """Nodes that may be replaced: what holds one, how to, itself, whether its function returns a number."""
    if isinstance(holder, ast.FunctionDef):
        number = holder.returns is not None and ast.unparse(holder.returns) in {"int", "float", "bool"}
    for field, value in ast.iter_fields(holder):
        if field in {"annotation", "returns", "decorator_list", "format_spec", "exc", "cause"}:
            continue
        puts = [(partial(setattr, holder, field), value)]
        if isinstance(value, list):
            puts = [(partial(value.__setitem__, index), node) for index, node in enumerate(value)]
        for put, node in puts:
            if isinstance(node, ast.AST) and not _silent(node):
                yield holder, put, node, number
                yield from _sites(node, number)


def _silent(node: ast.AST) -> bool:
    """Whether a part of the source only speaks to people or to type checkers."""
    match node:
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.Constant) and " " in part.value for part in parts)
        case ast.Call(func=ast.Name(id=name)):
            return name in {"isinstance", "issubclass"} or name.endswith("Error")
        case ast.Subscript(value=ast.Name(id=name)):
            return name == "Literal"
        case ast.AnnAssign(annotation=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name in {"TypeAlias", "__slots__"}
        case ast.If(test=ast.Name(id=name)) | ast.FunctionDef(name=name):
            return name in {"TYPE_CHECKING", "__repr__", "__str__"}
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _options(node: ast.AST, number: bool) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                for other in COMPARED[type(op)]:
                    yield ast.Compare(left, [*ops[:i], other(), *ops[i + 1 :]], comparators)
        case ast.BinOp(left, op, right):
            yield ast.BinOp(left, COMPUTED[type(op)](), right)
        case ast.AugAssign(target, op, value):
            yield from (ast.AugAssign(target, COMPUTED[type(op)](), value), ast.Pass())
        case ast.BoolOp(op, values):
            yield ast.BoolOp(COMPUTED[type(op)](), values)
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value):
            yield from map(ast.Constant, _values(value))
        case ast.Slice(lower, upper, step):
            for by in (ast.Add(), ast.Sub()):
                if lower is not None and not isinstance(lower, ast.Constant):
                    yield ast.Slice(ast.BinOp(lower, by, ast.Constant(1)), upper, step)
                if upper is not None and not isinstance(upper, ast.Constant):
                    yield ast.Slice(lower, ast.BinOp(upper, by, ast.Constant(1)), step)
        case ast.If(test, body, orelse) | ast.IfExp(test, body, orelse):
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield type(node)(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Return(value) if value is not None:
            nothing = ast.Constant(0 if number else None)
            same = isinstance(value, ast.Constant) and value.value == nothing.value  # 0.0 is 0
            yield from () if same else (ast.Return(nothing),)
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Delete() | ast.Assert() | ast.Continue():
            yield ast.Pass()


def _values(value: object) -> list:
    """Other constants: no tolerance, and of text only what has no spaces, a label and no message."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [2 * value] if abs(value) >= 1e-3 else [1.0] if value == 0 else []
    if isinstance(value, str | bytes) and value and (" " if isinstance(value, str) else b" ") not in value:
        return [value + ("x" if isinstance(value, str) else b"x")]
    return []


def serve() -> None:
    """Run tests on request, each time in a fork of a process that has imported all but the package."""
    import pytest

    for name in ("torch_geometric.nn", "scipy.stats", "networkx", "mpmath", "cryptography", "safetensors"):
        with contextlib.suppress(ImportError):
            import_module(name)

    del sys.path[0]  # where this file is; tests import their own copies
    for line in sys.stdin:
        arguments, limit, said = json.loads(line)
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for stream in (1, 2):
                os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
            code = pytest.main(arguments)
            sys.stdout.flush()
            os._exit(code)
        began, done = time.monotonic(), 0
        while not done:
            time.sleep(0.02)
            done, status, used = os.wait4(child, os.WNOHANG)
            if not done and time.monotonic() > began + 20 * limit:  # those that sleep
                os.killpg(child, signal.SIGXCPU)
        with contextlib.suppress(ProcessLookupError):  # whatever it has started itself
            os.killpg(child, signal.SIGKILL)
        print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]), flush=True)


def ignored(mutant: Mutant, source: str) -> bool:
    """Whether a mutant is known to change nothing."""
    line = source.splitlines()[mutant.line - 1]
    return any(
        mutant.module == module and part in line and mutant.mutation.endswith(end)
        for module, part, end in IGNORED
    )


class Bench:
    """A private copy of the package and its tests, to break and to mend."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self.said = folder, folder / "said.txt"
        for part in ("src/invgnn", "tests", "docs/reference"):
            if (root / part).exists():
                shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for settings in root.glob("pyproject.toml"):
            shutil.copy(settings, folder)
        shared = root.parent / "shared" / "datasets"
        data = {"INVGNN_DATA": str(shared)} if shared.is_dir() else {}
        own = {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
        own["PYTHONDONTWRITEBYTECODE"] = "1"  # else stale bytecode would hide mutants of the same size
        where = {"cwd": folder, "env": {**data, **os.environ, **own}, "text": True}
        asked = [sys.executable, "-c", "import invgnn; print(invgnn.__file__)"]
        found = subprocess.run(asked, **where, capture_output=True, check=True).stdout.strip()
        if Path(found) != folder / "src" / "invgnn" / "__init__.py":
            raise SystemExit(f"not the copy but another package is imported: {found}")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.server = subprocess.Popen([sys.executable, __file__, "serve"], **where, **pipes)

    def test(self, path: Path, source: str, tests: Sequence[str], limit: float) -> tuple[str, float]:
        """Run tests on another source of a module: what became of it, and the processor's seconds."""
        self.said.unlink(missing_ok=True)
        place = self.folder / path
        original = place.read_bytes()
        place.write_text(source)
        print(json.dumps([[*PYTEST, *tests], limit, str(self.said)]), file=self.server.stdin, flush=True)
        code, seconds = json.loads(self.server.stdout.readline())
        place.write_bytes(original)
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        return {0: "survived", -signal.SIGXCPU: "timeout"}.get(code, "killed"), seconds

    def close(self) -> None:
        self.server.communicate()


def run(
    root: Path,
    sample: Sequence[Mutant],
    paths: Mapping[str, Path],
    tests: Mapping[str, Sequence[str]],
    usual: dict[str, float],
    jobs: int,
) -> Iterator[tuple[Mutant, str, float]]:
    """Try mutants, some at a time: each with its result and the seconds it took, as they come.

    What the tests of a module `usual`ly take is found before its first mutant, if it is not known.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        made = [Bench(root, Path(folder).resolve() / str(number)) for number in range(jobs)]
        benches: SimpleQueue[Bench] = SimpleQueue()
        for bench in made:
            benches.put(bench)

        def attempt(mutant: Mutant) -> tuple[str, float]:
            bench, module = benches.get(), mutant.module
            limit = max(LEAST_SECONDS, SLOWER * usual[module]) if mutant.line else 3600
            found = bench.test(paths[module], mutant.source(), tests[module], limit)
            said = bench.said.read_text() if bench.said.exists() else ""
            benches.put(bench)
            if not mutant.line and found[0] != "survived":
                raise SystemExit(f"the tests of {module} fail without any mutant\n{said[-2000:]}")
            return found

        try:
            for module in dict.fromkeys(mutant.module for mutant in sample):
                if module not in usual:
                    plain = ast.unparse(ast.parse((root / paths[module]).read_text()))
                    whole = Mutant(module, 0, UNCHANGED, lambda plain=plain: plain)
                    _, usual[module] = attempt(whole)
                    yield whole, "survived", usual[module]
                tried = {pool.submit(attempt, m): m for m in sample if m.module == module}
                for done in as_completed(tried):
                    yield tried[done], *done.result()
        finally:
            pool.shutdown(cancel_futures=True)
            for bench in made:
                bench.close()


def main(argv: Sequence[str] | None = None, root: Path = ROOT, table: Mapping[str, str] = TABLE) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=130, help="how many mutants (130)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--only", metavar="MODULE", choices=[*table], help="those of one module")
    parser.add_argument("--list", action="store_true", help="name them and stop")
    options = parser.parse_args(argv)

    sources, paths, tests, states = {}, {}, {}, {}
    for module, names in table.items():
        path = root / "src" / "invgnn" / f"{module}.py"
        known = [found for name in names.split() for found in (root / "tests").rglob(f"test_{name}.py")]
        tests[module] = [str(found.relative_to(root)) for found in known]
        if path.exists() and tests[module]:
            paths[module], sources[module] = path.relative_to(root), path.read_text()
            held = [path.read_bytes(), *((root / name).read_bytes() for name in tests[module])]
            states[module] = hashlib.sha256(b"\0".join(held)).hexdigest()[:12]
    found = [m for module, text in sources.items() for m in mutants(module, text)]
    found = [m for m in found if options.only in {None, m.module} and not ignored(m, sources[m.module])]
    chosen = np.random.default_rng(options.seed).permutation(len(found))[: options.sample]
    sample = [found[i] for i in sorted(chosen)]
    if options.list:
        print(*sorted(map(str, sample)), sep="\n")
        return

    path = root / "benchmarks" / "results" / "mutants.csv"
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    rows = [row for row in rows if states.get(row["module"]) == row["state"]]
    known = {(row["module"], row["line"], row["mutation"]): row["result"] for row in rows}
    usual = {row["module"]: float(row["seconds"]) for row in rows if row["mutation"] == UNCHANGED}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *(row.values() for row in rows)])
        wanted = [m for m in sample if m.key not in known]
        for m, result, seconds in run(root, wanted, paths, tests, usual, options.jobs) if wanted else ():
            known[m.key] = result
            writer.writerow([*m.key, result, f"{seconds:.1f}", states[m.module]])
            file.flush()
            print(f"{result:<8}  {seconds:6.1f} s  {m}", flush=True)

    survivors = sorted(str(m) for m in sample if known[m.key] == "survived")
    killed, total = len(sample) - len(survivors), len(sample)
    low, high = binomtest(killed, total).proportion_ci(0.95, method="exact")
    print(f"{killed} of {total} mutants killed, drawn from {len(found)}: {killed / total:.1%}")
    print(f"95 % Clopper-Pearson interval: {low:.1%} to {high:.1%}")
    for survivor in survivors:
        print(f"survived  {survivor}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
