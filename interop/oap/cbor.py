"""As much CBOR as OAP/1 needs. What is written is in core deterministic
encoding; what is read may be a little more, as section 4 says, and the rules
that hold at any depth are kept here."""

MAX_DEPTH, MAX_LIST, MAX_MAP = 8, 1024, 64
UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, MAP, TAG, OTHER = range(8)


class Text(bytes):
    """Text as it came. Whether it is UTF-8 is only asked of text that is
    known, so it is not asked here."""


class Pairs(list):
    """A map as it came: pairs in their order, duplicates included."""


class Other:
    """A float, a truth value, null: nothing that OAP/1 has a use for."""


def encode(value):
    if isinstance(value, int):
        return _head(UNSIGNED, value)
    if isinstance(value, bytes):
        return _head(BYTES, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(TEXT, len(text)) + text
    if isinstance(value, list):
        return _head(LIST, len(value)) + b"".join(map(encode, value))
    pairs = sorted((encode(k), encode(v)) for k, v in value.items())
    return _head(MAP, len(pairs)) + b"".join(k + v for k, v in pairs)


def _head(major, n):
    if n < 24:
        return bytes([major << 5 | n])
    for more, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 1 << 8 * size:
            return bytes([major << 5 | more]) + n.to_bytes(size, "big")
    raise ValueError("a number over 64 bits")


def decode(data):
    """The one item that data is. ValueError if it is not one."""
    value, at = _item(data, 0, 1)
    if at != len(data):
        raise ValueError("bytes behind the item")
    return value


def _item(data, at, depth):
    major, more, n, at = _read_head(data, at)
    if major == UNSIGNED:
        return n, at
    if major == NEGATIVE:
        return -1 - n, at
    if major in (BYTES, TEXT):
        if n > len(data) - at:
            raise ValueError("cut")
        return (bytes if major == BYTES else Text)(data[at:at + n]), at + n
    if major == TAG:
        raise ValueError("a tag")
    if major == OTHER:
        if more == 24 and n < 32:
            raise ValueError("not well-formed")
        return Other(), at
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    return _list(data, at, n, depth) if major == LIST else _map(data, at, n, depth)


def _read_head(data, at):
    if at >= len(data):
        raise ValueError("cut")
    major, more = data[at] >> 5, data[at] & 31
    at += 1
    if more < 24:
        return major, more, more, at
    if more > 27:
        raise ValueError("an indefinite length, or not well-formed")
    size = 1 << more - 24
    if size > len(data) - at:
        raise ValueError("cut")
    return major, more, int.from_bytes(data[at:at + size], "big"), at + size


def _list(data, at, n, depth):
    if n > MAX_LIST:
        raise ValueError("a list that is too long")
    items = []
    for _ in range(n):
        item, at = _item(data, at, depth + 1)
        items.append(item)
    return items, at


def _map(data, at, n, depth):
    if n > MAX_MAP:
        raise ValueError("a map that is too large")
    pairs = Pairs()
    for _ in range(n):
        key, at = _item(data, at, depth + 1)
        value, at = _item(data, at, depth + 1)
        pairs.append((key, value))
    return pairs, at
