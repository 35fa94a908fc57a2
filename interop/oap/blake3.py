"""BLAKE3-256, as its specification describes it: the plain hash, no key, no
derivation. It is slow and short, which is right for a program that is to be
read next to docs/oap1.md."""

from struct import pack, unpack

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
      0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
BLOCK, CHUNK = 64, 1024
MASK = 0xFFFFFFFF


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


def _compress(value, words, counter, length, flags):
    """The compression function; only the first eight words of what it gives
    are needed, because no more than 32 bytes of output are."""
    s = list(value) + [IV[0], IV[1], IV[2], IV[3], counter & MASK, counter >> 32, length, flags]
    for a, b, c, d, x, y in STEPS:
        va, vb, vc = s[a], s[b], s[c]
        va = (va + vb + words[x]) & MASK
        t = s[d] ^ va
        vd = (t >> 16 | t << 16) & MASK
        vc = (vc + vd) & MASK
        t = vb ^ vc
        vb = (t >> 12 | t << 20) & MASK
        va = (va + vb + words[y]) & MASK
        t = vd ^ va
        vd = (t >> 8 | t << 24) & MASK
        vc = (vc + vd) & MASK
        t = vb ^ vc
        s[a], s[b], s[c], s[d] = va, (t >> 7 | t << 25) & MASK, vc, vd
    return [s[i] ^ s[i + 8] for i in range(8)]


def _chunk(data, counter, last):
    """The chaining value of a chunk. last is added to the flags of its last
    block: ROOT if the chunk is the whole input."""
    value, flags = IV, CHUNK_START
    for at in range(0, len(data) or 1, BLOCK):
        block = data[at:at + BLOCK]
        if at + BLOCK >= len(data):
            flags |= CHUNK_END | last
        value = _compress(value, unpack("<16I", block.ljust(BLOCK, b"\0")), counter, len(block), flags)
        flags = 0
    return value


def _parent(left, right, flags=0):
    return _compress(IV, left + right, 0, BLOCK, PARENT | flags)


class Hasher:
    """Hashes what comes bit by bit, so that an object is hashed while it
    arrives."""

    def __init__(self):
        self.tail = b""    # the chunk under way; never empty once data came
        self.chunks = 0    # how many whole chunks are behind it
        self.stack = []    # the values of whole subtrees, the largest first

    def update(self, data):
        data = self.tail + bytes(data)
        at = 0
        # The last chunk must stay back: it may turn out to be the root.
        while len(data) - at > CHUNK:
            self._push(_chunk(data[at:at + CHUNK], self.chunks, 0))
            at += CHUNK
        self.tail = data[at:]
        return self

    def _push(self, value):
        self.chunks += 1
        total = self.chunks
        while total % 2 == 0:
            value = _parent(self.stack.pop(), value)
            total //= 2
        self.stack.append(value)

    def digest(self):
        value = _chunk(self.tail, self.chunks, 0 if self.stack else ROOT)
        for i, left in reversed(list(enumerate(self.stack))):
            value = _parent(left, value, ROOT if i == 0 else 0)
        return pack("<8I", *value)


def blake3(data):
    return Hasher().update(data).digest()
