"""Serve a marked and an unmarked model over HTTP, and audit both with all and with few questions."""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import invgnn

COMMAND = Path(sys.executable).with_name("invgnn")


def serve(path, port="0"):
    """Start a server in a process of its own, and return the process and the address of the model."""
    command = [COMMAND, "serve", "--model", path, "--port", port]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own command
    return server, re.search(r"http://\S+", server.stderr.readline()).group()


def stop(server):
    server.terminate()
    server.communicate()


def main(epochs=40):
    task = invgnn.load_task("BA-2motif")
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), task.data, access="labels")
    few = invgnn.Sequential("betting", bits=20)  # stop at p = 10^-6
    with TemporaryDirectory() as name:
        for what in (None, mark):
            model, path = invgnn.new_model(task, "GIN", seed=0), Path(name) / f"{what is None}.model"
            invgnn.train(model, task, what, epochs=epochs if what else 5)
            invgnn.save_model(path, model)
            server, url = serve(path)
            here = invgnn.verify(model, mark)
            there = invgnn.verify(invgnn.Endpoint(url), mark)
            brief = invgnn.verify(invgnn.Endpoint(url), mark, sequential=few)
            print(f"{there.status} with {there.queries} questions, {here.status} in process;", end=" ")
            print(f"{brief.evidence_bits:.1f} bits with {brief.queries} questions")
            assert (there.status, there.matches) == (here.status, here.matches)
            assert (brief.p <= 1e-6) == (what is not None)
            if what is None:
                stop(server)
        # The server dies in the middle. The journal has all answers, and nothing is asked twice.
        journal = Path(name) / "audit.jsonl"
        try:
            endpoint = invgnn.Endpoint(url, journal=journal, attempts=1)
            invgnn.verify(endpoint, mark, progress=lambda state: server.kill())
        except invgnn.InvgnnError as error:
            print(error)
        stop(server)
        server, url = serve(path, re.search(r":(\d+)/", url).group(1))
        found = [there, invgnn.verify(invgnn.Endpoint(url, journal=journal), mark)]
        stop(server)
    return found


if __name__ == "__main__":
    print(main()[-1])
