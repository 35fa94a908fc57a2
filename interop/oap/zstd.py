"""Reading zstd (RFC 8878) under the caps of section 3, without a dictionary.
Writing is left at a raw block: it is a good zstd frame, and all that a test of
the other side's reader needs."""

from refusal import Refusal

MAGIC, BLOCK_MAX = b"\x28\xb5\x2f\xfd", 128 << 10
RAW, RLE, COMPRESSED = range(3)

# Code to (baseline, extra bits), for lengths of literals and of matches.
LITERAL_CODES = [(i, 0) for i in range(16)] + [
    (16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6)] + [
    (1 << i, i) for i in range(7, 17)]
MATCH_CODES = [(i + 3, 0) for i in range(32)] + [
    (35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4), (99, 5)] + [
    ((1 << i) + 3, i) for i in range(7, 17)]

# The predefined distributions, with their accuracy.
LITERAL_DEFAULT = [4, 3] + [2] * 11 + [1] * 3 + [2] * 9 + [3, 2] + [1] * 5 + [-1] * 4, 6
OFFSET_DEFAULT = [1] * 6 + [2] * 3 + [1] * 15 + [-1] * 5, 5
MATCH_DEFAULT = [1, 4, 3] + [2] * 6 + [1] * 37 + [-1] * 7, 6


def damaged(text):
    return Refusal("Malformed", "zstd", text)


def too_much():
    return Refusal("RatioCap", "ratio")


def wrap(payload):
    """A zstd frame with one raw block, so at most 128 KiB."""
    return MAGIC + b"\xa0" + len(payload).to_bytes(4, "little") + (len(payload) << 3 | 1).to_bytes(3, "little") + payload


def inflate(data, cap, max_window):
    """What a zstd frame holds, at most cap bytes of it."""
    try:
        return _frame(Bytes(data), cap, max_window)
    except (IndexError, KeyError) as error:  # a cut, or a code that is not there
        raise damaged(repr(error)) from None


class Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n > self.left():
            raise damaged("cut")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, n):
        return int.from_bytes(self.take(n), "little")

    def left(self):
        return len(self.data) - self.at


class BitsForward:
    """Bits from the first byte on, the low ones first."""

    def __init__(self, data):
        self.n, self.at = int.from_bytes(data, "little"), 0

    def peek(self, n):
        return self.n >> self.at & (1 << n) - 1

    def take(self, n):
        value = self.peek(n)
        self.at += n
        return value


class BitsBackward:
    """Bits from the last byte back; a 1 marks where they begin. Beyond the
    first bit there are zeros, and left is negative."""

    def __init__(self, data):
        if not data or data[-1] == 0:
            raise damaged("no mark at the end of the bits")
        self.n = int.from_bytes(data, "little")
        self.left = self.n.bit_length() - 1

    def take(self, n):
        self.left -= n
        shifted = self.n >> self.left if self.left >= 0 else self.n << -self.left
        return shifted & (1 << n) - 1


def _frame(source, cap, max_window):
    if source.take(4) != MAGIC:
        raise damaged("not a zstd frame")
    size, checksum = _header(source, cap, max_window)
    out, history = bytearray(), History()
    last = False
    while not last:
        head = source.number(3)
        last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        _block(source, kind, length, out, cap if size is None else size, history)
    if size is not None and len(out) < size:
        raise damaged("less than it declares")
    if checksum and source.number(4) != _xxh64(bytes(out)) & 0xFFFFFFFF:
        raise damaged("a wrong checksum")
    if source.left():
        raise damaged("bytes behind the frame")
    return bytes(out)


def _header(source, cap, max_window):
    """The declared size, if there is one, and whether a checksum follows.
    Both caps are judged here, before anything is inflated."""
    flags = source.number(1)
    single = flags & 0x20
    window = 0 if single else _window(source.number(1))
    if flags & 0x08:
        raise damaged("a reserved bit")
    if source.number((0, 1, 2, 4)[flags & 3]):
        raise damaged("a dictionary")
    width = (1 if single else 0, 2, 4, 8)[flags >> 6]
    size = source.number(width) + (256 if width == 2 else 0) if width else None
    if window > max_window or (size is not None and size > cap):
        raise too_much()
    return size, flags & 0x04


def _window(byte):
    base = 1 << 10 + (byte >> 3)
    return base + base // 8 * (byte & 7)


class History:
    """What a block may use of those before it."""

    def __init__(self):
        self.huffman = None
        self.tables = [None, None, None]  # of literal lengths, offsets, match lengths
        self.offsets = [1, 4, 8]


def _block(source, kind, length, out, cap, history):
    if kind == COMPRESSED:
        if length > BLOCK_MAX:
            raise damaged("a block that is too long")
        _compressed(Bytes(source.take(length)), out, cap, history)
        return
    if kind > COMPRESSED:
        raise damaged("a block of a reserved kind")
    data = source.take(length if kind == RAW else 1)
    if len(out) + length > cap:
        raise too_much()
    out += data if kind == RAW else data * length


