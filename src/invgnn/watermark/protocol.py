"""What the embedding needs to know of a mark."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import Forward
from invgnn.readout.answers import Answers
from invgnn.readout.reading import Access, Direction, Reading
from invgnn.stats.evidence import Evidence
from invgnn.watermark.carrier_batches import CarrierBatches
from invgnn.watermark.recipe import Recipe


class Embeddable(Protocol):
    """A mark, as losses and mixed batches see it."""

    @property
    def m(self) -> int:
        """Number of carriers."""

    @property
    def level(self) -> str:
        """`graph` or `node`."""

    @property
    def carriers(self) -> Graphs:
        """The carriers."""

    @property
    def readings(self) -> list[Reading]:
        """The declared readings."""

    @property
    def layer(self) -> str | None:
        """The hidden layer to observe, if any."""

    @property
    def direction(self) -> Direction:
        """The secret's vectors."""

    @property
    def recipe(self) -> Recipe:
        """The settings of the embedding."""

    @property
    def forward(self) -> Forward | None:
        """How to call an unusual model."""

    @property
    def batches(self) -> CarrierBatches:
        """Carriers and ordinary inputs as PyG batches."""


class MixedForward(Protocol):
    """A task batch with carriers: one forward pass, then the losses."""

    def __call__(self, model: nn.Module) -> Tensor:
        """Return the scores of the task inputs."""

    def loss(self) -> Tensor:
        """Return the weighted loss of the mark."""

    def joint_loss(self, task_loss: Tensor) -> Tensor:
        """Return task loss and mark loss in one."""


class Refreshable(Embeddable, Protocol):
    """A mark that can be embedded in a student."""

    @property
    def classes(self) -> int | None:
        """Number of classes of the task, if it is known."""

    @property
    def complete(self) -> bool:
        """Whether this mark has a key."""

    @property
    def score_channel(self) -> int | None:
        """Number of features of the score channel; None without one."""

    def read(self, suspect: Any, access: Access | None = None, forward: Forward | None = None) -> Answers:
        """Read a suspect at one access level."""

    def evidence(self, answers: Answers) -> Evidence:
        """Return the evidence in a suspect's answers."""

    def replace(self, *, recipe: Recipe = ...) -> Refreshable:
        """Return the mark with another recipe."""

    def mix(self, batch: Any, *, step: int | None = None, steps: int | None = None) -> MixedForward:
        """Append carriers to a task batch."""

    def loss(self, model: nn.Module, *, step: int | None = None, steps: int | None = None) -> torch.Tensor:
        """Return the weighted loss of the mark."""

    def joint_loss(
        self, model: nn.Module, task_loss: Tensor, *, step: int | None = None, steps: int | None = None
    ) -> Tensor:
        """Return task loss and mark loss in one."""
