"""The tree of an object, section 8: what is sent for an address with `/tree`
behind it, and the object's groups, verified with it."""

import blake3
from blake3 import CHUNK, ROOT

GROUP = 16 * CHUNK
HEADER, VALUE, NODE = 8, 32, 64


def blocks(size, length):
    return -(-size // length)


def left(n):
    """How many of n, two or more, are on the left side."""
    return 1 << (n - 1).bit_length() - 1


def group_values(data, first=0):
    """The values of groups of an object, whose first has the number: all of
    them are whole, or the last is the object's last."""
    values = blake3.chunk_values(data, first * (GROUP // CHUNK))
    for _ in range(4):  # sixteen chunks are a group
        if len(values[0]) > 1:
            values = blake3.parents(values)
    return [blake3.digest(values, i) for i in range(len(values[0]))]


def parent(a, b, last=0):
    return blake3.digest(blake3.parents(blake3.from_digest(a, b), last))


def encode(data):
    """The hash of an object, and its tree."""
    if len(data) <= GROUP:
        return blake3.blake3(data), b""
    nodes = []

    def write(values, last=0):
        """In pre-order: a node, what is on its left, what is on its right."""
        if len(values) == 1:
            return values[0]
        at, half = len(nodes), left(len(values))
        nodes.append(b"")
        a, b = write(values[:half]), write(values[half:])
        nodes[at] = a + b
        return parent(a, b, last)

    root = write(group_values(data), ROOT)
    return root, len(data).to_bytes(HEADER, "little") + b"".join(nodes) + _tail(data)


def _tail(data):
    """What is left of the last chunk in its group, from the top down, and the
    last chunk."""
    at = (len(data) - 1) // GROUP * GROUP
    group, passed = data[at:], []
    while len(group) > CHUNK:
        half = left(blocks(len(group), CHUNK)) * CHUNK
        passed.append(blake3.digest(blake3.fold(blake3.chunk_values(group[:half], at // CHUNK))))
        group, at = group[half:], at + half
    return b"".join(passed) + bytes(group)


class Wrong(ValueError):
    """It is not the tree, or not a group, of this object."""


class Tree:
    """A tree that is the one of an address. Only the address is trusted."""

    def __init__(self, address, raw):
        self.size = int.from_bytes(raw[:HEADER], "little")
        if len(raw) <= HEADER or self.size <= GROUP:
            raise Wrong("no tree of more than one group")
        self.raw, self.at, self.groups = raw, HEADER, []
        n = blocks(self.size, GROUP)
        if len(raw) < HEADER + (n - 1) * NODE:
            raise Wrong("nodes are missing")
        self._read(n, address, ROOT)
        self._check_size(raw[self.at:])

    def _read(self, n, want, last=0):
        """Reads the nodes over n groups, whose value is known."""
        if n == 1:
            self.groups.append(want)
            return
        node = self.raw[self.at:self.at + NODE]
        self.at += NODE
        a, b = node[:VALUE], node[VALUE:]
        if parent(a, b, last) != want:
            raise Wrong("a node is wrong")
        half = left(n)
        self._read(half, a)
        self._read(n - half, b)

    def _check_size(self, tail):
        """The last chunk, by its number and its length, proves the size."""
        sides, length = 0, (self.size - 1) % GROUP + 1
        n = blocks(length, CHUNK)
        while n > 1:
            sides, n = sides + 1, n - left(n)
        chunk = tail[sides * VALUE:]
        if len(chunk) != (self.size - 1) % CHUNK + 1:
            raise Wrong("the tail has another length")
        value = blake3.digest(blake3.chunk_values(chunk, (self.size - 1) // CHUNK))
        for i in reversed(range(sides)):
            value = parent(tail[i * VALUE:(i + 1) * VALUE], value)
        if value != self.groups[-1]:
            raise Wrong("the size is wrong")

    def check(self, at, data):
        """Whether these are the bytes of the object there: whole groups."""
        first = at // GROUP
        found = group_values(data, first)
        if at % GROUP or found != self.groups[first:first + len(found)] or at + len(data) != min(self.size, (first + len(found)) * GROUP):
            raise Wrong(f"the bytes at {at} are wrong")