def _compressed(source, out, cap, history):
    literals = _literals(source, history)
    count = source.number(1)
    if count >= 128:
        count = (count - 128 << 8) + source.number(1) if count < 255 else source.number(2) + 0x7F00
    if count == 0:
        _append(out, literals, cap)
        return
    modes = source.number(1)
    for i, (default, largest) in enumerate(((LITERAL_DEFAULT, 9), (OFFSET_DEFAULT, 8), (MATCH_DEFAULT, 9))):
        history.tables[i] = _table(source, modes >> 6 - 2 * i & 3, default, largest, history.tables[i])
    used = _sequences(BitsBackward(source.take(source.left())), count, literals, out, cap, history)
    _append(out, literals[used:], cap)


def _append(out, data, cap):
    if len(out) + len(data) > cap:
        raise too_much()
    out += data


# Literals.

def _literals(source, history):
    head = source.data[source.at]
    kind, form = head & 3, head >> 2 & 3
    if kind < 2:
        width, shift = {0: (1, 3), 2: (1, 3), 1: (2, 4), 3: (3, 4)}[form]
        size = source.number(width) >> shift
        return source.take(size) if kind == RAW else source.take(1) * size
    width, bits = {0: (3, 10), 1: (3, 10), 2: (4, 14), 3: (5, 18)}[form]
    head = source.number(width) >> 4
    size, packed = head & (1 << bits) - 1, Bytes(source.take(head >> bits & (1 << bits) - 1))
    if size > BLOCK_MAX:
        raise damaged("too many literals")
    if kind == 2:
        history.huffman = _huffman(packed)
    if history.huffman is None:
        raise damaged("no table to repeat")
    return _symbols(packed, size, form == 0, history.huffman)


def _symbols(packed, size, single, huffman):
    if single:
        return _stream(packed.take(packed.left()), size, huffman)
    sizes = [packed.number(2) for _ in range(3)]
    each = (size + 3) // 4
    parts = [_stream(packed.take(n), each, huffman) for n in sizes]
    parts.append(_stream(packed.take(packed.left()), size - 3 * each, huffman))
    return b"".join(parts)


def _stream(data, size, huffman):
    table, depth = huffman
    bits, out = BitsBackward(data), bytearray()
    state, ready = bits.take(depth), depth
    for _ in range(size):
        symbol, length = table[state]
        out.append(symbol)
        state = (state << length | bits.take(length)) & (1 << depth) - 1
    # The state has looked ahead by depth bits that were not used.
    if bits.left != -ready:
        raise damaged("literals do not end where their bits do")
    return bytes(out)


def _huffman(source):
    weights = _weights(source)
    total = sum(1 << w - 1 for w in weights if w)
    depth = total.bit_length()
    rest = (1 << depth) - total
    if not total or depth > 11 or rest & rest - 1:
        raise damaged("weights that do not add up")
    weights.append(rest.bit_length())  # the last one is not said
    table = []
    for weight in range(1, depth + 1):
        for symbol, w in enumerate(weights):
            if w == weight:
                table += [(symbol, depth + 1 - w)] * (1 << w - 1)
    return table, depth


