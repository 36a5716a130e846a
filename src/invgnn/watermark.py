"""Watermark: a secret, its carriers, and how they are taught to a model and read back."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn import encoding, files, null
from invgnn.carriers import Carriers, Reference, Sampler, distinct
from invgnn.channel import Channel, Memory
from invgnn.concealed import conceal
from invgnn.context import FORMAT, bind, check_context
from invgnn.errors import DataError, FileError, InvgnnError, ParameterError
from invgnn.forward import Forward, unwrap, weight_of
from invgnn.graphs import Graphs, Ints, ranges
from invgnn.inputs import Inputs
from invgnn.invariants import Scale, find_invariant, keyed_targets, plain_bits
from invgnn.joint import Joint, Rota
from invgnn.parallel import peers, shared
from invgnn.query import Answers, Replies, Suspect, ask
from invgnn.reading import Access, Direction, Reading
from invgnn.recipe import Recipe, guarded
from invgnn.seal import require_passphrase
from invgnn.secret import Secret
from invgnn.storage import pack, unpack
from invgnn.teaching import own_loss, refresh

Key = Literal["keyed", "plain"]
MOST_NODES = 2_000_000
"""How many nodes all carriers, or all ordinary inputs, may have together."""
ORDINARY = 64
"""How many ordinary task inputs a mark keeps, to tell a model's usual answers from others."""


