"""A served model: a foreign client, every kind of output, limits, bad requests and a clean end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from contextlib import suppress

import httpx
import numpy as np
import pytest
import schemathesis
import torch
import tritonclient.http as triton
from hypothesis import HealthCheck, settings
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from _helpers.servers import forked, served
from invgnn.cli import app
from invgnn.nn.backbones import GIN
from invgnn.nn.forward import to_batch
from invgnn.nn.model_file import save_model
from invgnn.serve import run
from invgnn.serve.app import make_app
from invgnn.serve.settings import Limits, Returned


@pytest.fixture(scope="module")
def model(rings):
    return GIN(rings.x.shape[1], 8, 3, 2).eval()


@pytest.fixture(scope="module")
def batch(rings):
    return to_batch(rings.take(range(5)))


def direct(model, batch):
    with torch.no_grad():
        return model(batch.x, batch.edge_index, batch.batch)


def body(batch, **changes):
    """A request in plain JSON."""
    tensors = {
        "x": ("FP32", batch.x),
        "edge_index": ("INT64", batch.edge_index),
        "batch": ("INT64", batch.batch),
    }
    inputs = [
        {"name": name, "datatype": kind, "shape": list(value.shape), "data": value.flatten().tolist()}
        for name, (kind, value) in tensors.items()
    ]
    return {"id": "7", "inputs": inputs} | changes


def talk(app, *requests):
    """Send requests to an application in this process, all at once."""

    async def all_of_them():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await asyncio.gather(*(client.request(*one[:2], **one[2]) for one in requests))

    return asyncio.run(all_of_them())


def infer(app, message, **options):
    given = {"content": message} if isinstance(message, bytes) else {"json": message}
    return talk(app, ("POST", "/v2/models/model/infer", given | options))[0]


@pytest.fixture(scope="module")
def address(model):
    with forked(make_app(model, "rings", Returned("scores"))) as (base, _):
        yield f"{base}/v2/models/rings/infer"


def test_a_foreign_client(address, model, batch):
    client = triton.InferenceServerClient(address.split("/")[2])
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("rings")
        assert client.is_model_ready("rings", "1")
        assert client.get_server_metadata()["name"] == "invgnn"
        named = client.get_model_metadata("rings")
        assert [one["name"] for one in named["inputs"]] == ["x", "edge_index", "batch"]
        inputs = []
        for name, kind, value in (
            ("x", "FP32", batch.x),
            ("edge_index", "INT64", batch.edge_index),
            ("batch", "INT64", batch.batch),
        ):
            inputs.append(triton.InferInput(name, list(value.shape), kind))
            inputs[-1].set_data_from_numpy(value.numpy(), binary_data=False)
        wanted = [triton.InferRequestedOutput("scores", binary_data=False)]
        found = client.infer("rings", inputs, outputs=wanted, request_id="42")
        assert found.get_response()["id"] == "42"
        # single precision survives JSON to the last bit
        assert np.array_equal(found.as_numpy("scores"), direct(model, batch).numpy())
        with pytest.raises(triton.InferenceServerException, match="no such model"):
            client.infer("circles", inputs)
    finally:
        client.close()


def test_a_model_of_anybodys_own_from_the_command_line_to_a_clean_end(batch, tmp_path):
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch_geometric.nn import GCNConv, global_mean_pool\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.a = GCNConv(3, 2)\n"
        "    def forward(self, x, edge_index, batch, edge_weight):\n"
        "        return global_mean_pool(self.a(x, edge_index, edge_weight), batch)\n"
    )
    space: dict = {}
    exec((tmp_path / "nets.py").read_text(), space)  # noqa: S102 - its own code
    net = space["Net"]()
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    weight = torch.rand(batch.edge_index.shape[1])
    message = body(batch)
    message["inputs"].append(
        {"name": "edge_weight", "datatype": "FP32", "shape": [len(weight)], "data": weight.tolist()}
    )
    options = ("--model", tmp_path / "w.safetensors", "--architecture", "nets:Net", "--output", "scores")
    with served(*options, "--json", cwd=tmp_path) as (child, address):
        reply = httpx.post(address, json=message).json()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert json.loads(out) == {"address": address, "requests": 1}
    assert "Traceback" not in err
    with torch.no_grad():
        wanted = net(batch.x, batch.edge_index, batch.batch, weight)
    assert torch.equal(torch.tensor(reply["outputs"][0]["data"]).view(-1, 2), wanted)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--output", "weights"), "unknown output"),
        (("--digits", "40"), "digits is 40"),
        (("--name", "a/b"), "no name of a model"),
        (("--max-graphs", "0"), "graphs is 0"),
        (("--host", "203.0.113.7"), "cannot listen"),
    ],
)
def test_settings_that_cannot_be(model, tmp_path, options, told):
    save_model(tmp_path / "a.model", model)
    done = CliRunner().invoke(app, ["serve", "--model", str(tmp_path / "a.model"), *options])
    assert done.exit_code == 2
    assert told in done.stderr


# -- outputs -------------------------------------------------------------------------------------------


def test_every_kind_of_output(model, batch):
    logits = direct(model, batch)
    reply = infer(make_app(model), body(batch)).json()
    assert reply["id"] == "7"
    (one,) = reply["outputs"]
    assert (one["name"], one["datatype"], one["shape"]) == ("probabilities", "FP32", [5, 2])
    assert np.allclose(np.reshape(one["data"], (5, 2)), logits.softmax(1), atol=1e-6)
    two = infer(make_app(model, returned=Returned(digits=2)), body(batch)).json()["outputs"][0]["data"]
    assert np.array_equal(np.float32(two), np.float32(one["data"]).round(2))
    app = make_app(model, returned=Returned("labels", embeddings=True))
    labels, hidden = infer(app, body(batch)).json()["outputs"]
    assert labels["data"] == logits.argmax(1).tolist()
    assert hidden["shape"] == [5, 8]
    only = infer(app, body(batch, outputs=[{"name": "labels"}])).json()["outputs"]
    assert [out["name"] for out in only] == ["labels"]


def test_a_model_that_computes_nan_answers_null(model, batch):
    broken = GIN(3, 8, 3, 2)
    with torch.no_grad():
        for each in broken.parameters():
            each.fill_(torch.nan)
    reply = infer(make_app(broken), body(batch))
    assert reply.status_code == 200
    assert set(reply.json()["outputs"][0]["data"]) == {None}


def test_the_model_stays_as_it_is(model, batch, unchanged):
    app = make_app(model)
    with unchanged(model):
        infer(app, body(batch))
        infer(app, b"nonsense")


# -- bad requests --------------------------------------------------------------------------------------


def changed(batch, name, **fields):
    message = body(batch)
    for one in message["inputs"]:
        if one["name"] == name:
            one.update(fields)
    return message


BAD = {
    "no JSON": lambda b: b"<html>",
    "a list": lambda b: [],
    "deep": lambda b: b"[" * 100_000,
    "no inputs": lambda b: {"inputs": []},
    "NaN": lambda b: json.dumps(changed(b, "x", data=[float("nan")] * b.x.numel())).encode(),
    "text": lambda b: changed(b, "x", data=["a"] * b.x.numel()),
    "ragged": lambda b: changed(b, "x", data=[[1, 2], [3]]),
    "too few": lambda b: changed(b, "x", data=[1.0]),
    "shape of billions": lambda b: changed(b, "x", shape=[1 << 30, 1 << 30]),
    "overflow": lambda b: changed(b, "x", data=[1e300] * b.x.numel()),
    "huge whole numbers": lambda b: changed(b, "batch", data=[10**30] * len(b.batch)),
    "negative owner": lambda b: changed(b, "batch", data=[-1] * len(b.batch)),
    "owner missing": lambda b: changed(b, "batch", data=[5] * len(b.batch)),
    "edge out of range": lambda b: changed(b, "edge_index", data=[10**6] * b.edge_index.numel()),
    "edge negative": lambda b: changed(b, "edge_index", data=[-1] * b.edge_index.numel()),
    "edges of one row": lambda b: changed(b, "edge_index", shape=[b.edge_index.numel()]),
    "fractions of nodes": lambda b: changed(b, "edge_index", data=[0.5] * b.edge_index.numel()),
    "other width": lambda b: changed(b, "x", shape=[len(b.x), 1], data=[1.0] * len(b.x)),
    "twice": lambda b: body(b, inputs=body(b)["inputs"] * 2),
    "unknown output": lambda b: body(b, outputs=[{"name": "weights"}]),
    "too many graphs": lambda b: changed(b, "batch", data=list(range(len(b.batch)))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_explained(model, batch, name):
    app = make_app(model, limits=Limits(graphs=10))
    reply = infer(app, BAD[name](batch))
    assert reply.status_code == 400, reply.text
    assert set(reply.json()) == {"error"}
    assert infer(app, body(batch)).status_code == 200  # and the next one is answered


def test_too_large_is_refused_unread(model, batch):
    app = make_app(model, limits=Limits(body=1000))
    assert infer(app, body(batch)).status_code == 413

    async def endless():
        while True:
            yield b" " * 600

    assert infer(app, b"", content=endless()).status_code == 413
    assert infer(app, b"{}").status_code == 400


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.go, self.weight = threading.Event(), nn.Parameter(torch.ones(1))

    def forward(self, x, edge_index, batch):
        self.go.wait(20)
        return torch.zeros(int(batch.max()) + 1, 2) * self.weight


def test_too_many_and_too_slow(batch):
    slow = Slow()
    app = make_app(slow, limits=Limits(concurrency=2, seconds=0.3))
    request = ("POST", "/v2/models/model/infer", {"json": body(batch)})
    try:
        codes = sorted(reply.status_code for reply in talk(app, request, request, request, request))
    finally:
        slow.go.set()
    assert codes == [503, 503, 504, 504]
    time.sleep(0.05)
    assert talk(app, request)[0].status_code == 200


def test_a_request_that_never_arrives_is_ended(model):
    app = make_app(model, limits=Limits(seconds=0.2))

    async def dripping():
        yield b"{"
        await asyncio.sleep(5)

    assert infer(app, b"", content=dripping()).status_code == 408


def test_a_head_that_never_arrives_is_ended(model, monkeypatch):
    monkeypatch.setattr(run, "IDLE", 0.3)
    with run.serving(make_app(model)) as base:
        port = int(base.rsplit(":", 1)[1])

        def received(*parts):
            """All that the server sends before it closes; parts are sent a tenth of a second apart."""
            found = b""
            with socket.create_connection(("127.0.0.1", port), timeout=20) as held, suppress(OSError):
                for part in parts:
                    held.sendall(part)
                    time.sleep(0.1)
                while part := held.recv(1000):
                    found += part
                return found
            return found  # the server closed the connection while parts were sent

        start = time.monotonic()
        assert received() == b""  # not a byte
        assert received(b"GET /v2/health/live HTT") == b""  # stops in the middle
        assert received(*(bytes([one]) for one in b"GET /v2/health/live HTTP/1.1")) == b""  # too slow
        assert time.monotonic() - start < 15  # no connection was left to the time-out of the client
        assert b"live" in received(b"GET /v2/health/live HTTP/1.1\r\n", b"host: a\r\n\r\n")
        assert httpx.get(f"{base}/v2/health/live").json() == {"live": True}


APP = make_app(GIN(3, 8, 3, 2), limits=Limits(seconds=20))
schema = schemathesis.openapi.from_asgi("/openapi.json", APP)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.negative_data_rejection,
]


@schema.parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_schema_is_kept_under_fuzzing(case):
    case.call_and_validate(checks=CHECKS)
