"""Letters: what a gossip message carries, section 7."""

import base64
import unicodedata

import cbor
import ed25519
from blake3 import blake3
from message import map_of, number, octets, text
from refusal import Refusal

SPKI = bytes.fromhex("302a300506032b6570032100")
SIGNED = b"oap1 gossip\0"
MAX_DATA, MAX_TOPIC = (1 << 20) - 512, 128
TTL = AHEAD = 120_000  # milliseconds


SHAPE = map_of({"ts": number, "key": octets(32, 32), "seq": number,
                "data": octets(0, MAX_DATA), "topic": text(0, MAX_TOPIC)})


def decode(msg):
    """The letter in msg. Here nothing is taken but the one encoding, so it is
    encoded again and compared: that finds keys in another order, longer
    numbers and unknown keys at once."""
    try:
        letter = SHAPE(cbor.decode(msg))
    except ValueError as error:
        raise Refusal("Malformed", "letter", str(error)) from None
    if cbor.encode(letter) != msg:
        raise Refusal("Malformed", "letter", "not in deterministic encoding")
    _check_topic(letter["topic"])
    return letter


def encode(letter):
    return cbor.encode(letter)


def _check_topic(topic):
    good = (unicodedata.is_normalized("NFC", topic)
            and all(c == " " or unicodedata.category(c)[0] in "LMNPS" for c in topic)
            and all(segment not in ("", ".", "..") for segment in topic.split("/")))
    if not good:
        raise Refusal("Malformed", "topic", repr(topic))


def check_time(letter, now):
    if now - letter["ts"] > TTL:
        raise Refusal("Malformed", "expired")
    if letter["ts"] - now > AHEAD:
        raise Refusal("Malformed", "future")


def check_signature(msg, letter, sig):
    if sig is None:
        raise Refusal("Malformed", "unsigned")
    if not ed25519.verify(letter["key"], SIGNED + blake3(msg), sig):
        raise Refusal("Malformed", "sig")


def sign(seed, msg):
    return ed25519.sign(seed, SIGNED + blake3(msg))


def peer_id(public):
    """The peer ID of an Ed25519 key, in its printed form."""
    return printed(blake3(SPKI + public))


def printed(digest):
    return base64.b32encode(digest).decode().lower().rstrip("=")
