"""Frames, section 2, and what may be compressed in them, section 3."""

import struct

import zstd
from refusal import Refusal

REQ, RESP, EVENT, COMP = 1, 2, 4, 8
HEADER, MAX_PAYLOAD = 27, 1 << 20
MAX_RATIO, MAX_WINDOW = 10, 8 << 20
NO_TENANT = bytes(16)


def encode(flags, corr, payload):
    return struct.pack(">IBH16sQ", HEADER + len(payload), 1, flags, NO_TENANT, corr) + payload


def inflate(flags, payload, agreed):
    """The payload as the message it is, whatever the frame's flags say."""
    if not flags & COMP:
        return payload
    if not agreed:
        raise Refusal("Malformed", "comp")
    return zstd.inflate(payload, min(MAX_PAYLOAD, MAX_RATIO * len(payload)), MAX_WINDOW)


class Reader:
    """Cuts what comes into frames. It judges what is there and waits for
    nothing that is not needed to judge it."""

    def __init__(self):
        self.data = bytearray()

    def feed(self, data):
        self.data += data

    def inside(self):
        """Whether a frame is under way."""
        return bool(self.data)

    def next(self):
        """(flags, corr, payload) as it was sent, or None if more must come."""
        self._judge()
        if len(self.data) < 4:
            return None
        end = 4 + int.from_bytes(self.data[:4], "big")
        if len(self.data) < end:
            return None
        flags, corr = struct.unpack_from(">5xH16xQ", self.data)
        payload = bytes(self.data[4 + HEADER:end])
        del self.data[:end]
        return flags, corr, payload

    def _judge(self):
        if len(self.data) < 4:
            return
        length = int.from_bytes(self.data[:4], "big")
        if length - HEADER > MAX_PAYLOAD:
            raise Refusal("FrameTooLarge", "size")
        if length < HEADER:
            raise Refusal("Malformed", "short")
        if len(self.data) > 4 and self.data[4] != 1:
            raise Refusal("BadVersion", "version")
        if any(self.data[7:23]):
            raise Refusal("Malformed", "tenant")
