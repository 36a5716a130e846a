"""Trainable: how a mark is embedded, in one call or in a training loop."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.errors import ParameterError
from invgnn.nn.distributed import peers, shared
from invgnn.nn.forward import Forward, require_module, unwrap, weight_of
from invgnn.nn.gradient_projection import check_task_loss, projected_sum
from invgnn.secret import Stream
from invgnn.watermark.carrier_batches import CarrierBatches
from invgnn.watermark.embed import DEFAULT, Metric, Settings, embed
from invgnn.watermark.embedded import Embedded
from invgnn.watermark.embedding_loss import own_loss
from invgnn.watermark.finish import finish
from invgnn.watermark.levels import Level
from invgnn.watermark.mixed_batch import MixedBatch
from invgnn.watermark.monitor import Monitor
from invgnn.watermark.readable import Readable
from invgnn.watermark.refresh import refresh
from invgnn.watermark.schedule import CarrierSchedule


@dataclass(frozen=True, eq=False)
class Trainable(Readable):
    """A mark that can be embedded in a model; see `Watermark`."""

    @cached_property
    def batches(self) -> CarrierBatches:
        """Carriers and ordinary inputs as PyG batches."""
        return CarrierBatches(*self.presented, self.bits, self.targets)

    @cached_property
    def schedule(self) -> CarrierSchedule:
        """Which carriers are used in which optimiser step."""

        def stream(number: int) -> Stream:
            return self.secret.derive("steps", self.bound, number)

        return CarrierSchedule(self.m, self.level, stream)

    def loss(self, model: nn.Module, *, step: int | None = None, steps: int | None = None) -> Tensor:
        """Return the mark's loss, times `recipe.beta`, from a forward pass of its own.

        The pass runs in the model's present mode, over carriers and ordinary inputs together, on copies of
        the buffers. Mode, statistics and random state stay exactly as they were, and BatchNorm takes its
        statistics from the ordinary inputs alone.

        Args:
            model: The model. Pass a `DistributedDataParallel` model wrapped: the gradient is the mean over
                its processes, however the loss is sent backward.
            step: Number of the optimiser step, counted from 0. With None all carriers are used.
            steps: Optimiser steps of the whole training, at whose end `recipe.presentations` are made. In a
                step that uses no carriers the loss is a zero without gradient. With None every step uses
                `recipe.carriers` of them, by default 32, in turn.

        Returns:
            The loss, to be added to the task loss.

        Raises:
            ParameterError: If `model` is not a module.
        """
        require_module(model)
        portion = self.schedule.at(self.recipe, step, steps, apart=True)
        if portion is self.schedule.none:
            like = weight_of(model)
            return torch.zeros(()) if like is None else like.new_zeros(())
        found = own_loss(self, model, None if portion.order is self.schedule.all.order else portion)
        return shared(found, model)

    def joint_loss(
        self, model: nn.Module, task_loss: Tensor, *, step: int | None = None, steps: int | None = None
    ) -> Tensor:
        """Return task loss and mark loss in one, without the conflicting part of the mark's gradient.

        The component of the mark's gradient that conflicts with the task's is projected out. This costs a
        second backward pass. Call `backward` on the result; only parameters of this model get a gradient.

        Args:
            model: The model.
            task_loss: The loss of the task, with a gradient to the model's parameters.
            step: Number of the optimiser step, as in `loss`.
            steps: Optimiser steps of the whole training, as in `loss`.

        Returns:
            The sum of both losses.

        Raises:
            ParameterError: If `model` is not a module, or the task loss is no single number with a
                gradient.
        """
        require_module(model)
        check_task_loss(task_loss)
        if self.schedule.at(self.recipe, step, steps, apart=True) is self.schedule.none:
            return task_loss
        mark_loss = self.loss(unwrap(model), step=step, steps=steps)
        return projected_sum(task_loss, mark_loss, model.parameters(), self.recipe.cap, peers(model))

    def mix(self, batch: Any, *, step: int | None = None, steps: int | None = None) -> MixedBatch:
        """Append carriers to a task batch: call the result on the model, then take its loss.

        In the last twentieth of the steps with carriers, models with batch norms get them in a pass where
        they are normalised by ordinary inputs, as they will be when the model is read.

        Args:
            batch: The task batch.
            step: Number of the optimiser step, as in `loss`.
            steps: Optimiser steps of the whole training, as in `loss`.

        Raises:
            DataError: If the batch holds tensors that carriers lack.
        """
        portion = self.schedule.at(self.recipe, step, steps)
        settling = self.schedule.settling(self.recipe, step, steps)
        return MixedBatch(self, batch, portion, settling=settling)

    def refresh(
        self,
        student: nn.Module,
        teacher: nn.Module,
        batches: Collection[Any],
        *,
        epochs: int = 100,
        lr: float = 0.01,
        temperature: float = 2.0,
        seed: int = 41,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Distil your marked model into a student, in place, and embed the mark in the student.

        Distillation on task inputs alone loses the mark. This gives the owner a smaller model, or one of
        another architecture, that verifies. Optimiser and recipe are those of training. The last epoch is
        kept. The teacher and the random state stay as they were; after an error the student does too.

        Args:
            student: The student, any model on PyG inputs; left in evaluation mode.
            teacher: The marked model.
            batches: Task inputs, iterated once per epoch: a list or a `DataLoader` of PyG batches; for a
                node task `[data]`. Labels are not used.
            epochs: Number of epochs.
            lr: Learning rate of Adam.
            temperature: Temperature of the distillation.
            seed: Fixes the order of batches and dropout.
            progress: Called with the number of finished epochs and the total.

        Raises:
            ParameterError: If an argument cannot be used, or the mark is read from real-valued outputs.
            DataError: If student and teacher return scores of different shapes.
        """
        if any(reading.access == "values" for reading in self.readings):
            raise ParameterError(
                "refresh distils class scores, and this mark is read from real-valued outputs",
                "train the student on the teacher's outputs in your own loop, with mark.mix or mark.loss",
            )
        refresh(
            self,
            student,
            teacher,
            batches,
            epochs=epochs,
            lr=lr,
            temperature=temperature,
            seed=seed,
            progress=progress,
        )

    def embed(
        self,
        model: nn.Module,
        data: Any,
        *,
        steps: int | None = None,
        lr: float | None = None,
        batch_size: int = 64,
        metric: Metric | None = None,
        keep: Forward | None = None,
        seed: int = 41,
        progress: Callable[[int, int], None] | None = None,
    ) -> Embedded:
        """Embed the mark in a model that is already trained, in place, without labels.

        The model is trained on the carriers and, to keep its task, on its own scores before embedding. The
        part of the mark's gradient that conflicts with the task's is projected out. It stops early once
        every carrier is learnt. The learning rate falls to zero, and then the statistics of batch norms are
        estimated again on `data` and weights before norms are scaled (`recipe.weight_scale`).

        Modes, hooks and random states are left as they were. After an error the weights are, too. If the
        scores of the model diverge, its weights are restored and a lower learning rate is tried. The log
        of `invgnn` (level INFO) states the plan before the first step.

        Args:
            model: The model, any module on PyG inputs; a compiled or averaged model is unwrapped.
            data: Inputs of the task, labels are not used: a list of graphs, a data set or a `DataLoader`;
                for a node task the graph, a list of its parts, or a loader such as `RandomNodeLoader`.
            steps: Most optimiser steps; by default 800.
            lr: Learning rate of Adam in the first attempt; by default 0.01.
            batch_size: Graphs per batch, where `data` are single graphs.
            metric: Measures the model on its task before and after, in evaluation mode.
            keep: What the model should keep on task inputs, a function like `forward` of `draw`; by default
                its scores. For a graph autoencoder pass one that returns the embedding of every node.
            seed: Fixes the order of batches and dropout.
            progress: Called with the number of finished steps and the total.

        Returns:
            Evidence at every declared level, metric before and after, and what it cost.

        Raises:
            SuspectError: If the model cannot be read at a declared level.
            EmbeddingError: If the model diverges at every learning rate tried.
            DataError: If `data` are not task inputs.
            ParameterError: If an argument cannot be used.

        Warns:
            WeakMarkWarning: If a declared level has less than 80 bits of evidence.
        """
        return embed(
            self,
            model,
            data,
            settings=Settings(DEFAULT.steps if steps is None else steps, DEFAULT.lr if lr is None else lr),
            batch_size=batch_size,
            metric=metric,
            keep=keep,
            seed=seed,
            progress=progress,
        )

    def monitor(self, model: nn.Module) -> dict[str, float]:
        """Measure how far the embedding has come; call it after every epoch and log the result.

        It takes two forward passes over the carriers per level and mode, without gradient. Mode, statistics
        and random states of the model are left as they were.

        Args:
            model: The model, in any mode; a wrapped model is unwrapped.

        Returns:
            `mark/bits/<level>` for every declared level, read in evaluation mode as a suspect is, and
                `mark/loss/evaluation` and `mark/loss/training`, the mark's loss in both modes.

        Warns:
            MonitorWarning: Once per model and cause, if the loss in evaluation mode is far above that in
                training mode, if a level below 80 bits has gained nothing in the last 10 calls, or if it
                is not being learnt at all. The text says what to do.
        """
        require_module(model)
        return self._monitor(model)

    @cached_property
    def _monitor(self) -> Monitor:
        return Monitor(self)

    def finish(self, model: nn.Module, data: Any, *, batch_size: int = 64) -> dict[str, Level]:
        """Finish an embedding at the end of your own training loop; in place.

        The running statistics of batch norms are estimated again on task inputs, as plain averages, because
        they lag behind weights that moved until the end; the old ones are kept where they read the mark
        better. Weights before norms are then scaled
        (`recipe.weight_scale`). No score on task inputs changes by the scaling.

        Args:
            model: The model; its modes are left as they were.
            data: Inputs of the task, as in `embed`: usually your training loader.
            batch_size: Graphs per batch, where `data` are single graphs.

        Returns:
            The evidence at every declared level.

        Warns:
            WeakMarkWarning: If a declared level has less than 80 bits of evidence.
        """
        require_module(model)
        return finish(self, model, data, batch_size)
