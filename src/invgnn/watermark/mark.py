"""Watermark: a secret and its carriers, how they are embedded in a model and read back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.concealed import conceal
from invgnn.errors import DataError, FileError, InvgnnError, ParameterError
from invgnn.graphs.attributed import Attributed
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import find_invariant, plain_bits
from invgnn.nn.distributed import peers, shared
from invgnn.nn.forward import Forward, require_module, unwrap, weight_of
from invgnn.nn.gradient_projection import check_task_loss, projected_sum
from invgnn.readout.answers import Answers
from invgnn.readout.query import Suspect, ask
from invgnn.readout.reading import Access, Reading
from invgnn.readout.replies import Replies
from invgnn.secret import Secret, Stream
from invgnn.stats import laws
from invgnn.stats.evidence import Evidence, evidence_of
from invgnn.storage import container
from invgnn.storage.encryption import require_passphrase
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.carrier_batches import CarrierBatches
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.context import FORMAT, bind, check_context
from invgnn.watermark.derived import Derived
from invgnn.watermark.embed import LR, Metric, embed
from invgnn.watermark.embedded import Embedded
from invgnn.watermark.embedding_loss import own_loss
from invgnn.watermark.finish import finish
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.levels import Level
from invgnn.watermark.mark_file import pack, unpack
from invgnn.watermark.mixed_batch import MixedBatch
from invgnn.watermark.monitor import Monitor
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.reference import Reference
from invgnn.watermark.refresh import refresh
from invgnn.watermark.sampler import Sampler
from invgnn.watermark.schedule import CarrierSchedule
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.tensor_donors import with_tensors
from invgnn.watermark.transforms import Transform, transformed

Key = Literal["keyed", "plain"]
ORDINARY = 64
"""How many ordinary task inputs a mark keeps, to tell a model's usual answers from others."""


