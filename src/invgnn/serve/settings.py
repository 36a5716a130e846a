"""What a server returns, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from invgnn.checks import check_choice, check_flag, check_number, check_whole
from invgnn.errors import ParameterError

Output = Literal["scores", "probabilities", "labels"]
"""What a server returns for every graph, or for every node of a node model."""


@dataclass(frozen=True)
class Returned:
    """What a server returns.

    Attributes:
        output: `scores` as the model computes them, `probabilities`, or the top `labels` alone.
        digits: Number of decimal digits that scores and probabilities are rounded to; None for no rounding.
        embeddings: Whether to return the input of the last layer as well, one row per graph.

    Raises:
        ParameterError: If a value is invalid.
    """

    output: Output = "probabilities"
    digits: int | None = None
    embeddings: bool = False

    def __post_init__(self) -> None:
        check_choice("output", self.output, get_args(Output))
        check_flag("embeddings", self.embeddings)
        if self.digits is not None:
            check_whole("digits", self.digits, 1, 12)
        if self.digits is not None and self.output == "labels":
            raise ParameterError("labels cannot be rounded", "leave out digits, or return probabilities")


@dataclass(frozen=True)
class Limits:
    """The limits of a server. A request beyond them is refused and costs no forward pass.

    Attributes:
        body: Most bytes of a request.
        graphs: Most graphs of a request.
        nodes: Most nodes of a request.
        edges: Most edges of a request.
        seconds: Most seconds until a request is received, and again until it is answered.
        concurrency: Most requests at a time, waiting ones included. The model itself runs one at a time.

    Raises:
        ParameterError: If a value is out of range.
    """

    body: int = 8 << 20
    graphs: int = 1024
    nodes: int = 200_000
    edges: int = 2_000_000
    seconds: float = 30.0
    concurrency: int = 128

    def __post_init__(self) -> None:
        for name, most in (("body", 1 << 30), ("graphs", 1 << 20), ("nodes", 1 << 24), ("edges", 1 << 26)):
            check_whole(name, getattr(self, name), 1, most)
        check_whole("concurrency", self.concurrency, 1, 65_536)
        check_number("seconds", self.seconds)
        if not 0 < self.seconds <= 3600:
            raise ParameterError(f"seconds={self.seconds} is not in (0, 3600]", "use for example 30")
