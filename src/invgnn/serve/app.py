"""The HTTP application: health, metadata and inference by the Open Inference Protocol, version 2."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from torch import nn

from invgnn.errors import InvgnnError
from invgnn.serve import messages
from invgnn.serve.limits import LimitedApp
from invgnn.serve.prediction import Outputs, Predictor
from invgnn.serve.settings import Limits, Returned
from invgnn.serve.tensors import to_graphs
from invgnn.version import __version__

VERSION = "1"
"""The only version of the model."""
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": messages.ErrorMessage, "description": "The request is refused."},
    "5XX": {"model": messages.ErrorMessage, "description": "The server is busy, or the model failed."},
}


def make_app(
    model: nn.Module, name: str = "model", returned: Returned | None = None, limits: Limits | None = None
) -> LimitedApp:
    """Return an ASGI application that serves a model.

    Args:
        model: Any module that takes PyG inputs; put into evaluation mode.
        name: Name of the model in addresses.
        returned: What the server returns; by default probabilities.
        limits: The limits of the server.

    Returns:
        The application. `application.app` is the FastAPI object inside the limits.
    """
    limits = limits or Limits()
    service = _Service(Predictor(model, returned or Returned()), name, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="invgnn",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=_ERRORS,
        strict_content_type=False,  # clients of the protocol name no type, or another one
    )
    _add_errors(app)
    _add_routes(app, service)
    return LimitedApp(app, limits)


class _Service:
    """The model behind the routes; it runs one request at a time, in a thread of its own."""

    def __init__(self, predictor: Predictor, name: str, limits: Limits) -> None:
        self.predictor, self.name, self.limits = predictor, name, limits
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    def close(self) -> None:
        """Let the present request end, and drop waiting ones."""
        self.thread.shutdown(wait=True, cancel_futures=True)

    def require(self, name: str, version: str = VERSION) -> None:
        """Raise an error for another model or version."""
        if (name, version) != (self.name, VERSION):
            raise HTTPException(404, "there is no such model here")

    async def infer(self, request: messages.InferRequest) -> dict[str, Any]:
        """Return the response to a request."""
        wanted = [one.name for one in request.outputs or ()] or self.predictor.outputs
        unknown = sorted(set(wanted) - set(self.predictor.outputs))
        if unknown:
            raise HTTPException(400, f"this server does not return {unknown[0]!r}")
        found = await self._run(request)
        outputs = [_output(name, found[name]) for name in dict.fromkeys(wanted)]
        reply = {"model_name": self.name, "model_version": VERSION, "outputs": outputs}
        return reply if request.id is None else reply | {"id": request.id}

    async def _run(self, request: messages.InferRequest) -> Outputs:
        """Run the model within the time limit."""
        job = asyncio.get_running_loop().run_in_executor(self.thread, self._predict, request)
        try:
            return await asyncio.wait_for(job, self.limits.seconds)
        except TimeoutError:
            raise HTTPException(504, "the model took too long") from None

    def _predict(self, request: messages.InferRequest) -> Outputs:
        """Check the tensors and run the model."""
        batch = to_graphs(request.inputs, self.limits)
        try:
            return self.predictor(batch)
        except Exception as error:  # any model may be served; its messages may be long and private
            raise HTTPException(
                400, f"the model cannot process this input ({type(error).__name__})"
            ) from error


def _output(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """Return an output tensor; JSON has no NaN, so it becomes null."""
    flat: list[Any] = values.ravel().tolist()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        flat = [value if math.isfinite(value) else None for value in flat]
    kind = "INT64" if values.dtype.kind == "i" else "FP32"
    return {"name": name, "shape": list(values.shape), "datatype": kind, "data": flat}


def _add_errors(app: FastAPI) -> None:
    """Return every error in the form of the protocol."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        return JSONResponse({"error": f"{at[:200]}: {first['msg'][:200]}"}, 400)

    @app.exception_handler(InvgnnError)
    async def refused(_: Request, error: InvgnnError) -> Response:
        return JSONResponse({"error": error.message}, 400)

    @app.exception_handler(HTTPException)
    async def failed(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


def _add_routes(app: FastAPI, service: _Service) -> None:
    """Add the addresses of the protocol."""

    @app.get("/v2/health/live")
    async def live() -> messages.Live:
        return messages.Live(live=True)

    @app.get("/v2/health/ready")
    async def ready() -> messages.Ready:
        return messages.Ready(ready=True)

    @app.get("/v2")
    async def server() -> messages.ServerMetadata:
        return messages.ServerMetadata(name="invgnn", version=__version__, extensions=[])

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}", include_in_schema=False)
    async def metadata(name: str, version: str = VERSION) -> messages.ModelMetadata:
        service.require(name, version)
        return _metadata(service)

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    async def model_ready(name: str, version: str = VERSION) -> messages.ModelReady:
        service.require(name, version)
        return messages.ModelReady(name=name, ready=True)

    @app.post("/v2/models/{name}/infer", response_model=messages.InferResponse)
    @app.post("/v2/models/{name}/versions/{version}/infer", include_in_schema=False)
    async def infer(name: str, request: messages.InferRequest, version: str = VERSION) -> Response:
        service.require(name, version)
        reply = await service.infer(request)
        return Response(json.dumps(reply, allow_nan=False), media_type="application/json")


def _metadata(service: _Service) -> messages.ModelMetadata:
    """Describe the tensors of the model."""
    tensor = messages.TensorMetadata
    one = service.predictor.returned.output
    shape, kind = ([-1], "INT64") if one == "labels" else ([-1, -1], "FP32")
    outputs = [tensor(name=one, datatype=kind, shape=shape)]
    if service.predictor.returned.embeddings:
        outputs.append(tensor(name="embeddings", datatype="FP32", shape=[-1, -1]))
    inputs = [
        tensor(name="x", datatype="FP32", shape=[-1, -1]),
        tensor(name="edge_index", datatype="INT64", shape=[2, -1]),
        tensor(name="batch", datatype="INT64", shape=[-1]),
    ]
    return messages.ModelMetadata(
        name=service.name, versions=[VERSION], platform="pytorch_geometric", inputs=inputs, outputs=outputs
    )
