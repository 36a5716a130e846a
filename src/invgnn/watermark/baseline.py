"""Baseline scores: the scores of a model before its mark is embedded."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import ParameterError
from invgnn.nn.forward import Forward
from invgnn.nn.observation import log_scores
from invgnn.readout.query import Suspect, scores_on
from invgnn.storage import encoding
from invgnn.watermark.inputs import Inputs

Scores: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Baseline:
    """Scores of a model before its mark was embedded, and the digest of the inputs.

    Attributes:
        scores: Log-probabilities [inputs, classes].
        inputs: Digest of the inputs, in hex.
    """

    scores: Scores
    inputs: str

    def __post_init__(self) -> None:
        scores = np.array(self.scores)
        if scores.ndim != 2 or scores.dtype != np.float64 or 0 in scores.shape or scores.shape[1] < 2:
            raise ParameterError("baseline scores have a row per input and at least two classes")
        if not np.isfinite(scores).all():
            raise ParameterError(
                "some baseline scores are NaN or infinite", "train the model first, then take its baseline"
            )
        if type(self.inputs) is not str or not re.fullmatch("[0-9a-f]{64}", self.inputs):
            raise ParameterError("the digest of the inputs is not SHA-256 in hex", "draw the mark anew")
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)

    @classmethod
    def of(cls, model: Suspect, data: Any, forward: Forward | None = None, version: int = 2) -> Baseline:
        """Return the baseline of a model.

        Args:
            model: A model that has learnt its task.
            data: The inputs of the task.
            forward: How to call an unusual model.
            version: The format of the mark.
        """
        inputs = Inputs.of(data)
        return cls(log_probabilities_of(model, inputs, forward), inputs.digest(version))

    def digest(self, version: int = 2) -> str:
        """Return the digest of the scores and of the inputs, as marks of a format are bound to it."""
        if version == 1:  # the shape gives the length of the bytes, and a digest is always as long
            shape = ",".join(map(str, self.scores.shape))
            held = hashlib.sha256(f"{self.inputs};{shape};".encode())
            held.update(np.ascontiguousarray(self.scores, dtype="<f8").tobytes())
            return held.hexdigest()
        return encoding.digest("invgnn/baseline/2", {"inputs": self.inputs, "scores": self.scores})


def log_probabilities_of(suspect: Suspect, data: Any, forward: Forward | None = None) -> Scores:
    """Return the log-probabilities that a suspect gives the classes of every input [inputs, classes]."""
    said = scores_on(suspect, Inputs.of(data).graphs(), forward)
    return np.asarray(log_scores(said).log_softmax(-1).numpy(), dtype=np.float64)
