"""The leaves of a claim's tree: every carrier with its bit, the ordinary inputs, the reading directions.

Carriers come first, in an order that the secret derives and that is independent of the bits. Changing a
leaf breaks every claim in the field; golden vectors in the tests guard it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from invgnn.concealed import conceal
from invgnn.court import merkle
from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Attributed
from invgnn.storage import encoding
from invgnn.watermark.directions import stream_parts
from invgnn.watermark.mark import Watermark


@dataclass(frozen=True)
class Leaf:
    """One leaf with what is needed to check it against the root.

    Attributes:
        index: Its place in the tree.
        salt: 32 bytes that hide the leaf until it is shown.
        content: The canonical encoding of what it says.
        path: The hashes that lead to the root.

    Raises:
        ParameterError: If a part is of another type.
    """

    index: int
    salt: bytes
    content: bytes
    path: tuple[bytes, ...]

    def __post_init__(self) -> None:
        """Refuse parts of other types: a claimant decides what is in an opening."""
        parts = (self.salt, self.content, *self.path)
        if type(self.index) is not int or not all(isinstance(one, bytes) for one in parts):
            raise ParameterError("a leaf has parts of a wrong type", "ask for another opening")

    def __repr__(self) -> str:
        return f"<Leaf {self.index}>"

    @property
    def value(self) -> Any:
        """What the leaf says, decoded."""
        return encoding.decode(self.content)

    def leads_to(self, root: str, count: int) -> bool:
        """Return whether the leaf belongs to a tree with this root and number of leaves."""
        leaf = merkle.hash_leaf(self.salt, self.content)
        found = merkle.root_from(leaf, self.index, count, self.path)
        return found is not None and found.hex() == root


class Leaves:
    """All leaves of a mark.

    Args:
        mark: The mark.
        salt: The public salt of the claim.
    """

    def __init__(self, mark: Watermark, salt: bytes) -> None:
        self._contents = conceal({str(i): one for i, one in enumerate(_contents(mark))})
        stream = mark.secret.derive("court/salts", mark.bound, salt)
        self._salts = conceal(stream.bytes(merkle.SIZE * len(self._contents)))
        self._hashes = [merkle.hash_leaf(self.salt(i), self.content(i)) for i in range(len(self))]

    def __len__(self) -> int:
        return len(self._contents)

    def salt(self, index: int) -> bytes:
        """Return the salt of a leaf."""
        return self._salts[merkle.SIZE * index : merkle.SIZE * (index + 1)]

    def content(self, index: int) -> bytes:
        """Return the content of a leaf."""
        return self._contents[str(index)]

    @property
    def root(self) -> str:
        """The root of the tree, in hex."""
        return merkle.root_of(self._hashes).hex()

    def show(self, index: int) -> Leaf:
        """Return a leaf with its path."""
        path = merkle.path_of(self._hashes, index)
        return Leaf(index, bytes(self.salt(index)), self.content(index), tuple(path))


def _contents(mark: Watermark) -> list[bytes]:
    """Return the content of every leaf."""
    carriers, ordinary, labels = mark.questions.decoded
    order = mark.secret.derive("court/order", mark.bound).permutation(mark.m)
    shown = [
        {"carrier": carriers.take([k]).record(), "bit": int(mark.bits[k]), **_as_shown(mark, [k])}
        for k in order.tolist()
    ]
    usual = {"ordinary": ordinary.record(), "labels": labels}
    usual |= _as_shown(mark, range(mark.m, mark.m + len(ordinary)))
    ways = [
        {"access": access, "stream": mark.secret.derive("projection", mark.bound, *parts).key}
        for access, parts in (
            (r.access, stream_parts(r.access, mark.classes, mark.shared_halves))
            for r in mark.readings
            if r.access != "perception"
        )
    ]
    return [encoding.encode(one) for one in (*shown, usual, *ways)]


def _as_shown(mark: Watermark, places: Sequence[int]) -> dict[str, Any]:
    """Return questions as a suspect is shown them, if they have further tensors or were transformed."""
    shown = mark.questions.shown
    return {"shown": shown.take(list(places)).record()} if isinstance(shown, Attributed) else {}
