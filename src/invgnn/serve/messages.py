"""The messages of the Open Inference Protocol, version 2, in JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"
]
"""Types of tensors that a request may contain."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
Size = Annotated[int, Field(ge=0, le=1 << 31)]


class InputTensor(BaseModel):
    """A tensor of a request. `data` is flat or nested, in row-major order."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: Name
    shape: Annotated[list[Size], Field(min_length=1, max_length=8)]
    datatype: Datatype
    data: list[Any]
    parameters: dict[str, Any] | None = None


class RequestedOutput(BaseModel):
    """A tensor that the client asks for."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: Name
    parameters: dict[str, Any] | None = None


class InferRequest(BaseModel):
    """A request: graphs as tensors `x`, `edge_index`, `batch` and further tensors."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: Annotated[str, Field(max_length=256)] | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=64)]
    outputs: Annotated[list[RequestedOutput], Field(max_length=16)] | None = None
    parameters: dict[str, Any] | None = None


class OutputTensor(BaseModel):
    """A tensor of a response. A value that is not finite is null."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float | int | None]


class InferResponse(BaseModel):
    """A response."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]


class TensorMetadata(BaseModel):
    """Name, type and shape of a tensor; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What the model takes and returns."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(BaseModel):
    """Name and version of the server."""

    name: str
    version: str
    extensions: list[str]


class ModelReady(BaseModel):
    """Whether the model can be asked."""

    name: str
    ready: bool


class Live(BaseModel):
    """Whether the server runs."""

    live: bool


class Ready(BaseModel):
    """Whether the server can be asked."""

    ready: bool


class ErrorMessage(BaseModel):
    """Why a request was refused."""

    error: str
