"""An ASGI application that answers like a copy of a marked model: a few bits are wrong."""

from __future__ import annotations

import json

import numpy as np

from _helpers.hostile import key_of, keys_of

WRONG = (3, 8)
"""Carriers that the copy answers wrongly; one bit of each kind."""


def copy_of(mark):
    """The application. Its answers are whole multiples of 1/8, so every machine sends the same bytes."""
    graphs, labels = mark.asked
    signs, table = mark.direction("logits", mark.classes).numpy(), {}
    for place, number in enumerate(mark.order.tolist()):
        if number < mark.m:
            said = int(mark.bits[number]) ^ (number in WRONG)
            row = (2 * said - 1) * signs * (1 + number / 8)
        else:
            row = np.eye(mark.classes)[int(labels[place])] * 2 + place % 7 / 8
        graph = graphs.take([place])
        table[key_of(graph.x.tolist(), graph.directed().T.tolist())] = (row - row.mean()).tolist()

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        request = json.loads(body)
        rows = [table[key] for key in keys_of(request)]
        shape, flat = [len(rows), len(rows[0])], [value for row in rows for value in row]
        out = {"name": "scores", "datatype": "FP32", "shape": shape, "data": flat}
        reply = json.dumps({"id": request["id"], "outputs": [out]}).encode()
        length = (b"content-length", str(len(reply)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": reply})

    return app
