"""A Merkle tree over salted leaves: one root commits to many values, each of which can be shown alone.

The tree has the shape of RFC 6962. Leaves and inner nodes are hashed in separate domains, so no leaf can
pass for a node. Changing this breaks every claim in the field; golden vectors in the tests guard it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from invgnn.errors import ParameterError

SIZE = 32
"""Number of bytes of a hash and of a salt."""
_LEAF, _NODE = b"invgnn/merkle/1/leaf\0", b"invgnn/merkle/1/node\0"


def hash_leaf(salt: bytes, content: bytes) -> bytes:
    """Return the hash of a leaf.

    Args:
        salt: 32 random bytes, which hide the content of a leaf that is not shown.
        content: The content, in a canonical encoding.

    Raises:
        ParameterError: If the salt has another length, so that salt and content could be confused.
    """
    if len(salt) != SIZE:
        raise ParameterError(f"a salt has {SIZE} bytes, not {len(salt)}", "use the salt of the leaf")
    return hashlib.sha256(_LEAF + salt + content).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree with these leaf hashes.

    Raises:
        ParameterError: If there are no leaves.
    """
    if not leaves:
        raise ParameterError("a tree without leaves has no root", "commit to at least one value")
    if len(leaves) == 1:
        return leaves[0]
    split = _split(len(leaves))
    return _node(root_of(leaves[:split]), root_of(leaves[split:]))


def path_of(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that connect one leaf with the root, from the leaf upwards.

    Raises:
        ParameterError: If there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise ParameterError(f"there is no leaf {index} among {len(leaves)}", "use an existing leaf")
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*path_of(leaves[:split], index), root_of(leaves[split:])]
    return [*path_of(leaves[split:], index - split), root_of(leaves[:split])]


def root_from(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root to which a path leads from a leaf; None if the path cannot belong to this place.

    Args:
        leaf: The hash of the leaf.
        index: Its place in the tree.
        count: Number of leaves of the tree.
        path: What `path_of` returned.
    """
    turns = _turns(index, count)
    if turns is None or len(turns) != len(path):
        return None
    found = leaf
    for on_the_left, other in zip(turns, path, strict=True):
        found = _node(found, other) if on_the_left else _node(other, found)
    return found


def _turns(index: int, count: int) -> list[bool] | None:
    """Return for every step from a leaf upwards whether it comes from the left side."""
    if not 0 <= index < count:
        return None
    turns = []
    while count > 1:
        split = _split(count)
        turns.append(index < split)
        index, count = (index, split) if index < split else (index - split, count - split)
    return turns[::-1]


def _split(count: int) -> int:
    """Return the largest power of two below a number of leaves."""
    return 1 << ((count - 1).bit_length() - 1)


def _node(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(_NODE + left + right).digest()
