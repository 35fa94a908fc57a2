"""Introductions: what a node signs about itself for its introducer, section 16."""

import cbor
import ed25519
from blake3 import blake3
from letter import peer_id
from message import list_of, map_of, number, octets, text
from refusal import Refusal

SIGNED = b"oap1 introduction\0"
SHAPE = map_of({"key": octets(32, 32), "seq": number, "via": octets(32, 32), "addrs": list_of(text(1, 64), 0, 8), "until": number})


def decode(raw):
    """The introduction behind its signature, and the peer ID of who signed it."""
    sig, body = raw[:64], raw[64:]
    try:
        said = SHAPE(cbor.decode(body))
    except ValueError as error:
        raise Refusal("Malformed", "message", str(error)) from None
    if cbor.encode(said) != body:
        raise Refusal("Malformed", "message", "not in deterministic encoding")
    if not ed25519.verify(said["key"], SIGNED + blake3(body), sig):
        raise Refusal("Malformed", "sig")
    return said, peer_id(said["key"])


def encode(seed, said):
    body = cbor.encode(said)
    return ed25519.sign(seed, SIGNED + blake3(body)) + body