def _weights(source):
    head = source.number(1)
    if head >= 128:
        count = head - 127
        nibbles = [n for byte in source.take((count + 1) // 2) for n in (byte >> 4, byte & 15)]
        return nibbles[:count]
    packed = Bytes(source.take(head))
    table, accuracy = _read_table(packed, 6)
    bits = BitsBackward(packed.take(packed.left()))
    states = [bits.take(accuracy), bits.take(accuracy)]
    weights = []
    # Two states take turns, until one has no bits left; the other has the
    # last word.
    while len(weights) < 255:
        symbol, length, base = table[states[0]]
        weights.append(symbol)
        states = [states[1], base + bits.take(length)]
        if bits.left < 0:
            weights.append(table[states[0]][0])
            return weights
    raise damaged("too many weights")


# FSE tables: state to (symbol, bits, base of the next state).

def _table(source, mode, default, largest, previous):
    if mode == 0:
        return _spread(*default)
    if mode == 1:
        return [(source.number(1), 0, 0)], 0
    if mode == 2:
        return _read_table(source, largest)
    if previous is None:
        raise damaged("no table to repeat")
    return previous


def _read_table(source, largest):
    bits = BitsForward(source.data[source.at:])
    accuracy = bits.take(4) + 5
    if accuracy > largest:
        raise damaged("a table that is too large")
    counts, left = [], (1 << accuracy) + 1
    while left > 1 and len(counts) < 256:
        count = _probability(bits, left)
        left -= abs(count)
        counts.append(count)
        while count == 0:
            more = bits.take(2)
            counts += [0] * more
            if more < 3:
                break
    if left != 1:
        raise damaged("a table that does not add up")
    source.take((bits.at + 7) // 8)
    return _spread(counts, accuracy)


def _probability(bits, left):
    """A number from 0 to left; the small ones take a bit less."""
    width = left.bit_length()
    spare = (1 << width) - 1 - left
    low = bits.peek(width - 1)
    if low < spare:
        bits.take(width - 1)
        return low - 1
    value = bits.take(width)
    return (value if value < 1 << width - 1 else value - spare) - 1


def _spread(counts, accuracy):
    size = 1 << accuracy
    symbols, high = [None] * size, size - 1
    for symbol, count in enumerate(counts):
        if count == -1:
            symbols[high] = symbol
            high -= 1
    at, step = 0, (size >> 1) + (size >> 3) + 3
    for symbol, count in enumerate(counts):
        for _ in range(max(count, 0)):
            symbols[at] = symbol
            at = at + step & size - 1
            while at > high:
                at = at + step & size - 1
    following = [max(count, 1) for count in counts]
    table = []
    for symbol in symbols:
        n = following[symbol]
        following[symbol] += 1
        bits = accuracy - n.bit_length() + 1
        table.append((symbol, bits, (n << bits) - size))
    return table, accuracy


# Sequences.

def _sequences(bits, count, literals, out, cap, history):
    """Copies literals and matches to out, and gives how many literals were
    used."""
    (lengths, a), (offsets, b), (matches, c) = history.tables
    length_state, offset_state, match_state = bits.take(a), bits.take(b), bits.take(c)
    used = 0
    for i in range(count):
        code = offsets[offset_state][0]
        if code > 31:
            raise damaged("an offset that is too far")
        offset = (1 << code) + bits.take(code)
        match = _value(MATCH_CODES, matches[match_state][0], bits)
        length = _value(LITERAL_CODES, lengths[length_state][0], bits)
        if i + 1 < count:
            length_state = _next(lengths[length_state], bits)
            match_state = _next(matches[match_state], bits)
            offset_state = _next(offsets[offset_state], bits)
        if used + length > len(literals):
            raise damaged("more literals than there are")
        _append(out, literals[used:used + length], cap)
        used += length
        _copy(out, _offset(offset, length, history.offsets), match, cap)
    if bits.left != 0:
        raise damaged("sequences do not end where their bits do")
    return used


def _value(codes, code, bits):
    base, extra = codes[code]
    return base + bits.take(extra)


def _next(entry, bits):
    return entry[2] + bits.take(entry[1])


def _offset(value, length, recent):
    """The distance that an offset value means; 1 to 3 are recent ones."""
    if value > 3:
        recent[:] = [value - 3, recent[0], recent[1]]
        return recent[0]
    which = value - 1 + (length == 0)
    distance = recent[which] if which < 3 else recent[0] - 1
    if which:
        recent[:] = [distance, recent[0], recent[2] if which == 1 else recent[1]]
    return distance


def _copy(out, distance, length, cap):
    if not 0 < distance <= len(out):
        raise damaged("a match before the beginning")
    if len(out) + length > cap:
        raise too_much()
    piece = out[-distance:][:length]
    out += (piece * (length // len(piece) + 1))[:length]


# The content checksum is the low half of XXH64 without a seed.

PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
ALL = (1 << 64) - 1


def _turn(n, by):
    return (n << by | n >> 64 - by) & ALL


def _round(lane, word):
    return _turn(lane + word * PRIMES[1] & ALL, 31) * PRIMES[0] & ALL


def _xxh64(data):
    lanes = [PRIMES[0] + PRIMES[1] & ALL, PRIMES[1], 0, -PRIMES[0] & ALL]
    at, hash = 0, PRIMES[4]
    if len(data) >= 32:
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at + 8 * i:at + 8 * i + 8], "little"))
            at += 32
        hash = sum(_turn(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & ALL
        for lane in lanes:
            hash = (hash ^ _round(0, lane)) * PRIMES[0] + PRIMES[3] & ALL
    return _avalanche(_rest(hash + len(data) & ALL, data[at:]))


def _rest(hash, data):
    while len(data) >= 8:
        hash = _turn(hash ^ _round(0, int.from_bytes(data[:8], "little")), 27) * PRIMES[0] + PRIMES[3] & ALL
        data = data[8:]
    if len(data) >= 4:
        hash = _turn(hash ^ int.from_bytes(data[:4], "little") * PRIMES[0] & ALL, 23) * PRIMES[1] + PRIMES[2] & ALL
        data = data[4:]
    for byte in data:
        hash = _turn(hash ^ byte * PRIMES[4] & ALL, 11) * PRIMES[0] & ALL
    return hash


def _avalanche(hash):
    hash = (hash ^ hash >> 33) * PRIMES[1] & ALL
    hash = (hash ^ hash >> 29) * PRIMES[2] & ALL
    return hash ^ hash >> 32
