"""The two ends of an object stream, section 8. Neither knows of the
connection: they get what arrived and return what is to be sent."""

from blake3 import Hasher
from refusal import Refusal

CREDIT, ACK_EVERY = 16, 8


def address(digest):
    return "b3:" + digest.hex()


class Kept:
    """What is there of an object that is not whole yet."""

    def __init__(self):
        self.data = bytearray()
        self.hasher = Hasher()
        self.whole = None

    def take(self, data):
        self.data += data
        self.hasher.update(data)

    def verdict(self, obj):
        return "ok" if address(self.hasher.digest()) == obj else "IntegrityFail"


class Part:
    """What is there of a part of an object, or of a view of it. It says nothing
    about the hash of the whole: whoever asked for it is told at the end, and
    verifies it."""

    def __init__(self, whole):
        self.data = bytearray()
        self.whole = whole

    def take(self, data):
        self.data += data

    def verdict(self, obj):
        return "ok"


class Fetch:
    """The side that asks."""

    def __init__(self, number, corr, obj, chunk, kept, stop_after=None):
        self.number, self.corr, self.obj, self.chunk = number, corr, obj, chunk
        self.kept, self.start = kept, len(kept.data)
        self.stop_after = stop_after
        self.next = 0       # the seq that comes next
        self.acked = -1
        self.short = False  # a chunk that was not full must be the last

    def take(self, seq, data):
        """Uses a chunk, and gives the answer to it, if one is due."""
        if (seq != self.next or seq > self.acked + CREDIT or self.short
                or not 1 <= len(data) <= self.chunk):
            raise Refusal("Malformed", "message", "data that breaks the rules of its stream")
        self.kept.take(data)
        self.next += 1
        self.short = len(data) < self.chunk
        if self.next == self.stop_after:
            return self.end("Canceled")
        if self.next - 1 - self.acked < ACK_EVERY:
            return None
        self.acked = self.next - 1
        return {"kind": "ack", "stream": self.number, "up_to": self.acked}

    def end(self, status):
        return {"kind": "end", "stream": self.number, "seq": self.next, "status": status}

    def verdict(self, seq, status):
        """What became of it: `ok` is not believed before the hash is."""
        if status != "ok":
            return status
        if seq != self.next:
            return "Incomplete"
        return self.kept.verdict(self.obj)


class Gift:
    """The side that gives. data is what is left from the offset on, and last
    is how it ends."""

    def __init__(self, number, corr, obj, chunk, data, last="ok"):
        self.number, self.corr, self.obj, self.chunk = number, corr, obj, chunk
        self.data, self.last = data, last
        self.next = 0
        self.acked = -1

    def count(self):
        return -(-len(self.data) // self.chunk)

    def ack(self, up_to):
        if up_to >= self.next:
            raise Refusal("Malformed", "message", "an ack of what was not sent")
        self.acked = max(self.acked, up_to)

    def messages(self):
        """What the credit allows now. The end needs none."""
        while self.next < self.count() and self.next <= self.acked + CREDIT:
            at = self.next * self.chunk
            yield {"kind": "data", "stream": self.number, "seq": self.next, "bytes": self.data[at:at + self.chunk]}
            self.next += 1
        if self.next == self.count():
            yield self.end(self.last)

    def end(self, status):
        return {"kind": "end", "stream": self.number, "seq": self.next, "status": status}
