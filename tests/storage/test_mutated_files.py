"""Damaged and hostile files: a typed error or a sound result, at once, and nothing is written.

`mutated` makes example number n of a source, always the same one. To look at a failure, call it with the
name and the number that the test reports.
"""

import copy
import json
import random
import resource
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from invgnn.concealed import ConcealedBytes
from invgnn.errors import FileError, InvgnnError
from invgnn.nn.backbones import GCN, GIN, SGC, GraphSAGE
from invgnn.nn.model_file import load_model, save_model
from invgnn.nn.perception import attach_head
from invgnn.secret import Secret
from invgnn.storage import container, packing
from invgnn.watermark.mark import Watermark
from invgnn.watermark.mark_file import unpack

GOLDEN = Path(__file__).parents[1] / "golden"
QUICK = container.Kdf(64, 1, 4)
WORDS = "open sesame"
SECONDS = 2  # of processor time: the machine may be busy
MEMORY = 400  # MB

NUMBERS = [0, 1, 2, 3, 7, 8, 9, 64, 255, 4097, 10**6, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 16**63]
NUMBERS += [-number for number in NUMBERS] + [10**400]
FLOATS = [0.0, -0.0, 0.5, 1.0, 2.0, 2.5, 8.0, 64.0, -1.5, 1e9, 1e12, 1e308, -1e308, 5e-324]
TEXTS = [
    "",
    "1",
    "NaN",
    "nan",
    "Infinity",
    "true",
    "null",
    "\0",
    "\x1b[31m",
    "../../etc/passwd",
    "Z" * 100_000,
]
TEXTS += [
    "<script>alert(1)</script>",
    "graph",
    "node",
    "GIN",
    "SGC",
    "keyed",
    "plain",
    "rank",
    "lambda2",
    "labels",
]
LISTS = [[], [[]], [0] * 3000, [None], ["auto", "auto"], [True, 1, 1.0], [[["a"], {"b": [{}]}]]]
MAPS = [{}, {"a": 1}, {"": None}, {"width": 10**12, "nu": -1}, {"access": "labels", "classes": 2.5}]
HOSTILE = [*NUMBERS, *FLOATS, *TEXTS, *LISTS, *MAPS, True, False, None]
LITERALS = [
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "[" * 5000,
    '"\\ud800"',
    "1.0.0",
    "tru",
    "'x'",
    "0x10",
    "01",
]


# --- mutations of bytes


def flip(rng, data, _):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(rng.choice([8, 200, len(data)]))
        data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(rng, data, _):
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice([data[:start], data[start:], data[:start] + data[end:], data[:end] + data[start:]])


def splice(rng, data, other):
    ours, theirs = rng.randrange(len(data)), rng.randrange(len(other))
    return rng.choice(
        [data[:ours] + other[ours:], data[:ours] + other[theirs:], data + other, other + data]
    )


def length(rng, data, _):
    """Another length of the header."""
    size = rng.choice(
        [0, 1, 7, len(data), len(data) - 8, len(data) - 9, 10**7, 2**63, rng.randrange(len(data))]
    )
    return size.to_bytes(8, "little") + data[8:]


def split(data):
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[start:]


def joined(head, tail):
    return len(head).to_bytes(8, "little") + head + tail


def literal(rng, data, _):
    """Something in the metadata that JSON does not know, or that is not canonical."""
    header, tail = split(data)
    text = header["__metadata__"]["invgnn"]
    place = rng.choice([i for i, letter in enumerate(text) if letter in ":,{["])
    end = min((i for i in (text.find(stop, place + 1) for stop in ',}]"') if i > 0), default=len(text))
    header["__metadata__"]["invgnn"] = text[: place + 1] + rng.choice(LITERALS) + text[end:]
    return joined(json.dumps(header).encode(), tail)


def outer(rng, data, _):
    """Another value in the header of safetensors."""
    header, tail = split(data)
    replace(rng, header)
    return joined(json.dumps(header).encode(), tail)


# --- mutations of values


