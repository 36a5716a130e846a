"""Run the model on a batch and return what the server shows of the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from invgnn.nn.forward import evaluation_mode, observe, placed, weight_of
from invgnn.nn.observation import log_scores
from invgnn.serve.settings import Returned

Outputs = dict[str, NDArray[Any]]


class Predictor:
    """A model in evaluation mode, and what is returned of its results.

    Args:
        model: Any module that takes PyG inputs.
        returned: What is returned.
    """

    def __init__(self, model: nn.Module, returned: Returned) -> None:
        self.model, self.returned = model.eval(), returned
        self.like = weight_of(model)

    @property
    def outputs(self) -> list[str]:
        """The names of the tensors of a response."""
        return [self.returned.output, *(["embeddings"] if self.returned.embeddings else [])]

    @torch.no_grad()
    def __call__(self, batch: Any) -> Outputs:
        """Return the output tensors for a batch, one row per graph or per node."""
        batch = batch if self.like is None else placed(batch, self.like)
        layer = "auto" if self.returned.embeddings else None
        with evaluation_mode(self.model):
            seen = observe(self.model, batch, layer)
            found: Outputs = {self.returned.output: self._shown(seen.scores)}
            if layer is not None:
                found["embeddings"] = seen.embeddings.float().cpu().numpy()
        return found

    def _shown(self, scores: torch.Tensor) -> NDArray[Any]:
        """Return the scores in the form that the server shows."""
        scores = scores.detach().cpu()
        if self.returned.output == "scores":
            rows = scores.float().reshape(len(scores), -1).numpy()
            return rows if self.returned.digits is None else rows.round(self.returned.digits)
        logs = log_scores(scores).double().log_softmax(-1)
        if self.returned.output == "labels":
            return logs.argmax(-1).numpy().astype(np.int64)
        shown = logs.exp().float().numpy()
        return shown if self.returned.digits is None else shown.round(self.returned.digits)
