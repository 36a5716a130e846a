"""docs/reference/file-format.md, taken at its word: a reader of marks from hashlib, json and numpy alone.

Nothing in the first part imports the library. The second part compares it with what the library derives.
"""

import hashlib
import itertools
import json
import math
import re
import statistics
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference/file-format.md"
GOLDEN = Path(__file__).parents[1] / "golden"

# --- canonical encoding


def u64(n):
    return n.to_bytes(8, "little")


def item(tag, content):
    return tag + u64(len(content)) + content


def enc(value):
    match value:
        case None:
            return item(b"n", b"")
        case bool():
            return item(b"o", b"\1" if value else b"\0")
        case int():
            return item(b"i", f"{value:x}".encode())
        case float():
            return item(b"d", struct.pack("<d", value))
        case str():
            return item(b"s", value.encode())
        case bytes():
            return item(b"b", value)
        case np.ndarray():
            return item(b"a", enc(value.dtype.str) + enc(list(value.shape)) + value.tobytes())
        case list():
            return item(b"l", b"".join(map(enc, value)))
        case dict():
            pairs = sorted((key.encode(), part) for key, part in value.items())
            return item(b"m", b"".join(item(b"s", key) + enc(part) for key, part in pairs))
    raise TypeError(type(value))


def digest(domain, value):
    return hashlib.sha256(enc(domain) + enc(value)).hexdigest()


# --- container

DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U8": "|u1"}  # those of marks


def read(path):
    """Kind, version, body and tensors of a clear file, its digest checked."""
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    meta = json.loads(header.pop("__metadata__")["invgnn"])
    raw, tensors = {}, {}
    for name, about in header.items():
        start, end = (8 + size + offset for offset in about["data_offsets"])
        raw[name] = {"dtype": about["dtype"], "shape": about["shape"], "data": data[start:end]}
        array = np.frombuffer(data[start:end], DTYPES[about["dtype"]])
        tensors[name] = array.reshape(about["shape"])
    kind, version, body = meta["kind"], meta["version"], meta["body"]
    whole = {"kind": kind, "version": version, "body": body, "tensors": raw}
    known = digest("invgnn/file/2", whole) if version == 2 else digest_1(kind, body, raw)
    assert meta["digest"] == known
    return version, body, tensors


def field(x):
    return u64(len(x)) + x


def canonical_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_1(kind, body, raw):
    fields = [b"invgnn/file", kind.encode(), b"1", canonical_json(body)]
    for name, one in sorted(raw.items()):
        fields += [name.encode(), one["dtype"].encode(), canonical_json(one["shape"]), one["data"]]
    return hashlib.sha256(b"".join(map(field, fields))).hexdigest()


# --- streams