def places(value):
    """Every list or map in a value, with a key of it."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def replace(rng, value):
    """Put a hostile value, or one from elsewhere, at some place; or leave out or add something."""
    found = list(places(value))
    if not found:
        return
    held, key = rng.choice(found)
    way = rng.random()
    if way < 0.7:
        held[key] = copy.deepcopy(rng.choice(HOSTILE))
    elif way < 0.8:
        other, name = rng.choice(found)
        held[key] = copy.deepcopy(other[name])
    elif way < 0.9 and isinstance(held, dict):
        name = rng.choice(["extra", "", "function", "perception", "classes"])
        held[name] = copy.deepcopy(rng.choice(HOSTILE))
    else:
        del held[key]


def odd_tensor(rng, raw):
    """The tensor with another type, shape or content."""
    data = bytes(raw.data)
    size = np.dtype(packing.DTYPES[raw.dtype]).itemsize
    way = rng.randrange(5)
    if way == 0:  # the same bytes under another name
        dtype = rng.choice(list(packing.DTYPES))
        size = np.dtype(packing.DTYPES[dtype]).itemsize
        return packing.Raw(dtype, (len(data) // size,), data[: len(data) // size * size])
    if way == 1:  # fewer or more rows
        count = rng.choice([0, 1, 2, 7, 2 * (raw.shape or (1,))[0]])
        row = len(data) // max(1, (raw.shape or (1,))[0])
        return packing.Raw(
            raw.dtype, (count, *raw.shape[1:]), (data * 3)[: count * row].ljust(count * row, b"\0")
        )
    if way == 2:  # another shape
        count = len(data) // size
        return packing.Raw(raw.dtype, rng.choice([(count,), (1, count), (count, 1), (count, 1, 1)]), data)
    place = rng.randrange(len(data) // size) * size if data else 0
    value = rng.choice([b"\xff", b"\x00", b"\x7f", b"\x80", b"\x01"]) * size
    value = rng.choice([value, b"\xff" * (size - 1) + b"\x7f", b"\0" * (size - 1) + b"\x80"])
    if way == 3 and data:  # one odd value
        return packing.Raw(raw.dtype, raw.shape, data[:place] + value[:size] + data[place + size :])
    return packing.Raw(raw.dtype, raw.shape, value[:size] * (len(data) // size))


def mutate_tensors(rng, raws, others):
    name = rng.choice(sorted(raws))
    way = rng.random()
    if way < 0.7:
        raws[name] = odd_tensor(rng, raws[name])
    elif way < 0.8:
        del raws[name]
    elif way < 0.9:
        raws[rng.choice(["extra", "before", "labels", "secret", "x" * 10_000])] = raws[name]
    elif others:
        raws[name] = rng.choice(list(others.values()))


# --- containers


def parts(data):
    """The metadata and the tensors of a sound container."""
    header, _ = split(data)
    return json.loads(header["__metadata__"]["invgnn"]), packing.unpack(ConcealedBytes(data), "source")[1]


def packed(meta, raws):
    """A container with this content and the digest that it needs."""
    raws = {name: raw._replace(data=ConcealedBytes(raw.data)) for name, raw in raws.items()}
    with suppress(InvgnnError):  # what cannot be hashed keeps its digest
        meta["digest"] = container._digest(meta["kind"], meta["version"], meta["body"], raws)
    return bytes(packing.pack(meta, raws))


def mended(meta, raws):
    """The same, with the digest of the mark itself put right as well if it can be computed."""
    if meta["kind"] == "mark" and isinstance(meta["body"].get("digest"), str):
        with suppress(Exception):
            tensors = {name: packing.tensor_of(name, raw, "numpy") for name, raw in raws.items()}
            held = container.Container("mark", meta["version"], meta["body"], tensors, "")
            with limited():
                meta["body"]["digest"] = Watermark(**unpack(held)).digest
    return packed(meta, raws)


def content(rng, data, other):
    """Other values and tensors in a container whose digests are right."""
    meta, raws = parts(data)
    theirs, others = parts(other)
    if rng.random() < 0.05:
        meta["body"], raws = (theirs["body"], raws) if rng.random() < 0.5 else (meta["body"], others)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not raws or (meta["body"] and rng.random() < 0.65):
            replace(rng, meta["body"])
        else:
            mutate_tensors(rng, raws, others)
    if rng.random() < 0.1:
        meta["version"] = 3 - meta["version"]
    return mended(meta, raws)


def relabelled(rng, data, _):
    """Other values in the label of a sealed file: kind, version and how it was sealed."""
    header, tail = split(data)
    meta = json.loads(header["__metadata__"]["invgnn"])
    if rng.random() < 0.7:  # the work to be done
        meta["sealed"][rng.choice(["memory_kib", "iterations", "lanes"])] = rng.choice(
            [1, 8, 32, 63, 2**12, 2**16, 2**18, 2**19, 2**30, *NUMBERS, *FLOATS]
        )
    else:
        replace(rng, meta)
    header["__metadata__"]["invgnn"] = json.dumps(meta, sort_keys=True, separators=(",", ":"))
    return joined(json.dumps(header).encode(), tail)


def close(data, kind):
    """A sealed file around any bytes."""
    with mock.patch("os.urandom", bytes):  # zeros: the same file in every run
        return bytes(container._seal(ConcealedBytes(data), kind, WORDS, QUICK))


def sealed(rng, data, other):
    """Any mutation of what is inside, and then a correct seal."""
    meta, _ = parts(data)
    inside = rng.choice([flip, cut, splice, literal, content, content])(rng, data, other)
    return close(inside, meta["kind"])


CLEAR = [flip, cut, splice, length, literal, outer, *[content] * 10]
SEALED = [flip, cut, splice, length, literal, outer, *[relabelled] * 4]


def mutated(sources, name, number):
    """Example `number` of the mutations of the source `name`."""
    rng = random.Random(f"{name}/{number}")  # noqa: S311 - the same examples in every run
    data, other = sources[name], sources[rng.choice(sorted(sources))]
    if "sealed" in json.loads(split(data)[0]["__metadata__"]["invgnn"]):
        return rng.choice(SEALED)(rng, data, other)
    if "sealed" in json.loads(split(other)[0]["__metadata__"]["invgnn"]):
        other = data
    way = sealed if rng.random() < 0.1 else rng.choice(CLEAR)
    return way(rng, data, other)


# --- opening


class TooLongError(BaseException):
    """No error that anybody catches by mistake."""


@contextmanager
def limited():
    """Stop what takes more than its share of processor time."""

    def stop(*_):
        raise TooLongError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def typed(value, like, where=""):
    """Where a value has another type than its sound counterpart."""
    if isinstance(like, dict) and isinstance(value, dict):
        return [
            odd
            for key in like.keys() & value.keys()
            for odd in typed(value[key], like[key], f"{where}.{key}")
        ]
    if isinstance(like, list) and isinstance(value, list):
        return [
            odd
            for key, pair in enumerate(zip(value, like, strict=False))
            for odd in typed(*pair, f"{where}.{key}")
        ]
    numbers = {int, float}
    kinds = {type(like)} | (numbers if isinstance(like, float) else set())
    kinds |= {type(None), *numbers} if like is None else set()
    kinds |= (
        {type(None)}
        if where.endswith(
            (".gradient_projection", ".cap", ".weight_scale", ".lenders", ".nu", ".clip", ".classes")
        )
        else set()
    )
    return [] if type(value) in kinds else [f"{where} is {value!r:.40}"]


def open_mark(path, like):
    mark = Watermark.load(path, WORDS)
    odd = typed(mark.context, like["context"], "context") + typed(
        mark.recipe.record(), like["recipe"], "recipe"
    )
    assert not odd, odd
    assert len(mark.carriers) == mark.m
    assert len(repr(mark)) < 1000
    if mark.score_channel is None or mark.baseline is not None:
        assert mark.bits.sum() * 2 == mark.m
        assert np.isfinite(mark.targets).all()
    for reading in mark.readings:
        mark.direction(reading.access, 8)


def open_secret(path, like):
    assert len(bytes(Secret.load(path, WORDS))) == 32


def open_model(path, like):
    model = load_model(path)
    assert not typed(model.architecture, like["architecture"], "architecture")
    state = model.state_dict()
    stored = container.read(path, "model", framework="torch").tensors
    assert {name: value.shape for name, value in state.items()} == {n: v.shape for n, v in stored.items()}
    assert not any(value.is_meta for value in state.values())
    if all(value.dtype == torch.float32 for value in model.parameters()):
        loops = torch.arange(3).repeat(2, 1)
        with torch.no_grad():
            out = model(
                torch.zeros(3, model.architecture["in_channels"]), loops, torch.zeros(3, dtype=torch.int64)
            )
        assert out.shape[-1] == model.architecture["out_channels"]


OPENERS = {"mark": open_mark, "secret": open_secret, "model": open_model}


def outcome(kind, path, like):
    """What happened to a file: a word, or a description of what should not have."""
    data, before = path.read_bytes(), sorted(path.parent.iterdir())
    try:
        with limited():
            OPENERS[kind](path, like)
        result = "opened"
    except InvgnnError as error:
        if len(str(error)) > 2000 or (isinstance(error, FileError) and not error.advice):
            result = f"a poor message: {str(error)[:200]}"
        else:
            result = (
                "refused as unsound"
                if "sound mark" in str(error) or "it names" in str(error)
                else "refused"
            )
    except (Exception, TooLongError) as error:
        result = f"{type(error).__name__}: {str(error)[:200]}"
    if sorted(path.parent.iterdir()) != before or path.read_bytes() != data:
        result = "something was written"
    return result


FINE = {"opened", "refused", "refused as unsound"}


def run(kind, sources, folder, count):
    """Open `count` examples, in turn from every source; return how often what happened."""
    path, names, seen = folder / f"a.{kind}", sorted(sources), {}
    likes = {name: like(data) for name, data in sources.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        name = names[number % len(names)]
        path.write_bytes(mutated(sources, name, number))
        found = outcome(kind, path, likes[name])
        seen.setdefault(found, []).append((name, number))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) // 1024
    wrong = {found: (len(where), where[:3]) for found, where in seen.items() if found not in FINE}
    assert not wrong, "\n".join(f"{found}: {where}" for found, where in wrong.items())
    assert grown < MEMORY, f"memory grew by {grown} MB"
    return {found: len(where) for found, where in seen.items()}


def like(data):
    """The body of a source, whose types a mutated file may not change."""
    meta, raws = parts(data)
    if "sealed" in meta:
        inside = container._unseal(meta, raws, WORDS, "source")
        meta, _ = parts(inside)
    return meta["body"]


# --- sources


def written(path):
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.fixture(scope="module")
def sources(rings, tmp_path_factory):
    """Sound files of each kind."""
    folder = tmp_path_factory.mktemp("sources")
    few, path = rings.take(np.arange(40)), folder / "a"
    found = {"mark": {}, "secret": {}, "model": {}}

    def keep(kind, name):
        found[kind][name] = written(path)
        if name in ("embedding", "clear"):
            found[kind][f"sealed {name}"] = close(found[kind][name], kind)

    ways = {
        "embedding": {},
        "labels": {"access": ("labels", "logits"), "classes": 3},
        "plain": {"key": "plain"},
    }
    ways["scores"] = {"score_channel": 16}
    for name, options in ways.items():
        mark = Watermark.draw(Secret(bytes(32)), few, m=8, **options)
        mark.save(path, insecure_no_passphrase=True)
        keep("mark", name)
    for name in ("v1-graph", "v1-score-channel", "v1-whole-numbers"):
        found["mark"][name] = (GOLDEN / f"{name}.mark").read_bytes()
    Secret(bytes(32)).save(path, None, insecure_no_passphrase=True)
    keep("secret", "clear")
    for make, options in ((GIN, {}), (GCN, {"level": "node"}), (GraphSAGE, {}), (SGC, {"level": "node"})):
        model = make(3, 4, 1 if make is SGC else 2, 2, **options)
        if make is GIN:
            attach_head(model, 4)
        save_model(path, model)
        keep("model", make.__name__)
    found["model"]["v1-gin"] = (GOLDEN / "v1-gin.model").read_bytes()
    return found


@pytest.mark.parametrize("kind", OPENERS)
def test_the_sources_open(sources, tmp_path, kind):
    for name, data in sources[kind].items():
        path = tmp_path / "a"
        path.write_bytes(data)
        assert outcome(kind, path, like(data)) == "opened", name


@pytest.mark.parametrize(("kind", "count"), [("mark", 180), ("secret", 50), ("model", 110)])
def test_some_mutated_files(sources, tmp_path, monkeypatch, kind, count):
    monkeypatch.chdir(tmp_path)
    seen = run(kind, sources[kind], tmp_path, count)
    assert seen["refused"] > 5
    assert kind == "secret" or seen["refused as unsound"] > 20  # the checks of the content were reached
    assert seen["opened"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("mark", 5000), ("secret", 1500), ("model", 3500)])
def test_many_mutated_files(sources, tmp_path, monkeypatch, kind, count):
    monkeypatch.chdir(tmp_path)
    run(kind, sources[kind], tmp_path, count)


def test_a_changed_seal_opens_to_nothing_else(sources, tmp_path):
    path, opened = tmp_path / "a.secret", 0
    for number in range(150):
        path.write_bytes(mutated(sources["secret"], "sealed clear", number))
        with suppress(InvgnnError):
            assert Secret.load(path, WORDS) == Secret(bytes(32))
            opened += 1
    assert 0 < opened < 20  # the same content in a header of another form


# --- one field at a time: every hostile value at every place of a body


def bodies(data):
    """Every body that differs from a sound one in one hostile value."""
    meta, raws = parts(data)
    for index in range(len(list(places(meta["body"])))):
        for value in HOSTILE:
            body = copy.deepcopy(meta["body"])
            held, key = list(places(body))[index]
            held[key] = copy.deepcopy(value)
            yield {**meta, "body": body}, raws


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [("mark", "embedding"), ("mark", "v1-score-channel"), ("model", "GIN")]
)
def test_every_hostile_value_everywhere(sources, tmp_path, kind, name):
    path, wrong = tmp_path / "a", []
    sound = like(sources[kind][name])
    for meta, raws in bodies(sources[kind][name]):
        path.write_bytes(mended(meta, raws))
        found = outcome(kind, path, sound)
        if found not in FINE:
            wrong.append((found, json.dumps(meta["body"])[:300]))
    assert not wrong, wrong[:5]


def test_a_model_file_allocates_nothing_that_it_does_not_hold(sources, tmp_path):
    path = tmp_path / "a.model"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    changes = [
        {name: value} for name in ("in_channels", "hidden_channels", "out_channels") for value in NUMBERS
    ]
    changes += [{"num_layers": value} for value in [*NUMBERS, True, 2.0, 257]]
    changes += [{"dropout": value} for value in [True, None, "0.5", 1.5, -0.1, 10**400, 1e308]]
    changes += [{"level": "edge"}, {"name": "GAT"}, {"name": ["GIN"]}, {"bias": False}]
    head = {"width": 4, "nu": 1.0, "non_negative": False, "clip": None}
    heads = [
        {"width": 10**12},
        {"width": True},
        {"nu": 0},
        {"nu": -1},
        {"nu": 10**30},
        {"nu": "1"},
        {"nu": True},
    ]
    heads += [{"clip": -1}, {"clip": [1]}, {"non_negative": 1}, {"non_negative": None}, {"more": 1}]
    changes += [{"perception": head | one} for one in heads] + [
        {"perception": one} for one in (1, [], {}, "x", None)
    ]
    for change in changes:
        meta, raws = parts(sources["model"]["GIN"])
        sound = meta["body"]["architecture"]
        if all(
            sound.get(name) == value and type(sound.get(name)) is type(value)
            for name, value in change.items()
        ):
            continue
        meta["body"]["architecture"] = {**sound, **change}
        path.write_bytes(packed(meta, raws))
        began = time.process_time()
        with pytest.raises(FileError) as caught:
            load_model(path)
        assert time.process_time() - began < 1, change
        assert caught.value.advice
        assert len(caught.value.message) < 1000
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < MEMORY, f"memory grew by {grown} MB"
