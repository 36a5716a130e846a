"""Asking a suspect: its answers at each level of access, whatever it is and however it answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.errors import InvgnnError, SuspectError
from invgnn.forward import ADVICE, Forward, observe, placed, politely, to_batch, unwrap, weight_of
from invgnn.graphs import Graphs
from invgnn.reading import Direction, Observation, Reading, answer, label_answer, pool
from invgnn.recipe import standardise

Suspect = nn.Module | Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Answers:
    """What a suspect said: one number per carrier, and its answers on ordinary inputs."""

    reading: Reading
    carriers: NDArray[np.float64]
    ordinary: NDArray[np.float64]

    @property
    def queries(self) -> int:
        """How many graphs the suspect was asked about."""
        return len(self.carriers) + len(self.ordinary)

    @property
    def standard(self) -> NDArray[np.float64]:
        """Carrier answers in standard deviations of the suspect's own ordinary answers."""
        if self.reading.binary:
            return self.carriers
        values = standardise(torch.from_numpy(self.carriers), torch.from_numpy(self.ordinary))
        return np.asarray(values.numpy(), dtype=np.float64)


def ask(
    suspect: Suspect,
    graphs: Graphs,
    reading: Reading,
    direction: Direction,
    forward: Forward | None = None,
    chunk: int = 1024,
) -> NDArray[np.float64]:
    """The suspect's answer on every graph, asked in the order given, nothing of it changed.

    A data-parallel wrapper is not asked but the model inside it: one process may read alone.
    """
    suspect = unwrap(suspect) if isinstance(suspect, nn.Module) else suspect
    parts, numbers = [], np.arange(len(graphs))
    for start in range(0, len(graphs), chunk):
        part = graphs if len(graphs) <= chunk else graphs.take(numbers[start : start + chunk])
        like = weight_of(suspect) if isinstance(suspect, nn.Module) else None
        parts.append(_ask(suspect, to_batch(part, like), reading, direction, forward))
    return without_gaps(np.concatenate(parts))


def scores_on(suspect: Suspect, batch: Any, forward: Forward | None = None) -> Tensor:
    """A suspect's scores on a batch, one row per input, in double precision on the CPU."""
    if isinstance(suspect, nn.Module):
        suspect = unwrap(suspect)
        like = weight_of(suspect)
        batch = batch if like is None else placed(batch, like)
        with politely(suspect), torch.no_grad():
            scores = _tried(lambda: observe(suspect, batch, None, forward).scores)
    else:
        scores = _tried(lambda: suspect(batch))
    return _tensor(scores, Reading("logits")).detach().cpu().double()


def without_gaps(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """NaN and infinite answers as the median of the others, so that a few cannot stop a verification.

    Guarantee: the choice looks at the answers alone, never at the bits, so the null stays exact.
    """
    gaps = ~np.isfinite(answers)
    if 2 * gaps.sum() >= len(answers):
        raise SuspectError(
            f"{int(gaps.sum())} of {len(answers)} answers are NaN or infinite",
            "a suspect must give finite scores; nothing can be read from these",
        )
    if gaps.any():  # the lower median, itself an answer: labels stay labels
        answers[gaps] = np.quantile(answers[~gaps], 0.5, method="lower")
    return answers


def _ask(
    suspect: Suspect, batch: Any, reading: Reading, direction: Direction, forward: Forward | None
) -> NDArray[np.float64]:
    if isinstance(suspect, nn.Module):
        with politely(suspect), torch.no_grad():
            layer = reading.layer if reading.hidden else None
            value = _tried(
                lambda: _read(observe(suspect, batch, layer, forward), reading, direction, suspect)
            )
    else:
        if reading.hidden:
            raise SuspectError(
                f"a function gives scores only, so it cannot be read at {reading.access!r}",
                "use access='logits' or 'labels', or pass the model itself",
            )
        value = _tried(lambda: _read(Observation(suspect(batch), None, batch), reading, direction, None))
    return np.asarray(value.detach().cpu().double().numpy())


def _read(seen: Observation, reading: Reading, direction: Direction, model: Any) -> Tensor:
    if not reading.hidden:
        seen = replace(seen, scores=_tensor(seen.scores, reading))
    labels = reading.access == "labels"
    said = label_answer(seen, direction) if labels else answer(seen, reading, direction, model)
    if reading.hidden:
        return said
    void = ~torch.isfinite(seen.scores).reshape(len(seen.scores), -1).all(-1)
    return said.masked_fill(pool(void.to(said), seen.batch).view(-1) > 0, torch.nan)


def _tried(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except InvgnnError:
        raise
    except Exception as error:  # whatever a stranger's model or endpoint raises
        raise SuspectError(
            f"the suspect failed on the carriers: {error}",
            ADVICE,
        ) from error


def _tensor(value: Any, reading: Reading) -> Tensor:
    """A suspect's scores as floats; bare label numbers as one-hot rows."""
    if isinstance(value, tuple | dict):
        kind, pick = type(value).__name__, '["scores"]' if isinstance(value, dict) else "[0]"
        raise SuspectError(f"the suspect returned a {kind}", f"return the scores alone: result{pick}")
    try:
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise SuspectError(f"the suspect returned no array: {error}", "return scores") from error
    if tensor.is_floating_point():
        return tensor
    if reading.access != "labels" or reading.classes is None or tensor.dim() != 1:
        raise SuspectError(
            "the suspect returned whole numbers, not scores",
            "read labels with Reading(access='labels', classes=...), declared when the mark is drawn",
        )
    if not ((tensor >= 0) & (tensor < reading.classes)).all():
        raise SuspectError(f"labels outside 0..{reading.classes - 1}", "check the label coding")
    return nn.functional.one_hot(tensor.long(), reading.classes).float()


def digest_model(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of a model's parameters and buffers."""
    total = hashlib.sha256(b"invgnn/state/1")
    for name, value in sorted(unwrap(model).state_dict().items()):
        if not isinstance(value, Tensor):
            continue
        flat = value.detach().cpu().contiguous()
        head = f"{name}\0{flat.dtype}\0{tuple(flat.shape)}\0"
        total.update(head.encode() + flat.view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
