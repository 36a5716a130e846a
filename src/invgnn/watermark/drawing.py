"""Draw the parts of a fresh mark: carriers, ordinary inputs and the context that everything is bound to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Attributed
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.invariants import find_invariant, plain_bits
from invgnn.nn.forward import Forward
from invgnn.nn.typed_graphs import Schema, is_typed
from invgnn.readout.reading import Access, Reading
from invgnn.secret import Secret, Stream
from invgnn.stats import laws
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.context import FORMAT, LEAST_FEATURES, bind, check_context
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler
from invgnn.watermark.stealth import CARRIERS
from invgnn.watermark.tensor_donors import with_tensors
from invgnn.watermark.transforms import Transform, transformed

Key = Literal["keyed", "plain"]
ORDINARY = 64
"""How many ordinary task inputs a mark keeps, to tell a model's usual answers from others."""
USUAL = 128
"""How many carriers a mark has if nobody says otherwise."""
INPUTS_PER_FEATURE, MOST_SUITABLE = 20, 128
"""How many inputs a score channel should have for every feature, and how many features at most."""


def draw_parts(
    secret: Secret,
    data: Any,
    *,
    m: int | None,
    stealth: bool,
    access: Access | Sequence[Access] | None,
    layer: str,
    feature: Literal["projection", "confidence"],
    classes: int | None,
    invariant: str,
    key: Key,
    gap: float | None,
    statistic: str,
    sampler: Sampler | None,
    score_channel: int | Literal["auto"] | None,
    tensors: Collection[str] | None,
    transform: Transform | None,
    token: str | None,
    shared_halves: bool,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Return the fields of a fresh mark that are drawn; see `Watermark.draw`."""
    if m is not None:
        laws.check_m(m)
    _check_transform(data, transform, score_channel is not None)
    reference = _reference(data, tensors)
    m = (CARRIERS[reference.level] if stealth else USUAL) if m is None else m
    features = _suitable_features(data, reference) if score_channel == "auto" else score_channel
    sampler = sampler or Sampler()
    gap = (0.25 if key == "keyed" else 0.0) if gap is None else float(gap)
    names = _accesses(access, reference, classes)
    if "values" in names and features is not None:
        raise ParameterError(
            "a score channel shifts class scores, and real-valued outputs have none",
            "leave score_channel= out",
        )
    classes = None if "values" in names else _classes(classes, reference)
    context = {  # every mark in the field is bound to these names and values
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
    } | ({} if features is None else {"function": features})  # the field's name in every file
    context |= {} if token is None else {"token": token}
    if shared_halves and {"logits", "labels"} <= set(names):
        context["shared_halves"] = True
    check_context(context)
    return {"context": context} | _drawn(secret, context, reference, sampler, transform, progress)


def untyped(
    data: Any, sampler: Sampler | None, forward: Forward | None
) -> tuple[Any, Sampler | None, Forward | None]:
    """Return typed graphs as plain ones, with the sampler and the call that they need; others as they are.

    Typed graphs may be plain already, with their schema as the call.

    Args:
        data: The data that a mark is drawn from.
        sampler: The parameters of the sampler, if any were given.
        forward: How to call the model, if it was given.
    """
    typed = isinstance(data, list | tuple) and len(data) > 0 and is_typed(data[0])
    schema = Schema.of(data) if typed else forward
    if not isinstance(schema, Schema):
        return data, sampler, forward
    sampler = replace(sampler or Sampler(), types=len(schema.types))
    return [schema.flatten(graph) for graph in data] if typed else data, sampler, forward or schema


def _drawn(
    secret: Secret,
    context: dict[str, Any],
    reference: Reference,
    sampler: Sampler,
    transform: Transform | None,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Return carriers, ordinary inputs and what belongs to them."""
    bound, scale = bind(context), reference.scale(context["invariant"])

    def side(graphs: Graphs) -> NDArray[np.int64]:
        t = scale(find_invariant(context["invariant"])(graphs.skeleton))
        return np.where(np.abs(t - 0.5) < context["gap"], -1, plain_bits(t)).astype(np.int64)

    drawn = Carriers.draw(
        reference,
        context["m"],
        secret.derive("carriers", bound),
        sampler,
        side if context["key"] == "plain" else None,
        progress,
    )
    usual = np.sort(secret.derive("ordinary", bound).permutation(len(reference.graphs))[:ORDINARY])
    ordinary = reference.graphs.take(usual)
    shown = _shown(drawn.graphs, usual, reference, secret.derive("tensors", bound))
    if transform is not None:
        plain = Graphs.concat([drawn.graphs, ordinary]) if shown is None else shown
        shown = transformed(plain, transform, secret.derive("transform", bound))
    return {
        "carriers": drawn.graphs,
        "ordinary": ordinary,
        "shown": shown,
        "labels": None if context["classes"] is None else reference.labels_at(usual),
        "scale": scale,
        "rejected": dict(drawn.rejected),
    }


def _suitable_features(data: Any, reference: Reference) -> int:
    """Return how many features a score channel on these data should have."""
    inputs = len(reference.graphs) if reference.level == "graph" else getattr(data, "num_nodes", None)
    if inputs is None:
        raise ParameterError(
            f"score_channel='auto' counts the nodes of the task, and a {type(data).__name__} does not say",
            "pass the graph of the task itself, or a number of features",
        )
    features = min(MOST_SUITABLE, int(inputs) // INPUTS_PER_FEATURE)
    if features < LEAST_FEATURES:
        raise ParameterError(
            f"{inputs} inputs are too few for a score channel, which needs {INPUTS_PER_FEATURE} for every "
            f"feature and {LEAST_FEATURES} features",
            "leave score_channel= out, or pass all training inputs",
        )
    return features


def _check_transform(data: Any, transform: Transform | None, score_channel: bool) -> None:
    """Refuse a transform that would not be applied to what the model sees."""
    if transform is not None and score_channel:
        raise ParameterError(
            "a score channel is read on the data themselves, so it cannot be combined with transform=",
            "apply the transform to the data first, and draw the mark from the result",
        )
    if transform is not None and getattr(data, "transform", None) is not None:
        raise ParameterError(
            "the data set applies a transform of its own, and transform= would be applied after it",
            "pass a data set with transform=None, or leave transform= out",
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
