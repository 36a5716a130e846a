"""The secret's ±1 vectors that answers are projected on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invgnn.readout.reading import Direction
from invgnn.secret import Secret, Stream

PREFIXES = {"embedding", "values"}
"""Levels whose signs are a prefix of one stream, however many columns there are."""


def directions(
    secret: Secret, bound: str, version: int, classes: int | None, shared: bool = False
) -> Direction:
    """Return the function that gives the secret's vector for an access level and a width.

    Changing a derivation breaks every mark in the field; golden vectors in the tests guard them.

    Args:
        secret: The secret.
        bound: Digest of the context of the mark.
        version: The format of the mark.
        classes: Number of classes of the task, if known.
        shared: Whether labels are read along the direction of class scores.
    """

    @cache
    @torch.inference_mode(False)  # what is kept may be trained through later
    def derived(access: str, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        if version == 1:
            found = _signs_1(secret, bound, access, width)
        else:
            stream = secret.derive("projection", bound, *stream_parts(access, classes or width, shared))
            found = _signs(stream, access, width, classes or width)
        return torch.from_numpy(found).to(device, dtype)

    def direction(access: str, width: int, like: Tensor | None = None, /) -> Tensor:
        like = torch.zeros((), dtype=torch.float64, device="cpu") if like is None else like
        return derived(access, width, like.dtype, like.device)

    return direction


def stream_parts(access: str, classes: int | None, shared: bool = False) -> tuple[str | int, ...]:
    """Return what the stream of a direction is bound to, besides the context.

    Args:
        access: The access level.
        classes: Number of classes of the task.
        shared: Whether labels are read along the direction of class scores. Two independent directions ask
            for contradictory answers; with two classes they are opposite for every second secret.
    """
    access = "logits" if shared and access == "labels" else access
    return (access,) if access in PREFIXES or classes is None else (access, classes)


def directions_of(streams: Mapping[str, bytes], classes: int | None) -> Direction:
    """Return the same function as `directions`, for a reader who was given the streams and no secret.

    Args:
        streams: The key of the stream of every access level that may be read.
        classes: Number of classes of the task, if known.
    """

    def direction(access: str, width: int, like: Tensor | None = None, /) -> Tensor:
        like = torch.zeros((), dtype=torch.float64, device="cpu") if like is None else like
        found = _signs(Stream(streams[access]), access, width, classes or width)
        return torch.from_numpy(found).to(like.device, like.dtype)

    return direction


def _signs(stream: Stream, access: str, width: int, classes: int) -> NDArray[np.float64]:
    """Signs of every hidden unit, or of every class less their mean; added columns change nothing.

    The signs of hidden units are a prefix of one stream, and those of real-valued outputs of another. Those
    of classes are for the classes of the task; further columns get 0.
    """
    if access in PREFIXES:
        return np.array(stream.signs(width), dtype=np.float64)
    signs = np.where(np.arange(classes) < classes // 2, 1.0, -1.0)[stream.permutation(classes)]
    found = np.zeros(width)
    found[:classes] = signs[:width]
    found[:classes] -= found[:classes].mean() if access == "logits" else 0.0
    return found


def _signs_1(secret: Secret, bound: str, access: str, width: int) -> NDArray[np.float64]:
    """Signs as in format 1, which depend on the width."""
    stream = secret.derive("projection", bound, access, width)
    if access == "embedding":
        return np.array(stream.signs(width), dtype=np.float64)
    return np.where(np.arange(width) < width // 2, 1.0, -1.0)[stream.permutation(width)]
