"""The messages of section 6: which keys each kind has, and of what type and
size their values are."""

import cbor
from refusal import Refusal

WORD, TEXT = 64, 1024


# Each check takes a value as cbor read it and gives it as it is used here, or
# raises ValueError.

def unsigned(low=0):
    def check(value):
        if type(value) is not int or value < low:
            raise ValueError("not a number, or out of bounds")
        return value
    return check


def text(low, high):
    def check(value):
        if type(value) is not cbor.Text or not low <= len(value) <= high:
            raise ValueError("not text, or out of bounds")
        return value.decode()  # a UnicodeDecodeError is a ValueError
    return check


def octets(low, high=None):
    def check(value):
        if type(value) is not bytes or len(value) < low or (high is not None and len(value) > high):
            raise ValueError("not bytes, or out of bounds")
        return value
    return check


def list_of(item, low, high):
    def check(value):
        if type(value) is not list or not low <= len(value) <= high:
            raise ValueError("not a list, or out of bounds")
        return [item(v) for v in value]
    return check


def map_of(shape):
    """shape is key to check; a key that ends in `?` is optional."""
    optional = {key.rstrip("?"): key.endswith("?") for key in shape}
    checks = {key.rstrip("?"): check for key, check in shape.items()}

    def check(value):
        found, seen = {}, set()
        for key, item in _pairs(value):
            if key in seen:
                raise ValueError("the same key twice")
            seen.add(key)
            if key in checks:
                found[key] = checks[key](item)
        missing = [key for key in checks if key not in found and not optional[key]]
        if missing:
            raise ValueError("missing: " + ", ".join(missing))
        return found
    return check


def _pairs(value):
    if type(value) is not cbor.Pairs:
        raise ValueError("not a map")
    for key, item in value:
        if type(key) is not cbor.Text:
            raise ValueError("a key that is not text")
        yield key.decode(), item


number, word = unsigned(), text(1, WORD)

KINDS = {kind: map_of({"kind": word, **shape}) for kind, shape in {
    "hello": {
        "versions": list_of(unsigned(1), 1, 16),
        "features": map_of({"comp?": list_of(word, 0, 16), "pq?": text(0, WORD)}),
        "max_frame": unsigned(1),
        "token?": text(0, 8192),
    },
    "hello_ack": {
        "chosen": map_of({"ver": unsigned(1), "comp?": text(0, WORD), "pq?": text(0, WORD)}),
        "limits": map_of({"max_frame": unsigned(1), "chunk": unsigned(1)}),
    },
    "ping": {"ts": number},
    "pong": {"ts": number},
    "gossip": {"msg": octets(1), "sig?": octets(64, 64), "hops": number, "fanout": number},
    "have": {"ids": list_of(octets(32, 32), 0, 1024)},
    "want": {"ids": list_of(octets(32, 32), 0, 1024)},
    "start": {"stream": number, "obj": text(1, TEXT), "from?": number, "length?": number},
    "data": {"stream": number, "seq": number, "bytes": octets(0)},
    "ack": {"stream": number, "up_to": number},
    "end": {"stream": number, "seq": number, "status": word},
    "find": {"obj": text(1, TEXT), "most": number},
    "found": {
        "providers": list_of(map_of({
            "id": text(1, WORD), "overlay": list_of(text(1, 256), 0, 8), "http": list_of(text(1, 256), 0, 8),
            "region?": text(0, WORD), "age": number,
        }), 0, 32),
        "record?": octets(1, 4096),
    },
    "introduce": {"nodes": list_of(octets(65, 1024), 0, 16)},
    "error": {"code": word, "msg": text(0, TEXT)},
    "bye": {"reason": text(0, TEXT)},
}.items()}

# These are left out when they say nothing.
EMPTY_IS_MISSING = {"token", "from", "length", "pq", "comp", "region"}


def decode(payload):
    """A message as a dict. Of an unknown kind only `kind` is left."""
    try:
        value = cbor.decode(payload)
        kind = map_of({"kind": word})(value)["kind"]
        said = KINDS[kind](value) if kind in KINDS else {"kind": kind}
        for provider in said.get("providers", []):
            if not provider.get("region"):  # an empty one says as much as none
                provider.pop("region", None)
        return said
    except ValueError as error:
        raise Refusal("Malformed", "message", str(error)) from None


def encode(message):
    return cbor.encode(_said(message))


def _said(fields):
    said = {}
    for key, value in fields.items():
        if key in EMPTY_IS_MISSING and not value:
            continue
        said[key] = _inside(value)
    return said


def _inside(value):
    if isinstance(value, dict):
        return _said(value)
    return [_inside(item) for item in value] if isinstance(value, list) else value
