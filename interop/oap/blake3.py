"""BLAKE3-256, as its specification describes it: the plain hash, no key, no
derivation. It is short, which is right for a program that is to be read next
to docs/oap1.md.

Python computes slowly with small numbers and fast with large ones. So many
inputs are compressed at the same time: a number holds one 32-bit word of each
of n inputs, in lanes of 64 bits, whose upper halves take what overflows."""

from array import array
from functools import lru_cache
from sys import byteorder

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
      0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
BLOCK, CHUNK = 64, 1024
MASK = 0xFFFFFFFF
BATCH = 64 * CHUNK  # hashed together while data comes; a power of two of chunks
AT_ONCE = 1024      # chunks that are compressed together, at most

assert byteorder == "little", "the lanes are taken from memory as they are"


def _orders():
    """Which message words each of the seven rounds uses."""
    order = tuple(range(16))
    for _ in range(7):
        yield order
        order = tuple(order[i] for i in PERMUTATION)


# One quarter-round for each column and diagonal: the four words of the state
# it mixes. The two message words come from the order of the round.
QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
            (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
STEPS = tuple(quarter + (order[2 * i], order[2 * i + 1])
              for order in _orders() for i, quarter in enumerate(QUARTERS))


@lru_cache(maxsize=64)
def _ones(n):
    """A one in each of n lanes: times it, a word is in all of them."""
    return ((1 << 64 * n) - 1) // ((1 << 64) - 1)


def _compress(n, value, words, counters, length, flags):
    """The compression function, of n inputs; only the first eight words of
    what it gives are needed, because no more than 32 bytes of output are. The
    counters are the lower and the upper words."""
    ones = _ones(n)
    mask = MASK * ones
    s = list(value) + [word * ones for word in IV[:4]] + [*counters, length * ones, flags * ones]
    for a, b, c, d, x, y in STEPS:
        va, vb, vc = s[a], s[b], s[c]
        va = (va + vb + words[x]) & mask
        t = s[d] ^ va
        vd = (t >> 16 | t << 16) & mask
        vc = (vc + vd) & mask
        t = vb ^ vc
        vb = (t >> 12 & mask) | (t << 20 & mask)
        va = (va + vb + words[y]) & mask
        t = vd ^ va
        vd = (t >> 8 & mask) | (t << 24 & mask)
        vc = (vc + vd) & mask
        t = vb ^ vc
        s[a], s[b], s[c], s[d] = va, (t >> 7 & mask) | (t << 25 & mask), vc, vd
    return [s[i] ^ s[i + 8] for i in range(8)]


# The chaining values of n inputs are eight columns: of each word, an array of n.

def _lanes(column):
    return int.from_bytes(column.tobytes(), "little")


def _column(n, lanes):
    return array("Q", lanes.to_bytes(8 * n, "little"))


def _whole_chunks(data, first):
    """The values of chunks of full length, whose first one has the number."""
    n = len(data) // CHUNK
    numbers = range(first, first + n)
    counters = _lanes(array("Q", (i & MASK for i in numbers))), _lanes(array("Q", (i >> 32 for i in numbers)))
    words = memoryview(data).cast("I")
    value = [word * _ones(n) for word in IV]
    for block in range(CHUNK // BLOCK):
        flags = CHUNK_START * (block == 0) | CHUNK_END * (block == CHUNK // BLOCK - 1)
        said = [_lanes(array("Q", words[16 * block + i::CHUNK // 4])) for i in range(16)]
        value = _compress(n, value, said, counters, BLOCK, flags)
    return [_column(n, lanes) for lanes in value]


def _last_chunk(data, number, last=0):
    """The value of a chunk of any length. last is added to the flags of its
    last block: ROOT if the chunk is the whole input."""
    value, flags = IV, CHUNK_START
    for at in range(0, len(data) or 1, BLOCK):
        block = bytes(data[at:at + BLOCK])
        if at + BLOCK >= len(data):
            flags |= CHUNK_END | last
        words = memoryview(block.ljust(BLOCK, b"\0")).cast("I")
        value = _compress(1, value, words, (number & MASK, number >> 32), len(block), flags)
        flags = 0
    return [array("Q", [word]) for word in value]


def chunk_values(data, first=0):
    """The values of the chunks of an input that is not whole."""
    data, columns = bytes(data), [array("Q") for _ in IV]
    whole = len(data) // CHUNK
    for at in range(0, whole, AT_ONCE):
        some = _whole_chunks(data[at * CHUNK:min(whole, at + AT_ONCE) * CHUNK], first + at)
        for column, more in zip(columns, some):
            column += more
    if whole * CHUNK < len(data) or not data:
        for column, more in zip(columns, _last_chunk(data[whole * CHUNK:], first + whole)):
            column += more
    return columns


def parents(columns, last=0):
    """The values one level up: each of two neighbours, and the odd one at the
    end as it is. That gives the tree of BLAKE3, whose left sides are as large
    as they can be. last is ROOT if there are two, and nothing above."""
    n = len(columns[0])
    pairs = n // 2
    words = [_lanes(column[0:2 * pairs:2]) for column in columns] + [_lanes(column[1:2 * pairs:2]) for column in columns]
    value = _compress(pairs, [word * _ones(pairs) for word in IV], words, (0, 0), BLOCK, PARENT | last)
    up = [_column(pairs, lanes) for lanes in value]
    if n % 2:
        for column, under in zip(up, columns):
            column.append(under[-1])
    return up


def fold(columns, last=0):
    """The value of the whole tree over these."""
    while len(columns[0]) > 1:
        columns = parents(columns, last if len(columns[0]) == 2 else 0)
    return columns


def digest(columns, at=0):
    """One value, as 32 bytes."""
    return b"".join(column[at].to_bytes(4, "little") for column in columns)


def from_digest(*values):
    """Values that were 32 bytes, as columns."""
    return [array("Q", (int.from_bytes(value[4 * i:4 * i + 4], "little") for value in values)) for i in range(8)]


class Hasher:
    """Hashes what comes bit by bit, so that an object is hashed while it
    arrives."""

    def __init__(self):
        self.tail = b""    # not hashed yet; never empty once data came
        self.batches = 0   # how many are behind it
        self.stack = []    # the values of whole subtrees, the largest first

    def update(self, data):
        data = self.tail + bytes(data)
        at = 0
        # The last batch must stay back: the root may be in it.
        while len(data) - at > BATCH:
            self._push(fold(chunk_values(data[at:at + BATCH], self.batches * BATCH // CHUNK)))
            at += BATCH
        self.tail = data[at:]
        return self

    def _push(self, value):
        self.batches += 1
        total = self.batches
        while total % 2 == 0:
            value = self._join(self.stack.pop(), value)
            total //= 2
        self.stack.append(value)

    def _join(self, left, right, last=0):
        return parents([a + b for a, b in zip(left, right)], last)

    def digest(self):
        root = 0 if self.stack else ROOT
        first = self.batches * BATCH // CHUNK
        if len(self.tail) <= CHUNK:
            value = _last_chunk(self.tail, first, root)
        else:
            value = fold(chunk_values(self.tail, first), root)
        for i, left in reversed(list(enumerate(self.stack))):
            value = self._join(left, value, ROOT if i == 0 else 0)
        return digest(value)


def blake3(data):
    return Hasher().update(data).digest()
