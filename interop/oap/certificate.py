"""The self-signed Ed25519 certificate that OAP/1 wants of both sides, and the
key in the other side's. DER by hand: names and dates are not looked at, so
there is little in it."""

import base64

import ed25519
from letter import SPKI

INTEGER, BITS, UTC, TIME, SEQUENCE, CONTEXT_0 = 0x02, 0x03, 0x17, 0x18, 0x30, 0xA0
ED25519 = bytes.fromhex("300506032b6570")
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


def pem(seed):
    """Certificate and key, as the ssl module reads them from one file."""
    return _armour("CERTIFICATE", make(seed)) + _armour("PRIVATE KEY", PKCS8 + seed)


def make(seed):
    nobody = _der(SEQUENCE)
    validity = _der(SEQUENCE, _der(UTC, b"700101000000Z"), _der(TIME, b"99991231235959Z"))
    body = _der(SEQUENCE,
                _der(CONTEXT_0, _der(INTEGER, b"\x02")),  # version 3
                _der(INTEGER, b"\x01"), ED25519, nobody, validity, nobody,
                SPKI + ed25519.public(seed))
    return _der(SEQUENCE, body, ED25519, _der(BITS, b"\0" + ed25519.sign(seed, body)))


def public_key_info(certificate):
    """The SubjectPublicKeyInfo of a certificate, as it stands there."""
    _, whole, _ = _read(certificate)
    _, body, _ = _read(whole)
    if body[0] == CONTEXT_0:  # the version, which may be missing
        _, _, body = _read(body)
    for _ in range(5):  # serial, algorithm, issuer, validity, subject
        _, _, body = _read(body)
    _, _, rest = _read(body)
    return body[:len(body) - len(rest)]


def _der(tag, *parts):
    body = b"".join(parts)
    size = bytes([len(body)])
    if len(body) > 127:
        digits = len(body).to_bytes(2, "big").lstrip(b"\0")
        size = bytes([0x80 | len(digits)]) + digits
    return bytes([tag]) + size + body


def _read(data):
    """(tag, content, what follows)"""
    size, at = data[1], 2
    if size > 127:
        at += size - 128
        size = int.from_bytes(data[2:at], "big")
    if at + size > len(data):
        raise ValueError("a certificate that is cut")
    return data[0], data[at:at + size], data[at + size:]


def _armour(name, der):
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {name}-----\n{text}-----END {name}-----\n"
