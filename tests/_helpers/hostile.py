"""A server for tests, in a process of its own: it knows an answer to every question, and behaves as told.

    python hostile.py TABLE.json BEHAVIOUR [LOG]

The table maps a question to a list of replies, one for each model behind the server. Only the standard
library is used, so it starts at once. Every question is written to the log.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


def key_of(x, edges):
    """The key of a graph in the table: features and edges, numbered from 0."""
    return hashlib.sha256(json.dumps([x, sorted(edges)]).encode()).hexdigest()[:16]


def keys_of(request):
    """The keys of the graphs of a request of the Open Inference Protocol."""
    held = {one["name"]: one for one in request["inputs"]}
    nodes, width = held["x"]["shape"]
    flat, owners = held["x"]["data"], held["batch"]["data"]
    count = held["edge_index"]["shape"][1]
    pairs = held["edge_index"]["data"]
    found = []
    for graph in range(owners[-1] + 1):
        mine = [n for n in range(nodes) if owners[n] == graph]
        x = [flat[n * width : (n + 1) * width] for n in mine]
        first = mine[0]
        edges = [
            [pairs[e] - first, pairs[count + e] - first] for e in range(count) if owners[pairs[e]] == graph
        ]
        found.append(key_of(x, edges))
    return found


class Server(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # otherwise every small answer takes 40 ms
    protocol_version = "HTTP/1.1"
    table: ClassVar[dict] = {}
    behaviour = ""
    seen = 0
    log = None

    def log_message(self, *_):
        pass

    def reply(self, body, status=200, **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": len(body),
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({"live": True})

    def do_POST(self):
        kind = type(self)
        raw = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(raw)
        number, kind.seen = kind.seen, kind.seen + 1
        if "inputs" not in request:
            return self.other(request)
        keys = keys_of(request)
        if kind.log:
            with open(kind.log, "a") as file:
                file.write(json.dumps({"keys": keys, "token": self.headers.get("authorization")}) + "\n")
        rows = [kind.table[key][0] for key in keys]
        return getattr(self, kind.behaviour.replace(" ", "_"))(request, keys, rows, number)

    def good(self, request, keys, rows, number, cookie=False):
        flat = [value for row in rows for value in row]
        out = {
            "name": "probabilities",
            "datatype": "FP32",
            "shape": [len(rows), len(rows[0])],
            "data": flat,
        }
        sent = {"set_cookie": f"client={number}; Path=/"} if cookie else {}
        self.reply({"model_name": "m", "id": request["id"], "outputs": [out]}, **sent)

    def other(self, request):
        """Another JSON shape: one graph, adjacency lists, named scores."""
        graph = request["graph"]
        edges = [[u, v] for u, near in enumerate(graph["links"]) for v in near]
        table = {tuple(sorted(map(tuple, value[1]))): value[0] for value in type(self).table["other"]}
        row = table[tuple(sorted(map(tuple, edges)))]
        self.reply({"result": {"scores": {f"class {n}": value for n, value in enumerate(row)}}})

    # -- behaviours

    def dies(self, request, keys, rows, number):
        if number == 3:
            os._exit(1)
        self.good(request, keys, rows, number)

    def busy_at_first(self, request, keys, rows, number):
        if number % 3 == 0:
            return self.reply({"error": "busy"}, 503, retry_after=0)
        return self.good(request, keys, rows, number)

    def late(self, request, keys, rows, number):
        if number == 1:
            time.sleep(3)
        self.good(request, keys, rows, number)

    def drips(self, request, keys, rows, number):
        self.send_response(200)
        self.send_header("content-length", "1000000")
        self.end_headers()
        for _ in range(50):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.2)

    def out_of_order(self, request, keys, rows, number):
        if number % 3 == 1:
            return self.good({"id": "another"}, keys, rows, number)
        return self.good(request, keys, rows, number)

    def garbage(self, request, keys, rows, number):
        self.reply(b"\x00\xff{{{" * 9)

    def garbage_on_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            return self.reply(b"%%%")
        return self.good(request, keys, rows, number)

    def busy_on_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            return self.reply({"error": "busy"}, 503, retry_after=0)
        return self.good(request, keys, rows, number)

    def puts_off_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            return self.reply({"error": "later"}, 429, retry_after=1)
        return self.good(request, keys, rows, number)

    def wants_to_recognise_clients(self, request, keys, rows, number):
        if self.headers.get("cookie"):
            return self.reply({"error": "I know you"}, 403)
        return self.good(request, keys, rows, number, cookie=True)

    def redirects_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            return self.reply({}, 307, location=self.table["elsewhere"])
        return self.good(request, keys, rows, number)

    def surrogates_on_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            out = {
                "name": "label",
                "datatype": "BYTES",
                "shape": [len(rows)],
                "data": ["\ud800"] * len(rows),
            }
            return self.reply({"outputs": [out]})
        return self.good(request, keys, rows, number)

    def odd_names_on_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            return self.reply({"outputs": [{"name": [], "shape": [10**6] * 10**4, "data": []}]})
        return self.good(request, keys, rows, number)

    def busy_for_a_while(self, request, keys, rows, number):
        if 4 <= number < 12:
            return self.reply({"error": "busy"}, 429, retry_after=0)
        return self.good(request, keys, rows, number)

    def refuses_carriers(self, request, keys, rows, number):
        if any(type(self).table[key][-1] == "carrier" for key in keys):
            return self.reply({"error": "policy"}, 403)
        return self.good(request, keys, rows, number)

    def truncated(self, request, keys, rows, number):
        if number % 2 == 0:
            body = b'{"outputs": [{"na'
            self.send_response(200)
            self.send_header("content-length", "500")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return None
        return self.good(request, keys, rows, number)

    def nan(self, request, keys, rows, number):
        rows = [row if n % 5 else [float("nan")] * len(row) for n, row in enumerate(rows)]
        self.good(request, keys, rows, number)

    def huge_numbers(self, request, keys, rows, number):
        rows = [row if n % 7 else [1e308, -1e308] for n, row in enumerate(rows)]
        self.good(request, keys, rows, number)

    def huge_body(self, request, keys, rows, number):
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(10_000):
                self.wfile.write(b"[" * 65536)
        except OSError:
            pass
        self.close_connection = True

    def bomb(self, request, keys, rows, number):
        import gzip

        bomb = type(self).table.setdefault("bomb", gzip.compress(b" " * 50_000_000))
        self.reply(bomb, content_encoding="gzip")

    def long_labels(self, request, keys, rows, number):
        data = ["a" * 500_000, *["b"] * (len(rows) + 100_000)]  # numpy would reserve 200 gigabytes
        out = {"name": "labels", "datatype": "BYTES", "shape": [len(data)], "data": data}
        self.reply({"id": request["id"], "outputs": [out]})

    def deep(self, request, keys, rows, number):
        self.reply(b"[" * 1_000_000)

    def other_shapes(self, request, keys, rows, number):
        if number % 2:
            rows = [[*row, 0.0, 0.0] for row in rows]
        self.good(request, keys, rows, number)

    def too_few_rows(self, request, keys, rows, number):
        self.good(request, keys, rows[:-1] or [[0.5, 0.5]] * 2, number)

    def html(self, request, keys, rows, number):
        self.reply(b"<html><body>Please log in</body></html>", content_type="text/html")

    def redirects(self, request, keys, rows, number):
        self.reply({}, 307, location=self.table["elsewhere"])

    def several_models(self, request, keys, rows, number):
        replies = [type(self).table[key] for key in keys]
        self.good(request, keys, [row[number % 2] for row in replies], number)

    def rounds(self, request, keys, rows, number):
        self.good(request, keys, [[round(value, 2) for value in row] for row in rows], number)

    def top_1(self, request, keys, rows, number):
        names = [f"class {max(range(len(row)), key=row.__getitem__)}" for row in rows]
        out = {"name": "label", "datatype": "BYTES", "shape": [len(rows)], "data": names}
        self.reply({"id": request["id"], "outputs": [out]})

    def temperature(self, request, keys, rows, number):
        hot = [[value**0.1 for value in row] for row in rows]
        self.good(request, keys, [[value / sum(row) for value in row] for row in hot], number)

    def caches(self, request, keys, rows, number):
        kept = type(self).table.setdefault("cache", {})
        self.good(
            request, keys, [kept.setdefault(k, row) for k, row in zip(keys, rows, strict=True)], number
        )

    def wants_a_token(self, request, keys, rows, number):
        if self.headers.get("authorization") != "Bearer s3cret-t0ken":
            return self.reply({"error": "who are you?"}, 401)
        return self.good(request, keys, rows, number)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        Server.table = json.load(file)
    Server.behaviour = sys.argv[2]
    Server.log = sys.argv[3] if len(sys.argv) > 3 else None
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[4]) if len(sys.argv) > 4 else 0), Server)
    print(f"http://127.0.0.1:{server.server_port}/v2/models/m", file=sys.stderr, flush=True)
    server.serve_forever()