@dataclass(frozen=True, eq=False)
class Watermark:
    """A mark: everything derives from the secret and what it is bound to, its context and its memory.

    Draw one with `Watermark.draw`, teach it with `loss` or `mix`, read a suspect with `read`, and
    keep it with `save`. The bits are re-derived, never stored.
    """

    secret: Secret
    context: dict[str, Any]
    carriers: Graphs
    ordinary: Graphs
    scale: Scale
    recipe: Recipe = field(default_factory=Recipe)
    rejected: dict[str, int] = field(default_factory=dict)
    forward: Forward | None = None
    memory: Memory | None = None
    labels: Ints | None = None

    def __post_init__(self) -> None:
        """An unsound mark cannot be made: what is counted, read and compared is checked here."""
        check_context(self.context)
        if max(self.carriers.num_nodes, self.ordinary.num_nodes) > MOST_NODES:
            raise ParameterError(
                f"more than {MOST_NODES:,} nodes", "draw the mark anew, from smaller graphs"
            )
        if len(self.carriers) != self.m:
            raise ParameterError(f"{len(self.carriers)} carriers for m={self.m}", "draw the mark anew")
        if not distinct(self.carriers, Sampler.recall(self.context["sampler"])):
            raise ParameterError("some carriers are the same graph", "draw the mark anew")
        if not 1 <= len(self.ordinary) <= self.context["ordinary"]:
            raise ParameterError(
                f"{len(self.ordinary)} ordinary inputs for ordinary={self.context['ordinary']}",
                "draw the mark anew",
            )
        self._check_labels()
        if self.complete and int(self.bits.sum()) * 2 != self.m:
            raise ParameterError("the key is not balanced", "draw the mark anew")
        if self.recipe.every > 1 and "perception" in {r.access for r in self.readings}:
            raise ParameterError("the paper's head learns in every step", "set every=1")
        if self.memory is not None and self.function is None:
            raise ParameterError(
                "scores are remembered for a second channel only", "draw with function=128"
            )

    def _check_labels(self) -> None:
        if self.labels is None:
            return
        if self.format == 1:
            raise ParameterError("format 1 binds no labels, so it keeps none", "draw the mark anew")
        rows = len(self.ordinary) if self.context["level"] == "graph" else self.ordinary.num_nodes
        known = np.asarray(self.labels)
        if known.shape != (rows,) or known.dtype != np.int64:
            raise ParameterError(f"labels of shape {known.shape} for {rows} inputs", "draw the mark anew")
        if self.classes is None or known.min() < -1 or known.max() >= self.classes:
            raise ParameterError("a label is no class of the task", "draw the mark anew")

    @classmethod
    def draw(
        cls,
        secret: Secret,
        data: Any,
        *,
        m: int = 128,
        access: Access | Sequence[Access] = ("embedding", "logits"),
        layer: str = "auto",
        feature: Literal["projection", "confidence"] = "projection",
        classes: int | None = None,
        invariant: str = "lambda2",
        key: Key = "keyed",
        gap: float | None = None,
        statistic: str = "combined",
        sampler: Sampler | None = None,
        function: int | None = None,
        recipe: Recipe | None = None,
        forward: Forward | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Watermark:
        """A fresh mark for a task.

        data       the task's training graphs (a list of PyG `Data` or a data set), for a node
                   task the one training graph, `Graphs`, or a `Reference` to draw from often
        access     where a suspect may be read, all declared now; the mark is embedded at each
        key        `keyed`: bits from the secret (default); `plain`: bits from the invariant, as in
                   the paper, whose verdicts need the `models` null
        classes    how many classes there are; taken from the data's labels (`y`) where they are classes
        gap        smallest distance of a target from one half (default 0.25 keyed, 0 plain)
        forward    how to call an unusual model on a PyG batch; not stored in files
        """
        null.check_m(m)
        reference = Reference.of(data)
        sampler = sampler or Sampler()
        gap = (0.25 if key == "keyed" else 0.0) if gap is None else float(gap)
        names = [access] if isinstance(access, str) else list(access)
        classes = _classes(classes, reference)
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
        } | ({} if function is None else {"function": function})
        check_context(context)
        bound = bind(context)
        scale = reference.scale(invariant)

        def side(graphs: Graphs) -> NDArray[np.int64]:
            t = scale(find_invariant(invariant)(graphs))
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
        return cls(
            secret=secret,
            context=context,
            carriers=drawn.graphs,
            ordinary=reference.graphs.take(usual),
            labels=None if classes is None else reference.labels_at(usual),
            scale=scale,
            recipe=recipe or Recipe(),
            rejected=dict(drawn.rejected),
            forward=forward,
        )

    # -- what derives from the secret ---------------------------------------------------------

    @property
    def m(self) -> int:
        """How many carriers, and so bits."""
        return int(self.context["m"])

    @property
    def format(self) -> int:
        """The format of this mark: how it derives what it is made of."""
        return int(self.context["format"])

    @property
    def classes(self) -> int | None:
        """How many classes the task has; None if that was not known when the mark was drawn."""
        if self.format == 1:  # known only where labels are read
            return next((r.classes for r in self.readings if r.classes is not None), None)
        known = self.context["classes"]
        return None if known is None else int(known)

    @property
    def complete(self) -> bool:
        """Whether this mark has a key: one with a second channel has none before scores are bound to it."""
        return self.function is None or self.memory is not None

    @cached_property
    def bound(self) -> str:
        """Digest of the context every derivation is bound to."""
        return bind(self.context)

    @cached_property
    def readings(self) -> list[Reading]:
        """The declared readings, the first being the default."""
        return [Reading.recall(record) for record in self.context["readings"]]

    @property
    def layer(self) -> str | None:
        """The layer to watch, if any declared reading looks inside the model."""
        return next((r.layer for r in self.readings if r.hidden), None)

    @cached_property
    def perceived(self) -> NDArray[np.float64]:
        """The normalised invariant of every carrier, in [0, 1]."""
        return self.scale(find_invariant(self.context["invariant"])(self.carriers))

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """The balanced key, one bit per carrier.

        A mark with a second channel has one key for each set of remembered scores and none before, so that
        nobody can search for the two channels one after the other.

        Raises:
            ParameterError: If the mark has a second channel and remembers no model yet.
        """
        if not self.complete:
            raise ParameterError(
                "this mark has no key yet: its second channel remembers no model",
                "train the model, then mark = mark.remember(model, data); to verify, use the mark that was "
                "taught (`invgnn embed` wrote it into its file)",
            )
        if self.context["key"] == "plain":
            return plain_bits(self.perceived).astype(np.int64)
        return self.secret.derive("bits", self.bound, *self._asked_about).balanced(self.m)

    @cached_property
    def _questions(self) -> bytes:
        """All that a suspect is asked, in canonical bytes: the bits are bound to them, and only what is
        decoded from them is ever shown.
        """
        return encode_questions(self.carriers, self.ordinary, self.labels)

    @cached_property
    def _asked_about(self) -> list[str]:
        """Digests of all that is asked, and of what is remembered: whoever changes a part draws all anew.

        Nobody may arrange inputs once he knows the bits, nor search for either channel by itself.
        """
        if self.format == 1:
            held = [self.carriers.digest_1(), self.ordinary.digest_1()]
        else:
            held = [digest_questions(self._questions)]
        return held if self.memory is None else [*held, self.memory.digest(self.format)]

    @cached_property
    def targets(self) -> NDArray[np.float64]:
        """What the model should perceive on each carrier."""
        if self.context["key"] == "plain":
            return self.perceived
        return keyed_targets(self.perceived, self.bits, self.context["gap"])

    @cached_property
    def direction(self) -> Direction:
        """The secret's ±1 vector for an access level and a width; half of them +1 for class scores."""

        @cache
        @torch.inference_mode(False)  # what is kept may be trained through later
        def derived(access: str, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
            make = self._direction_1 if self.format == 1 else self._direction
            return torch.from_numpy(make(access, width)).to(device, dtype)

        def direction(access: str, width: int, like: Tensor | None = None, /) -> Tensor:
            like = torch.zeros((), dtype=torch.float64, device="cpu") if like is None else like
            return derived(access, width, like.dtype, like.device)

        return direction

    def _direction(self, access: str, width: int) -> NDArray[np.float64]:
        """Signs for every unit, or for every class less their mean; what is added behind changes nothing.

        The signs of hidden units are a prefix of one stream. Those of classes are for the classes of the
        task; further columns count nothing.
        """
        if access == "embedding":
            stream = self.secret.derive("projection", self.bound, access)
            return np.array(stream.signs(width), dtype=np.float64)
        classes = self.classes or width
        stream = self.secret.derive("projection", self.bound, access, classes)
        signs = np.where(np.arange(classes) < classes // 2, 1.0, -1.0)[stream.permutation(classes)]
        found = np.zeros(width)
        found[:classes] = signs[:width]
        found[:classes] -= found[:classes].mean() if access == "logits" else 0.0
        return found

    def _direction_1(self, access: str, width: int) -> NDArray[np.float64]:
        """Signs as in format 1, which depend on the width."""
        stream = self.secret.derive("projection", self.bound, access, width)
        if access == "embedding":
            return np.array(stream.signs(width), dtype=np.float64)
        return np.where(np.arange(width) < width // 2, 1.0, -1.0)[stream.permutation(width)]

    def reading(self, access: Access | None = None) -> Reading:
        """The declared reading at an access level, by default the first."""
        for reading in self.readings:
            if access in {None, reading.access}:
                return reading
        declared = ", ".join(r.access for r in self.readings)
        raise ParameterError(
            f"access {access!r} was not declared when this mark was drawn",
            f"declared: {declared}; a reading chosen after the fact proves nothing",
        )

    # -- reading ------------------------------------------------------------------------------

    def read(
        self, suspect: Suspect, access: Access | None = None, forward: Forward | None = None
    ) -> Answers:
        """Ask a suspect and read its replies at one access level, by default the first declared.

        Columns are taken for the task's classes in their order. `examine.examine` and `verify` also find
        out which column is which class.

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
        """
        questions, labels = self._asked
        readings = self.readings if readings is None else readings
        replies = ask(suspect, questions, readings, forward or self.forward)
        return replies.labelled(labels, self.classes)

    def answers(self, replies: Replies, reading: Reading, columns: Sequence[int] | None = None) -> Answers:
        """Read one answer per question out of a suspect's replies, given which column is which class."""
        said = np.empty(len(self._order))
        said[self._order] = replies.answers(reading, self.direction, columns)
        return Answers.of(reading, said, self.m)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """The order of the questions; it tells nothing of the bits."""
        count = self.m + len(self.ordinary)
        return self.secret.derive("order", self.bound).permutation(count)

    @cached_property
    def _asked(self) -> tuple[Graphs, Ints | None]:
        """The questions as they are asked, decoded from the bound bytes, and their classes."""
        held = decoded(self._questions)
        questions, known = Graphs.concat([held["carriers"], held["ordinary"]]), held["labels"]
        labels = None if known is None else self._labels_in_order(questions, known, self._order)
        return questions.take(self._order), labels

    def _labels_in_order(self, questions: Graphs, known: Ints, order: Ints) -> Ints:
        """The class of every graph, or of every node, of the questions as they are asked; -1 is unknown."""
        if self.context["level"] == "graph":
            return np.concatenate([np.full(self.m, -1), known])[order]
        rows = np.concatenate([np.full(questions.num_nodes - len(known), -1), known])
        return rows[ranges(questions.ptr[order], questions.sizes[order])]

    def weigh(self, answers: Answers) -> null.Evidence:
        """The evidence in a suspect's answers under the declared statistic.

        A plain key allows no exact law: then only the counts mean something, and the evidence is none.
        """
        threshold = 0.5 if answers.reading.binary else None
        found = null.log_p(answers.carriers, self.bits, self.context["statistic"], threshold)
        return found if self.context["key"] == "keyed" else replace(found, log_p=0.0, exact=False)

    # -- the second channel -------------------------------------------------------------------

    @property
    def function(self) -> int | None:
        """How many features the second channel has; None without one."""
        size = self.context.get("function")
        return None if size is None else int(size)

    def remember(self, model: nn.Module, data: Any) -> Watermark:
        """The same mark, bound to what a model that knows its task says of the data before it leans.

        Teach the result and keep it, for it cannot be made again: key and direction derive from the scores.
        """
        if self.memory is not None:
            raise ParameterError(
                "this mark remembers a model already", "teach it as it is, or draw another"
            )
        self._features(data)
        return replace(self, memory=Memory.of(model, data, self.forward, self.format))

    def channel(self, data: Any) -> Channel:
        """The second channel on the data that this mark was drawn from."""
        features = self._features(data)
        if self.memory is None:
            raise ParameterError(
                "this mark remembers no model",
                "to teach it, train the model, then mark = mark.remember(model, data); to verify, use the "
                "mark that was taught (`invgnn embed` wrote it into its file)",
            )
        inputs = Inputs.of(data)
        if self.memory.inputs != inputs.digest(self.format):
            raise DataError(
                "these are not the very inputs that the remembered model was asked about",
                "pass the same training data, every tensor as it was",
            )
        stream = self.secret.derive("function", self.bound, *self._asked_about)
        before, strength = self.memory.scores, self.recipe.lean
        return Channel.draw(stream, self.direction, inputs, features, strength, before, self.format)

    def _features(self, data: Any) -> int:
        """The number of features, if these are the right data."""
        if self.function is None:
            raise ParameterError("this mark has no second channel", "draw it with function=128")
        if Reference.of(data, self.format).digest != self.context["reference"]:
            raise DataError(
                "these are not the inputs that the mark was drawn from", "pass the same training data"
            )
        return self.function

    # -- embedding ----------------------------------------------------------------------------

    def loss(
        self,
        model: nn.Module,
        *,
        step: int | None = None,
        beside: Any = None,
        at: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The mark's loss, times `recipe.weight`, from a forward of its own: add it to the task loss.

        The pass runs in the model's present mode, over carriers and ordinary inputs together, on
        copies of the buffers: mode, statistics and random state stay exactly as they were, and BatchNorm
        measures the ordinary inputs alone. With `recipe.ratio` the carriers take turns, as many as the
        task batch `beside` them allows, chosen by the number of the optimiser `step`; where it is nobody's
        turn (`recipe.every`) the loss is a zero without gradient. `at` evaluates with every named parameter
        shifted (weight noise, simulated fine-tuning) while the gradient goes to the parameters themselves.

        Of a `DistributedDataParallel` model pass the wrapper: the gradient is the mean over its processes,
        however the loss is sent backward.
        """
        turn = self._rota.turn(self.recipe, beside, step)
        if turn is self._rota.nobody:
            like = weight_of(model)
            return torch.zeros(()) if like is None else like.new_zeros(())
        chosen = None if turn is self._rota.everyone else turn.carriers
        return shared(own_loss(self, model, chosen, at or {}), model)

    def guard(self, model: nn.Module, task_loss: Tensor, **options: Any) -> Tensor:
        """Task loss and mark loss in one, the mark's gradient freed of what points against the task's.

        Call `backward` on it. Costs a second backward pass and takes the options of `loss`. Only parameters
        of this model get a gradient; see `recipe.guarded`.
        """
        turn = self._rota.turn(self.recipe, options.get("beside"), options.get("step"))
        if turn is self._rota.nobody:
            return task_loss
        mark_loss = self.loss(unwrap(model), **options)
        return guarded(task_loss, mark_loss, model.parameters(), self.recipe.cap, peers(model))

    def mix(self, batch: Any, *, step: int | None = None) -> Joint:
        """The task batch with the carriers in it: call the result on the model, then take its loss.

        All of them ride along, or with `recipe.ratio` a share that changes with the number of the
        optimiser `step`, or with `recipe.every` nobody in the steps between.
        """
        return Joint(self, batch, self._rota.turn(self.recipe, batch, step))

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
        """Distil your marked model into a student, in place, and teach the student the mark as well.

        Distillation on task inputs alone loses the mark; this is the owner's way to a smaller model, or to
        another architecture, that verifies. Any model on PyG inputs will do for either part.

        batches      task inputs, gone through once an epoch: a list or a `DataLoader` of PyG batches, for a
                     node task `[data]`. No label is used, and every row that the models score is learnt
        temperature  that softens the scores of both; the task loss is T² KL(teacher || student)

        Optimiser, guard, wait and pace are those of training. The last epoch is kept, in evaluation mode.
        The teacher and the random state stay as they were; after an error the student does too.
        """
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

    @cached_property
    def _rota(self) -> Rota:
        level = self.context["level"]
        return Rota(self.m, level, lambda number: self.secret.derive("steps", self.bound, number))

    # -- files --------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of what the mark is: its context and all it asks about, not the secret."""
        if self.format != 1:
            return encoding.digest("invgnn/mark/2", [self.bound, *self._asked_about])
        return hashlib.sha256("".join([self.bound, *self._asked_about]).encode()).hexdigest()

    def save(
        self,
        path: str | Path,
        passphrase: str | None = None,
        *,
        insecure_no_passphrase: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write the mark, secret included, encrypted and readable by you alone."""
        passphrase = conceal(passphrase)
        require_passphrase(passphrase, insecure_no_passphrase)
        body, tensors = pack(self)
        files.write(path, "mark", body, tensors, passphrase=passphrase, private=True, overwrite=overwrite)

    @classmethod
    def load(
        cls, path: str | Path, passphrase: str | None = None, *, forward: Forward | None = None
    ) -> Watermark:
        """The mark in a file; `forward` is how to call an unusual model."""
        passphrase = conceal(passphrase)
        held = files.read(path, "mark", passphrase=passphrase)
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
        """Return the same mark with nothing derived yet: whoever judges derives everything himself."""
        return replace(self, context=copy.deepcopy(self.context))

    def replace(self, **changes: Any) -> Watermark:
        """The same mark with another recipe or another way to call the model."""
        extra = set(changes) - {"recipe", "forward"}
        if extra:
            raise ParameterError(f"{', '.join(sorted(extra))} is bound to the secret", "draw again")
        return replace(self, **changes)

    def __repr__(self) -> str:
        accesses = "+".join(r.access for r in self.readings)
        return (
            f"Watermark(m={self.m}, {self.context['key']} {self.context['invariant']}, "
            f"{accesses}, {self.digest[:12]})"
        )


def _classes(given: int | None, reference: Reference) -> int | None:
    """How many classes there are: what was said, which may not be fewer than the labels know."""
    known = reference.num_classes
    if given is None or known is None or given >= known:
        return known if given is None else given
    raise ParameterError(
        f"classes={given}, but the data have labels up to {known - 1}", "leave classes= out, or correct it"
    )


def encode_questions(carriers: Graphs, ordinary: Graphs, labels: Ints | None) -> bytes:
    """Return the canonical bytes of all that a suspect is asked, and of what is known of it."""
    asked = {"carriers": carriers.record(), "ordinary": ordinary.record(), "labels": labels}
    return encoding.encode(asked)


def digest_questions(questions: bytes) -> str:
    """Return the digest that bits are bound to."""
    return encoding.digest_encoded("invgnn/questions/2", questions)


def decoded(questions: bytes) -> dict[str, Any]:
    """Return the graphs and labels in the bytes that a mark's bits are bound to."""
    found = encoding.decode(questions)
    graphs = {name: Graphs.recall(found[name]) for name in ("carriers", "ordinary")}
    return graphs | {"labels": found["labels"]}
