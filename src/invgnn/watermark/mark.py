"""Watermark: a secret and its carriers, how they are embedded in a model and read back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from invgnn.checks import check_flag
from invgnn.concealed import conceal
from invgnn.errors import FileError, InvgnnError, ParameterError
from invgnn.nn.forward import Forward
from invgnn.readout.reading import Access
from invgnn.secret import Secret
from invgnn.storage import container
from invgnn.storage.encryption import require_passphrase
from invgnn.watermark.drawing import ORDINARY as ORDINARY
from invgnn.watermark.drawing import Key as Key
from invgnn.watermark.drawing import draw_parts, untyped
from invgnn.watermark.mark_file import pack, unpack
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler
from invgnn.watermark.stealth import stealth_settings
from invgnn.watermark.trainable import Trainable
from invgnn.watermark.transforms import Transform


@dataclass(frozen=True, eq=False)
class Watermark(Trainable):
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
        m: int | None = None,
        access: Access | Sequence[Access] | None = None,
        layer: str = "auto",
        feature: Literal["projection", "confidence"] = "projection",
        classes: int | None = None,
        invariant: str = "lambda2",
        key: Key = "keyed",
        gap: float | None = None,
        statistic: str = "combined",
        sampler: Sampler | None = None,
        score_channel: int | Literal["auto"] | None = None,
        recipe: Recipe | None = None,
        stealth: bool = False,
        tensors: Collection[str] | None = None,
        transform: Transform | None = None,
        forward: Forward | None = None,
        token: str | None = None,
        shared_halves: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Watermark:
        """Draw a fresh mark for a task.

        Carriers get the tensors that the data have, such as `edge_attr`, from random nodes, edges and
        graphs of the data. If some edges have one direction only, carriers are directed graphs.

        Args:
            secret: The secret; use one per model or per licensee.
            data: The task's training graphs (a list of PyG `Data` or a data set); for a node task the one
                training graph. `Graphs` and a `Reference`, to draw from repeatedly, are accepted too. Of
                typed graphs a list of `HeteroData`, for a graph task.
            m: Number of carriers, one bit each; even. By default 128, with `stealth` on graph tasks 256.
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
            score_channel: Number of public features of a score channel; `auto` for one for every 20 inputs,
                at most 128; None for no score channel.
            recipe: The settings of the embedding.
            stealth: Draw carriers that a server can hardly tell from ordinary inputs. Such marks are weaker
                and cost more accuracy; the page on stealth has the figures. It chooses `sampler`.
            tensors: Names of the tensors that carriers get beside `x`; by default all that have one row per
                node, edge or graph. `()` for none.
            transform: A PyG transform that the model's inputs pass through, such as a positional encoding.
                It is applied to carriers and ordinary inputs once, now; pass `data` without it. The result
                is stored in the mark and bound to its bits.
            forward: How to call an unusual model on a PyG batch; not stored in files.
            token: Digest of a timestamp token that the mark is bound to (`invgnn.court.draw_bound` obtains
                one first); None for a mark without one.
            shared_halves: Whether `logits` and `labels`, if both are declared, use the same secret halves
                of the classes. False draws them as earlier versions did: two levels then ask for different
                answers, with two classes for opposite ones in every second mark.
            progress: Called with the number of carriers found so far.

        Returns:
            The mark.

        Raises:
            CarrierError: If the data do not yield enough carriers.
            DataError: If the data are not graphs of a task.
            ParameterError: If an argument is outside its limits.
        """
        check_flag("stealth", stealth)
        if stealth:
            sampler, recipe = stealth_settings(sampler, recipe)
        data, sampler, forward = untyped(data, sampler, forward)
        parts = draw_parts(
            secret,
            data,
            m=m,
            stealth=stealth,
            access=access,
            layer=layer,
            feature=feature,
            classes=classes,
            invariant=invariant,
            key=key,
            gap=gap,
            statistic=statistic,
            sampler=sampler,
            score_channel=score_channel,
            tensors=tensors,
            transform=transform,
            token=token,
            shared_halves=shared_halves,
            progress=progress,
        )
        return cls(secret=secret, recipe=recipe or Recipe(), forward=forward, **parts)

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

    def __repr__(self) -> str:
        accesses = "+".join(r.access for r in self.readings)
        return (
            f"Watermark(m={self.m}, {self.context['key']} {self.context['invariant']}, "
            f"{accesses}, {self.digest[:12]})"
        )