class Stream:
    def __init__(self, secret, label, *parts):
        key = hashlib.shake_256(b"".join(map(enc, ("invgnn/1", secret, label, *parts)))).digest(32)
        blocks = (hashlib.shake_256(key + u64(i)).digest(4096) for i in itertools.count())
        self.bytes = itertools.chain.from_iterable(blocks)

    def take(self, n):
        return bytes(itertools.islice(self.bytes, n))

    def words(self, n):
        return [int.from_bytes(self.take(8), "little") for _ in range(n)]

    def below(self, bounds):
        found, waiting = [None] * len(bounds), list(range(len(bounds)))
        while waiting:
            words = dict(zip(waiting, self.words(len(waiting)), strict=True))
            waiting = [i for i in waiting if words[i] >= 2**64 // bounds[i] * bounds[i]]
            for i in words.keys() - set(waiting):
                found[i] = words[i] % bounds[i]
        return found

    def permutation(self, n):
        order = list(range(n))
        for i, j in zip(range(n - 1, 0, -1), self.below(list(range(n, 1, -1))), strict=True):
            order[i], order[j] = order[j], order[i]
        return order

    def signs(self, n):
        packed = self.take(-(-n // 8))
        return [2 * (packed[k // 8] >> k % 8 & 1) - 1 for k in range(n)]

    def balanced(self, m):
        return [int(entry < m // 2) for entry in self.permutation(m)]

    def normal(self, n):
        found = []
        for _ in range(n):
            a, b, c = self.words(3)
            q = Fraction(2 * ((a // 2 << 128) + (b << 64) + c) + 1, 2**193)
            found.append((1 if a % 2 else -1) * outside(float(q)))
        return np.array(found)


def outside(q):
    """The number beyond which a normal one lies with probability q, by Newton's method."""
    x = -statistics.NormalDist().inv_cdf(q)
    for _ in range(3):
        x += (math.erfc(x / math.sqrt(2)) / 2 - q) / (math.exp(-x * x / 2) / math.sqrt(2 * math.pi))
    return x


# --- marks


class Mark:
    """What derives from a mark of format 2."""

    def __init__(self, path):
        self.version, self.body, self.tensors = read(path)
        self.context = self.body["context"]
        assert self.context["format"] == 2
        self.secret = self.tensors["secret"].tobytes()
        self.bound = digest("invgnn/context/2", self.context)
        self.questions = {name: self.graphs(name) for name in ("carriers", "ordinary")}
        self.questions["labels"] = self.tensors.get("labels")
        if "shown.ptr" in self.tensors:
            self.questions["shown"] = self.shown()
        self.asked = [digest("invgnn/questions/2", self.questions)]
        if "inputs" in self.body:
            memory = {"inputs": self.body["inputs"], "scores": self.tensors["before"]}
            self.asked.append(digest("invgnn/baseline/2", memory))
        self.digest = digest("invgnn/mark/2", [self.bound, *self.asked])
        self.m = self.context["m"]

    def graphs(self, name):
        found = {part: self.tensors.get(f"{name}.{part}") for part in ("ptr", "edges", "x")}
        if found["edges"] is None:
            return found | {"edges": self.tensors[f"{name}.arrows"], "directed": True}
        return found

    def shown(self):
        found = {part: self.tensors[f"shown.{part}"] for part in ("ptr", "arrow_ptr", "edge_index")}
        for kind in ("node", "edge", "graph"):
            head = f"shown.{kind}."
            names = [name for name in self.tensors if name.startswith(head)]
            found[kind] = {name.removeprefix(head): self.tensors[name] for name in names}
        return found

    def stream(self, label, *parts):
        return Stream(self.secret, label, *parts)

    def bits(self):
        return self.stream("bits", self.bound, *self.asked).balanced(self.m)

    def order(self):
        ordinary = len(self.questions["ordinary"]["ptr"]) - 1
        return self.stream("order", self.bound).permutation(self.m + ordinary)

    def embedding(self, width):
        return self.stream("projection", self.bound, "embedding").signs(width)

    def classes(self, access, width):
        n = self.context["classes"] or width
        access = "logits" if "shared_halves" in self.context else access
        order = self.stream("projection", self.bound, access, n).permutation(n)
        return np.array([1.0 if entry < n // 2 else -1.0 for entry in order])

    def normal(self, n):
        return self.stream("function", self.bound, *self.asked).normal(n)


def log_softmax(rows):
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def answers(mark, sent):
    """Answers at `logits` to every question, carriers first, from percentages in any columns."""
    logs = log_softmax(np.log(np.maximum(sent / 100, 1e-6)))
    order, classes = np.array(mark.order()), mark.context["classes"]
    labels = np.append(np.full(mark.m, -1), mark.questions["labels"])[order]
    held = np.flatnonzero((labels >= 0) & np.isfinite(logs).all(1))
    rows, of = logs[held] - logs[held].mean(0), labels[held]
    fit = 1e-9 * np.eye(classes, logs.shape[1])
    for c in set(of.tolist()):
        fit[c] += rows[of == c].mean(0)
    ways = itertools.permutations(range(logs.shape[1]), classes)
    columns = max(ways, key=lambda way: sum(fit[c, j] for c, j in enumerate(way)))
    signs = mark.classes("logits", classes)
    said = log_softmax(logs[:, columns]) @ (signs - signs.mean()) / math.sqrt(classes)
    sizes = sorted(abs(value) for value in said.tolist() if value and math.isfinite(value))
    unit = 2.0 ** (math.floor(math.log2(sizes[(len(sizes) - 1) // 2])) + 1 - 40)
    said = np.round(said / unit) * unit
    void = np.isnan(said)
    said[void] = np.quantile(said[~void], 0.5, method="lower")
    found = np.empty_like(said)
    found[order] = said
    return columns, found


def activations(x, edges, owners, node_task):
    """The public features before they are centred; `owners` is the graph of every node."""
    degree = np.bincount(edges[0], minlength=len(x)).astype(np.float32)
    size = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
    start = np.column_stack([np.log(1 + degree), np.ones(len(x)), x / size]).astype(np.float32)
    counts = np.bincount(owners)[:, None].astype(np.float32)
    found = []
    for net in range(2):
        rows = start
        for layer in range(3):
            width = rows.shape[1]
            stream = Stream(b"", "features", net, layer, width)
            matrix = np.array(stream.signs(width * 128), np.float32).reshape(width, 128) / math.sqrt(width)
            bias = np.array([2 * word / 2**64 - 1 for word in stream.words(128)], np.float32)
            mapped = rows @ matrix.astype(np.float32)
            near = np.zeros_like(mapped)
            np.add.at(near, edges[0], mapped[edges[1]])
            d = np.maximum(degree, 1)[:, None]
            mixed = mapped + near / (d if net == 0 else np.sqrt(d))
            rows = np.tanh(1.5 * mixed / np.maximum(mixed.std(0), 1e-6) + bias)
            total = np.zeros((len(counts), 128), np.float32)
            np.add.at(total, owners, rows)
            found += [rows] if node_task else [total / counts, total]
    return np.concatenate(found, axis=1).astype(np.float64)


# --- the library says the same


@pytest.fixture(scope="module")
def saved(draw, motifs, rings, tmp_path_factory):
    """Marks that the library drew and wrote, by name, with their files."""
    from invgnn.secret import Secret
    from invgnn.training.tasks import new_model
    from invgnn.watermark.mark import Watermark

    folder = tmp_path_factory.mktemp("marks")
    levels = ("embedding", "logits", "labels")
    drawn = draw(score_channel=16)
    model = new_model(motifs, "GCN", 0, hidden_channels=8)
    marks = {
        "graph": draw(access=levels),
        "apart": draw(access=levels, shared_halves=False),
        "node": draw("node", access=levels),
        "unlabelled": Watermark.draw(Secret(bytes(range(32))), rings, m=8),
        "channel": drawn.with_baseline(model, motifs.data),
        "tensors": Watermark.load(GOLDEN / "v2-edge-attributes.mark"),
        "directed": Watermark.load(GOLDEN / "v2-directed.mark"),
    }
    for name, mark in marks.items():
        mark.save(folder / name, insecure_no_passphrase=True)
    return {name: (mark, folder / name) for name, mark in marks.items()}


NAMES = ["graph", "apart", "node", "unlabelled", "channel", "tensors", "directed"]


@pytest.mark.parametrize("name", NAMES)
def test_everything_derives_as_the_page_says(saved, name):
    mark, path = saved[name]
    ours = Mark(path)
    assert ours.version == 2
    assert ours.bound == mark.bound
    assert ours.asked == mark._asked_about
    assert ours.digest == mark.digest == ours.body["digest"]
    assert ours.bits() == mark.bits.tolist()
    assert ours.order() == mark._order.tolist()
    for width in (1, 8, 200):
        assert ours.embedding(width) == mark.direction("embedding", width).tolist()
        values = ours.stream("projection", ours.bound, "values").signs(width)
        assert values == mark.direction("values", width).tolist()
    assert (ours.context["classes"] is None) == (name == "unlabelled")
    width = mark.classes or 5
    signs = {access: ours.classes(access, width) for access in ("logits", "labels")}
    known = {access: mark.direction(access, width).numpy() for access in signs}
    np.testing.assert_array_equal(known["labels"], signs["labels"])
    np.testing.assert_allclose(known["logits"], signs["logits"] - signs["logits"].mean(), atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_the_questions_are_those_that_are_asked(saved, name):
    from invgnn.storage.encoding import encode

    mark, path = saved[name]
    ours = Mark(path)
    assert enc(ours.questions) == mark.questions.bytes == encode(ours.questions)
    assert (ours.questions["labels"] is None) == (mark.labels is None) == (name == "unlabelled")


def test_further_tensors_are_donated_as_the_page_says():
    """Every number of the stream `tensors`, and whose tensors each node, edge and graph got."""
    from _helpers.chords import chords

    mark = Mark(GOLDEN / "v2-edge-attributes.mark")
    task = [chords(number) for number in range(40)]
    stream, shown = mark.stream("tensors", mark.bound), mark.questions["shown"]
    rows = [(tuple(x), z) for one in task for x, z in zip(one.x.tolist(), one.z.tolist(), strict=True)]
    carriers = mark.questions["carriers"]
    donors = [[z for x, z in rows if x == tuple(features)] for features in carriers["x"].tolist()]
    drawn = stream.below([len(one) for one in donors])
    nodes = len(carriers["x"])
    assert [one[i] for one, i in zip(donors, drawn, strict=True)] == shown["node"]["z"][:nodes].tolist()
    edges = []
    for one in task:
        attributes = dict(
            zip(zip(*one.edge_index.tolist(), strict=True), one.edge_type.tolist(), strict=True)
        )
        edges += [(attributes[u, v], attributes[v, u]) for u, v in sorted(attributes) if u < v]
    found = dict(
        zip(zip(*shown["edge_index"].tolist(), strict=True), shown["edge"]["edge_type"], strict=True)
    )
    drawn = stream.below([len(edges)] * len(carriers["edges"]))
    for (u, v), donor in zip(carriers["edges"].tolist(), drawn, strict=True):
        assert (found[u, v], found[v, u]) == edges[donor]
    drawn = stream.below([len(task)] * mark.m)
    assert [float(task[i].u) for i in drawn] == shown["graph"]["u"][: mark.m].ravel().tolist()


def test_answers_are_read_as_the_page_says(draw, tmp_path):
    from invgnn.audit.examine import examine

    mark = draw(access="logits", classes=3)
    mark.save(tmp_path / "m", insecure_no_passphrase=True)
    rng = np.random.default_rng(0)
    asked = np.append(np.full(mark.m, -1), mark.labels)[mark._order]
    scores = rng.normal(size=(len(asked), 3)) + 3 * (asked[:, None] == np.arange(3))
    sent = np.roll(100 * np.exp(log_softmax(scores)), 1, axis=1)
    sent[[0, 5]] = np.nan
    columns, said = answers(Mark(tmp_path / "m"), sent)
    found = [one for one in _ways(mark, sent, examine) if one[0] == columns]
    assert columns == (1, 2, 0)
    assert len(found) == 1
    np.testing.assert_allclose(found[0][1], said, rtol=1e-9, atol=2.0**-38)


def _ways(mark, sent, examine):
    """Every way in which the library reads the columns, and its answers."""
    assert examine(mark, lambda batch: sent).tests == 2
    replies = mark.ask(lambda batch: sent)
    for columns in replies.alignments:
        given = mark.answers(replies, mark.reading("logits"), columns)
        yield columns, np.append(given.carriers, given.ordinary)


def test_labels_are_kept_where_there_are_classes(saved):
    rows = {name: Mark(path).questions["labels"] for name, (_, path) in saved.items()}
    ordinary = Mark(saved["node"][1]).questions["ordinary"]["ptr"]
    assert rows["graph"].shape == (64,)
    assert rows["node"].shape == (ordinary[-1],)
    assert {rows["graph"].min(), rows["graph"].max()} == {0, 1}


def test_inputs_have_the_digest_of_the_page(saved, motifs):
    graphs = [
        {
            name: {"as": "", "values": np.asarray(value)} if hasattr(value, "numpy") else value
            for name, value in graph.to_dict().items()
            if name != "y" and not name.endswith("_mask")
        }
        for graph in motifs.data
    ]
    assert Mark(saved["channel"][1]).body["inputs"] == digest(
        "invgnn/inputs/2", {"level": "graph", "graphs": graphs}
    )


def test_the_score_channel_points_where_the_page_says(saved, motifs):
    mark, path = saved["channel"]
    channel = mark.channel(motifs.data)
    axes = channel.features.axes.numpy()
    shadow = axes.T @ Mark(path).normal(len(axes))
    np.testing.assert_allclose(channel.direction, shadow / np.linalg.norm(shadow), atol=1e-12)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_features_are_those_of_the_page(motifs, web, level):
    from invgnn.watermark.inputs import Inputs
    from invgnn.watermark.public_features import _activations

    batch = next(Inputs((motifs if level == "graph" else web).data).batches(None))
    nodes = len(batch.x)
    owners = batch.batch.numpy() if level == "graph" else np.zeros(nodes, dtype=np.int64)
    ours = activations(batch.x.numpy(), batch.edge_index.numpy(), owners, level == "node")
    np.testing.assert_allclose(_activations(batch, level, None)[0].numpy(), ours, rtol=1e-3, atol=1e-3)


def test_normal_numbers_are_normal_to_the_last_digits():
    from invgnn.secret import public_stream
    from invgnn.watermark.gaussians import gaussians

    ours = Stream(b"", "numbers", 1).normal(300)
    np.testing.assert_allclose(gaussians(public_stream("numbers", 1), 300), ours, rtol=1e-12, atol=1e-12)
    assert abs(ours.mean()) < 0.25
    assert ours.std() == pytest.approx(1, abs=0.15)


def test_every_domain_is_on_the_page():
    source = Path(__file__).resolve().parents[2] / "src" / "invgnn"
    text = "".join(path.read_text(encoding="utf-8") for path in source.glob("**/*.py"))
    domains = set(re.findall(r'"(invgnn/[a-z]+/2)"', text)) | {"invgnn/file/2"}
    page = PAGE.read_text(encoding="utf-8")
    assert len(domains) >= 9
    assert sorted(domain for domain in domains if f"`{domain}`" not in page) == []


# --- format 1


def graphs_1(tensors, name):
    ptr, edges, x = (tensors.get(f"{name}.{part}") for part in ("ptr", "edges", "x"))
    width = -1 if x is None else x.shape[1]
    shape = np.array([len(ptr) - 1, ptr[-1], len(edges), width], dtype="<i8")
    text = b"invgnn.graphs/1\0" + b"".join(part.tobytes() for part in (shape, ptr, edges))
    if x is not None:
        text += (x + x.dtype.type(0)).tobytes()  # one zero
    return hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "name", ["graph", "node", "kept-features", "score-channel", "negative-zero", "whole-numbers"]
)
def test_marks_of_format_1_derive_as_the_page_says(name):
    golden = json.loads((GOLDEN / "v1.json").read_text())[name]
    version, body, tensors = read(GOLDEN / f"v1-{name}.mark")
    assert version == body["context"]["format"] == 1
    secret = tensors["secret"].tobytes()
    bound = hashlib.sha256(b"invgnn/context/1" + canonical_json(body["context"])).hexdigest()
    asked = [graphs_1(tensors, part) for part in ("carriers", "ordinary")]
    if "inputs" in body:
        shape = ",".join(map(str, tensors["before"].shape))
        memory = f"{body['inputs']};{shape};".encode() + tensors["before"].tobytes()
        asked.append(hashlib.sha256(memory).hexdigest())
    assert bound == golden["bound"]
    whole = hashlib.sha256("".join([bound, *asked]).encode()).hexdigest()
    assert whole == golden["digest"] == body["digest"]
    bits = Stream(secret, "bits", bound, *asked).balanced(body["context"]["m"])
    assert "".join(map(str, bits)) == golden["bits"]
    assert Stream(secret, "projection", bound, "embedding", 8).signs(8) == golden["embedding 8"]
    order = Stream(secret, "projection", bound, "logits", 3).permutation(3)
    assert [1 if entry < 1 else -1 for entry in order] == golden["logits 3"]