@dataclass(frozen=True, eq=False)
class Watermark(Derived):
    """A mark: a secret, its carriers, and everything that derives from them.

    Draw one with `Watermark.draw`, embed it with `joint_loss`, `loss` or `mix`, read a suspect with `read`,
    and store it with `save`. The bits are derived anew each time and never stored.

    Attributes:
        secret: The secret that everything derives from.
        context: What every derivation is bound to: format, sampler, digest of the data, declared readings.
        carriers: The carrier graphs.
        ordinary: Ordinary inputs of the task, asked together with the carriers.
        scale: The normalisation of the invariant.
        recipe: The settings of the embedding.
        rejected: How many candidates were rejected when the carriers were drawn, and why.
        forward: How to call an unusual model on a PyG batch; not stored in files.
        baseline: For a mark with a score channel: scores of the model before the mark was embedded.
        labels: The classes of the ordinary inputs, if they are known.
        shown: Carriers and ordinary inputs with further tensors, such as edge attributes, as a model is
            given them; None if they have none.
    """

    @classmethod
    def draw(
        cls,
        secret: Secret,
        data: Any,
        *,
        m: int = 128,
        access: Access | Sequence[Access] | None = None,
        layer: str = "auto",
        feature: Literal["projection", "confidence"] = "projection",
        classes: int | None = None,
        invariant: str = "lambda2",
        key: Key = "keyed",
        gap: float | None = None,
        statistic: str = "combined",
        sampler: Sampler | None = None,
        score_channel: int | None = None,
        recipe: Recipe | None = None,
        tensors: Collection[str] | None = None,
        transform: Transform | None = None,
        forward: Forward | None = None,
        token: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Watermark:
        """Draw a fresh mark for a task.

        Carriers get the tensors that the data have, such as `edge_attr`, from random nodes, edges and
        graphs of the data. If some edges have one direction only, carriers are directed graphs.

        Args:
            secret: The secret; use one per model or per licensee.
            data: The task's training graphs (a list of PyG `Data` or a data set); for a node task the one
                training graph. `Graphs` and a `Reference`, to draw from repeatedly, are accepted too.
            m: Number of carriers, one bit each; even.
            access: The levels at which a suspect may be read. All are declared now, and the mark is
                embedded at each of them. By default `embedding` and `logits`; where the data have real
                numbers or several independent labels as targets (`y`), `embedding` and `values`.
            layer: Where to read at `embedding`: a module's name, `"name:in"`, or `"auto"`.
            feature: At `logits`: the secret's `projection` of the scores, or the top class's `confidence`.
            classes: Number of classes; by default taken from the data's labels (`y`).
            invariant: Name of the graph invariant that carriers are rated by.
            key: `keyed` derives the bits from the secret. `plain` derives them from the invariant, as in
                the paper; its verdicts rest on the `models` null.
            gap: Smallest distance of a target from one half (default 0.25 keyed, 0 plain).
            statistic: `combined`, `matches` or `rank`.
            sampler: The parameters of the carrier sampler.
            score_channel: Number of public features of a score channel; None for no score channel.
            recipe: The settings of the embedding.
            tensors: Names of the tensors that carriers get beside `x`; by default all that have one row per
                node, edge or graph. `()` for none.
            transform: A PyG transform that the model's inputs pass through, such as a positional encoding.
                It is applied to carriers and ordinary inputs once, now; pass `data` without it. The result
                is stored in the mark and bound to its bits.
            forward: How to call an unusual model on a PyG batch; not stored in files.
            token: Digest of a timestamp token that the mark is bound to (`invgnn.court.draw_bound` obtains
                one first); None for a mark without one.
            progress: Called with the number of carriers found so far.

        Returns:
            The mark.

        Raises:
            CarrierError: If the data do not yield enough carriers.
            DataError: If the data are not graphs of a task.
            ParameterError: If an argument is outside its limits.
        """
        laws.check_m(m)
        if transform is not None and score_channel is not None:
            raise ParameterError(
                "a score channel is read on the data themselves, so it cannot be combined with transform=",
                "apply the transform to the data first, and draw the mark from the result",
            )
        if transform is not None and getattr(data, "transform", None) is not None:
            raise ParameterError(
                "the data set applies a transform of its own, and transform= would be applied after it",
                "pass a data set with transform=None, or leave transform= out",
            )
        reference = _reference(data, tensors)
        sampler = sampler or Sampler()
        gap = (0.25 if key == "keyed" else 0.0) if gap is None else float(gap)
        names = _accesses(access, reference, classes)
        if "values" in names and score_channel is not None:
            raise ParameterError(
                "a score channel shifts class scores, and real-valued outputs have none",
                "leave score_channel= out",
            )
        classes = None if "values" in names else _classes(classes, reference)
        context = {
            "format": FORMAT,
            "m": m,
            "key": key,
            "invariant": invariant,
            "gap": gap,
            "sampler": sampler.record(),
            "level": reference.level,
            "reference": reference.digest,
            "readings": [Reading(a, layer, feature, classes).record() for a in names],
            "statistic": statistic,
            "ordinary": ORDINARY,
            "classes": classes,
        } | ({} if score_channel is None else {"function": score_channel})  # the field's name in every file
        context |= {} if token is None else {"token": token}
        check_context(context)
        bound = bind(context)
        scale = reference.scale(invariant)

        def side(graphs: Graphs) -> NDArray[np.int64]:
            t = scale(find_invariant(invariant)(graphs.skeleton))
            return np.where(np.abs(t - 0.5) < gap, -1, plain_bits(t)).astype(np.int64)

        drawn = Carriers.draw(
            reference,
            m,
            secret.derive("carriers", bound),
            sampler,
            side if key == "plain" else None,
            progress,
        )
        usual = np.sort(secret.derive("ordinary", bound).permutation(len(reference.graphs))[:ORDINARY])
        ordinary = reference.graphs.take(usual)
        shown = _shown(drawn.graphs, usual, reference, secret.derive("tensors", bound))
        if transform is not None:
            plain = Graphs.concat([drawn.graphs, ordinary]) if shown is None else shown
            shown = transformed(plain, transform, secret.derive("transform", bound))
        return cls(
            secret=secret,
            context=context,
            carriers=drawn.graphs,
            ordinary=ordinary,
            shown=shown,
            labels=None if classes is None else reference.labels_at(usual),
            scale=scale,
            recipe=recipe or Recipe(),
            rejected=dict(drawn.rejected),
            forward=forward,
        )

    # -- reading ------------------------------------------------------------------------------

    def read(
        self, suspect: Suspect, access: Access | None = None, forward: Forward | None = None
    ) -> Answers:
        """Ask a suspect and read its replies at one access level.

        Columns are taken for the task's classes in their order. `verify` also finds out which column is
        which class.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
            access: A declared level; by default the first.
            forward: How to call an unusual model.

        Returns:
            One answer per carrier and per ordinary input.

        Raises:
            SuspectError: If the suspect cannot be read at this level or answers no ordinary input.
        """
        reading = self.reading(access)
        replies = self.ask(suspect, [reading], forward)
        return self.answers(replies, reading)

    def ask(
        self, suspect: Suspect, readings: Sequence[Reading] | None = None, forward: Forward | None = None
    ) -> Replies:
        """Ask a suspect about carriers and ordinary inputs, in the secret's order, once for all readings.

        The questions are decoded from the bytes that the bits are bound to; every suspect gets copies.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
            readings: The readings to prepare for; by default all declared ones.
            forward: How to call an unusual model.

        Returns:
            The replies.
        """
        asked, labels = self.asked
        readings = self.readings if readings is None else readings
        replies = ask(suspect, asked, readings, forward or self.forward)
        return replies.labelled(labels, self.classes)

    def answers(self, replies: Replies, reading: Reading, columns: Sequence[int] | None = None) -> Answers:
        """Read one answer per question from a suspect's replies.

        Args:
            replies: What `ask` returned.
            reading: Where to read.
            columns: Which column of the scores is which class; by default in order.
        """
        found = np.empty(len(self._order))
        found[self._order] = replies.answers(reading, self.direction, columns)
        return Answers.of(reading, found, self.m)

    def evidence(self, answers: Answers) -> Evidence:
        """Return the evidence in a suspect's answers under the declared statistic.

        A plain key has no exact law: then only the counts mean something, and the evidence is 0 bits.
        """
        threshold = 0.5 if answers.reading.binary else None
        found = evidence_of(answers.carriers, self.bits, self.context["statistic"], threshold)
        return found if self.context["key"] == "keyed" else replace(found, log_p=0.0, exact=False)

    # -- the score channel --------------------------------------------------------------------

    def with_baseline(self, model: nn.Module, data: Any) -> Watermark:
        """Return the same mark, bound to the scores of a model before the mark is embedded.

        Embed the returned mark and store it. It cannot be made again: key and direction derive from the
        baseline scores.

        Args:
            model: A model that has learnt its task.
            data: The data that the mark was drawn from.

        Raises:
            ParameterError: If the mark has no score channel, or a baseline already.
            DataError: If these are other data.
        """
        if self.baseline is not None:
            raise ParameterError("this mark has a baseline already", "embed it as it is, or draw another")
        self._features(data)
        return replace(self, baseline=Baseline.of(model, data, self.forward, self.format))

    def channel(self, data: Any) -> ScoreChannel:
        """Return the score channel on the data that this mark was drawn from.

        Raises:
            ParameterError: If the mark has no score channel, or no baseline yet.
            DataError: If these are other data.
        """
        features = self._features(data)
        if self.baseline is None:
            raise ParameterError(
                "this mark has no baseline scores",
                "to embed it, train the model, then mark = mark.with_baseline(model, data); to verify, use "
                "the mark that was embedded (`invgnn embed` wrote it into its file)",
            )
        inputs = Inputs.of(data)
        if self.baseline.inputs != inputs.digest(self.format):
            raise DataError(
                "these are not the inputs that the baseline scores belong to",
                "pass the same training data, every tensor as it was",
            )
        stream = self.secret.derive("function", self.bound, *self._asked_about)
        before, strength = self.baseline.scores, self.recipe.score_shift
        return ScoreChannel.draw(stream, self.direction, inputs, features, strength, before, self.format)

    def _features(self, data: Any) -> int:
        """Return the number of features, if these are the right data."""
        if self.score_channel is None:
            raise ParameterError("this mark has no score channel", "draw it with score_channel=128")
        names = () if self.shown is None else tuple(self.shown.more)
        keep = self.carriers.is_directed
        found = Reference.of(data, self.format, tensors=names, keep_directions=keep)
        if found.digest != self.context["reference"]:
            raise DataError(
                "these are not the inputs that the mark was drawn from", "pass the same training data"
            )
        return self.score_channel

    # -- embedding ----------------------------------------------------------------------------

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
        portion = self.schedule.at(self.recipe, step, steps)
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
        if self.schedule.at(self.recipe, step, steps) is self.schedule.none:
            return task_loss
        mark_loss = self.loss(unwrap(model), step=step, steps=steps)
        return projected_sum(task_loss, mark_loss, model.parameters(), self.recipe.cap, peers(model))

    def mix(self, batch: Any, *, step: int | None = None, steps: int | None = None) -> MixedBatch:
        """Append carriers to a task batch: call the result on the model, then take its loss.

        Args:
            batch: The task batch.
            step: Number of the optimiser step, as in `loss`.
            steps: Optimiser steps of the whole training, as in `loss`.

        Raises:
            DataError: If the batch holds tensors that carriers lack.
        """
        return MixedBatch(self, batch, self.schedule.at(self.recipe, step, steps))

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
        lr: float = LR,
        batch_size: int = 64,
        metric: Metric | None = None,
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
            steps: Most optimiser steps; by default 200.
            lr: Learning rate of Adam in the first attempt.
            batch_size: Graphs per batch, where `data` are single graphs.
            metric: Measures the model on its task before and after, in evaluation mode.
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
            steps=steps,
            lr=lr,
            batch_size=batch_size,
            metric=metric,
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
        return self._monitor(model)

    @cached_property
    def _monitor(self) -> Monitor:
        return Monitor(self)

    def finish(self, model: nn.Module, data: Any, *, batch_size: int = 64) -> dict[str, Level]:
        """Finish an embedding at the end of your own training loop; in place.

        The running statistics of batch norms are estimated again on task inputs, as plain averages, because
        they lag behind weights that moved until the end. Weights before norms are then scaled
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
        return finish(self, model, data, batch_size)

    # -- files --------------------------------------------------------------------------------

    def save(
        self,
        path: str | Path,
        passphrase: str | None = None,
        *,
        insecure_no_passphrase: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write the mark, secret included, encrypted and readable by you alone.

        Args:
            path: Where to write it.
            passphrase: The passphrase that it is encrypted with.
            insecure_no_passphrase: Whether to write it in clear instead.
            overwrite: Whether to replace an existing file.

        Raises:
            PassphraseError: If there is no passphrase.
            FileError: If the file exists, or cannot be written.
        """
        passphrase = conceal(passphrase)
        require_passphrase(passphrase, insecure_no_passphrase)
        body, tensors = pack({one.name: getattr(self, one.name) for one in fields(self)}, self.digest)
        container.write(
            path, "mark", body, tensors, passphrase=passphrase, private=True, overwrite=overwrite
        )

    @classmethod
    def load(
        cls, path: str | Path, passphrase: str | None = None, *, forward: Forward | None = None
    ) -> Watermark:
        """Read a mark from a file.

        Args:
            path: The file.
            passphrase: Its passphrase, if it is encrypted.
            forward: How to call an unusual model.

        Raises:
            FileError: If there is no such file, or it holds no sound mark.
            PassphraseError: If the passphrase is missing or wrong.
        """
        passphrase = conceal(passphrase)
        held = container.read(path, "mark", passphrase=passphrase)
        try:
            mark = cls(**unpack(held), forward=forward)
            if mark.digest != held.body["digest"]:
                raise ParameterError("its digest is not that of its content")
        except InvgnnError as error:
            advice = error.advice or "Use another copy of it."
            raise FileError(f"{path} holds no sound mark: {error.message[:400]}", advice) from None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            why = f"{path} holds no sound mark: {str(error)[:400]}"
            raise FileError(why, "Use another copy of it.") from None
        return mark

    def fresh(self) -> Watermark:
        """Return the same mark with nothing derived yet, so that a judge derives everything anew."""
        return replace(self, context=copy.deepcopy(self.context))

    def replace(self, **changes: Any) -> Watermark:
        """Return the same mark with another `recipe` or `forward`.

        Raises:
            ParameterError: If any other field is given; these are bound to the secret.
        """
        extra = set(changes) - {"recipe", "forward"}
        if extra:
            raise ParameterError(f"{', '.join(sorted(extra))} is bound to the secret", "draw a new mark")
        return replace(self, **changes)

    def __repr__(self) -> str:
        accesses = "+".join(r.access for r in self.readings)
        return (
            f"Watermark(m={self.m}, {self.context['key']} {self.context['invariant']}, "
            f"{accesses}, {self.digest[:12]})"
        )


def _accesses(
    access: Access | Sequence[Access] | None, reference: Reference, classes: int | None
) -> list[Access]:
    """Return the declared levels, if they fit what the task predicts."""
    other = classes is None and reference.targets in {"real", "labels"}
    if access is None:
        return ["embedding", "values" if other else "logits"]
    names = [access] if isinstance(access, str) else list(access)
    if other and {"logits", "labels"} & set(names):
        what = "real numbers" if reference.targets == "real" else "several independent labels"
        raise ParameterError(
            f"the targets (y) are {what}, and {' and '.join(names)} would read the outputs as class scores",
            "declare access=('embedding', 'values'), or leave access= out; if they are classes after all, "
            "pass classes=, their number",
        )
    return names


def _reference(data: Any, tensors: Collection[str] | None) -> Reference:
    """Return the population to draw from, with the tensors of these names, or with all."""
    if tensors is not None and isinstance(data, Reference | Graphs):
        raise ParameterError(
            f"tensors= selects from data, not from a {type(data).__name__}",
            "pass Reference.of(data, tensors=(...)), or the data themselves",
        )
    return Reference.of(data, tensors=tensors)


def _shown(
    carriers: Graphs, usual: NDArray[np.int64], reference: Reference, stream: Stream
) -> Attributed | None:
    """Return carriers and ordinary inputs with the tensors of the reference; None if it has none."""
    if reference.tensors is None:
        return None
    donated = with_tensors(carriers, reference.graphs, reference.tensors, stream)
    return Attributed.concat([donated, reference.tensors.take(usual)])


def _classes(given: int | None, reference: Reference) -> int | None:
    """Return the number of classes: as given, but no fewer than the labels show."""
    known = reference.num_classes
    if given is None or known is None or given >= known:
        return known if given is None else given
    raise ParameterError(
        f"classes={given}, but the data have labels up to {known - 1}", "leave classes= out, or correct it"
    )
