"""One session, as the dialer: the handshake, and then whatever comes. All of
it runs in one thread, which calls take, tick and the requests in turn."""

import re
import socket
import ssl
import time

import ed25519
import folder
import frame
import introduction
import letter
import message
import stream
import transport
import tree
import zstd
from blake3 import blake3
from refusal import Refusal

HANDSHAKE, PROGRESS, IDLE, WRITE, STREAM = 2, 5, 15, 5, 5  # seconds
MAX_FRAME, MAX_CHUNK = 1 << 20, 1 << 16
HOPS, FANOUT = 8, 3
ADDRESS = re.compile("(b3:[0-9a-f]{64})(/tree|/files)?")


def now():
    """The wall clock in milliseconds, for letters and pings."""
    return time.time_ns() // 1_000_000


class Library:
    """What outlives a session: this peer's key, its letters and objects."""

    def __init__(self, seed):
        self.seed = seed
        self.key = ed25519.public(seed)
        self.seq = now() << 20
        self.seen = {}     # id to the time at which it is forgotten
        self.letters = {}  # id to (msg, sig)
        self.objects = {}  # address to bytes
        self.trees = {}    # address to the tree of such an object
        self.kept = {}     # address to what is there of it

    def write(self, topic, data):
        """Writes and signs a letter, and returns its id."""
        written = {"ts": now(), "key": self.key, "seq": self.seq, "data": data, "topic": topic}
        self.seq += 1
        msg = letter.encode(written)
        letter.decode(msg)  # what others would refuse is not sent
        self.remember(written, msg, letter.sign(self.seed, msg))
        return blake3(msg)

    def remember(self, written, msg, sig):
        moment = now()
        self.seen = {id: until for id, until in self.seen.items() if until >= moment}
        self.letters = {id: held for id, held in self.letters.items() if id in self.seen}
        self.seen[blake3(msg)] = written["ts"] + letter.TTL
        self.letters[blake3(msg)] = msg, sig

    def hold(self, data):
        """Keeps an object to give, and its tree."""
        root, raw = tree.encode(data)
        obj = stream.address(root)
        self.objects[obj], self.trees[obj] = data, raw
        return obj

    def tree(self, obj):
        if obj not in self.trees:
            self.trees[obj] = tree.encode(self.objects[obj])[1]
        return self.trees[obj]

    def holds(self, id):
        return self.seen.get(id, 0) >= now()


class Session:
    """tell is called with each thing that happens."""

    def __init__(self, library, peer, compress, tell):
        # set at construction
        self.library, self.tell = library, tell
        self.peer = peer.split("@")[0]
        self.reader = frame.Reader()
        # set by the handshake
        self.compressed, self.max_frame, self.chunk = False, MAX_FRAME, MAX_CHUNK
        # what is under way
        self.corr = 0
        self.requests = {}  # corr to the kind that was asked
        self.fetches, self.gifts = {}, {}
        self.next_stream = 1
        self.our_bye, self.their_bye = False, False
        self.closed = False
        # clocks
        self.heard = self.moved = self.progress = time.monotonic()
        self.asked = 0      # pings since something was heard

        self.socket = transport.dial(library.seed, peer, HANDSHAKE)
        try:
            self._shake_hands(compress)
        except BaseException:
            self.socket.close()
            raise

    # The handshake.

    def _shake_hands(self, compress):
        offered = ["zstd"] if compress else []
        corr = self.request({"kind": "hello", "versions": [1], "max_frame": MAX_FRAME,
                             "features": {"pq": transport.SETTING, "comp": offered}})
        self.socket.settimeout(HANDSHAKE)
        flags, answer_corr, said = self._first_frame()
        if said["kind"] == "error":
            self._hang_up()
            raise Refusal(said["code"], "handshake", said["msg"])
        if said["kind"] != "hello_ack" or not flags & frame.RESP or answer_corr != corr:
            self._fail(frame.EVENT, 0, Refusal("Malformed", "message", "no hello_ack"))
            raise Refusal("Malformed", "handshake", "the first frame is " + said["kind"])
        del self.requests[corr]
        self._agree(said, offered)

    def _first_frame(self):
        while True:
            found = self.reader.next()
            if found:
                flags, corr, payload = found
                return flags, corr, message.decode(frame.inflate(flags, payload, False))
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed before the hello_ack")
            self.reader.feed(data)

    def _agree(self, said, offered):
        chosen, limits = said["chosen"], said["limits"]
        comp = chosen.get("comp", "")
        if chosen["ver"] != 1 or (comp and comp not in offered):
            refusal = Refusal("Malformed", "handshake", "chose what was not offered")
            self._fail(frame.EVENT, 0, refusal)
            raise refusal
        self.compressed = comp == "zstd"
        self.max_frame = min(limits["max_frame"], MAX_FRAME)
        self.chunk = min(limits["chunk"], MAX_CHUNK)
        self.tell("session", comp=comp, pq=chosen.get("pq", ""), chunk=self.chunk, max_frame=self.max_frame,
                  tls=self.socket.version())

    # Sending.

    def send(self, flags, corr, said, compress=False):
        payload = message.encode(said)
        if len(payload) > self.max_frame:
            raise ValueError(f"{len(payload)} bytes are more than the peer takes")
        if compress and self.compressed:
            flags, payload = flags | frame.COMP, zstd.wrap(payload)
        self.socket.settimeout(WRITE)
        self.socket.sendall(frame.encode(flags, corr, payload))

    def new_corr(self):
        self.corr += 1
        return self.corr

    def request(self, said):
        corr = self.new_corr()
        self.requests[corr] = said["kind"]
        self.send(frame.REQ, corr, said)
        return corr

    def event(self, said, compress=False):
        self.send(frame.EVENT, self.new_corr(), said, compress)

    def ping(self):
        ts = now()
        return self.request({"kind": "ping", "ts": ts}), ts

    def push(self, id, compress=False):
        msg, sig = self.library.letters[id]
        self.event({"kind": "gossip", "msg": msg, "sig": sig, "hops": HOPS, "fanout": FANOUT}, compress)

    def fetch(self, obj, stop_after):
        number = self.next_stream  # a dialer's are odd
        self.next_stream += 2
        kept = self.library.kept.setdefault(obj, stream.Kept())
        corr = self.request({"kind": "start", "stream": number, "obj": obj, "from": len(kept.data)})
        self.fetches[number] = stream.Fetch(number, corr, obj, self.chunk, kept, stop_after)
        self.moved = time.monotonic()

    def start(self, obj, whole, start=0, length=0):
        """Asks for an object, a view of it, or a part, and calls whole with the
        status and the bytes. Nothing of it is verified."""
        number = self.next_stream
        self.next_stream += 2
        corr = self.request({"kind": "start", "stream": number, "obj": obj, "from": start, "length": length})
        self.fetches[number] = stream.Fetch(number, corr, obj, self.chunk, stream.Part(whole))
        self.moved = time.monotonic()

    def leaving(self):
        """After a bye of either side, nothing new is started."""
        return self.our_bye or self.their_bye

    def bye(self):
        self.our_bye = True
        self.event({"kind": "bye", "reason": "draining"})
        self._leave_if_done()

    # Receiving.

    def readable(self):
        """Reads what is there. TLS may hold more than one read gives, and may
        hold nothing although the socket was readable."""
        try:
            while not self.closed:
                self.socket.settimeout(0)
                data = self.socket.recv(1 << 16)
                if not data:
                    self._ended()
                    return
                self.progress = time.monotonic()
                self.reader.feed(data)
                self._frames()
        except ssl.SSLWantReadError:
            return

    def lost(self, error):
        """A read or a write failed: no error can be sent any more."""
        if not self.closed:
            self.socket.close()
            self._over(clean=False, why=str(error))

    def _ended(self):
        clean = not self.reader.inside()
        self._hang_up()
        self._over(clean, why="the other side closed")

    def _frames(self):
        while not self.closed:
            try:
                found = self.reader.next()
            except Refusal as refusal:
                self._fail(frame.EVENT, 0, refusal)  # the header is not trusted
                return
            if not found:
                return
            self._frame(*found)

    def _frame(self, flags, corr, payload):
        self.heard, self.asked = time.monotonic(), 0
        try:
            said = message.decode(frame.inflate(flags, payload, self.compressed))
            if said["kind"] in ("hello", "hello_ack"):
                raise Refusal("Malformed", "message", "a second handshake")
            handler = getattr(self, "_on_" + said["kind"], None) if said["kind"] in message.KINDS else None
            if handler:
                handler(corr, said)
            elif flags & frame.REQ:
                self.send(frame.RESP, corr, {"kind": "error", "code": "Malformed", "msg": "unknown kind " + said["kind"]})
                self.tell("refused", kind=said["kind"])
        except Refusal as refusal:
            self._fail(frame.RESP if flags & frame.REQ else frame.EVENT, corr, refusal)

    def _on_ping(self, corr, said):
        self.send(frame.RESP, corr, {"kind": "pong", "ts": said["ts"]})

    def _on_pong(self, corr, said):
        if self.requests.pop(corr, None) == "ping":
            self.tell("pong", corr=corr, ts=said["ts"])

    def _on_error(self, corr, said):
        about = self.requests.pop(corr, "")
        self.tell("error", corr=corr, about=about, code=said["code"], msg=said["msg"])
        for fetch in [f for f in self.fetches.values() if f.corr == corr]:
            self._fetched(fetch, said["code"])

    def _on_bye(self, corr, said):
        self.their_bye = True
        self.tell("bye", reason=said["reason"])

    # Letters.

    def _on_gossip(self, corr, said):
        """The order of section 7: the signature before the id is remembered."""
        msg, sig = said["msg"], said.get("sig")
        id = blake3(msg)
        try:
            read = letter.decode(msg)
            letter.check_time(read, now())
            if self.library.holds(id):
                return
            letter.check_signature(msg, read, sig)
        except Refusal as refusal:
            self.tell("dropped", id=id.hex(), reason=refusal.reason)
            return
        self.library.remember(read, msg, sig)
        self.tell("letter", id=id.hex(), topic=read["topic"], data=read["data"].hex(), ts=read["ts"],
                  origin=letter.peer_id(read["key"]), hops=said["hops"], fanout=said["fanout"])

    def _on_have(self, corr, said):
        ids = [id for id in said["ids"] if not self.library.holds(id)]
        self.tell("have", ids=[id.hex() for id in said["ids"]], wanted=len(ids))
        if ids and not self.leaving():
            self.event({"kind": "want", "ids": ids})

    def _on_want(self, corr, said):
        held = [id for id in said["ids"] if id in self.library.letters and self.library.holds(id)]
        self.tell("want", ids=[id.hex() for id in said["ids"]], held=len(held))
        for id in held:
            self.push(id)

    # Introductions.

    def _on_introduce(self, corr, said):
        """Section 16: the sender's own is meant for this peer, the others are signed
        for the sender."""
        me = letter.peer_id(self.library.key)
        for raw in said["nodes"]:
            read, node = introduction.decode(raw)
            if not now() < read["until"] <= now() + 48 * 3_600_000 or letter.printed(read["via"]) not in (me, self.peer) or (letter.printed(read["via"]) == me) != (node == self.peer):
                raise Refusal("Malformed", "message", "an introduction that is not for this session")

    # Objects.

    def _on_start(self, corr, said):
        number, obj, start = said["stream"], said["obj"], said.get("from", 0)
        stop = start + said["length"] if said.get("length") else None
        if number % 2 or number in self.gifts:
            raise Refusal("Malformed", "message", "a stream number that is not free")
        data, status = self._what_is_asked(obj, start, stop)
        gift = stream.Gift(number, corr, obj, self.chunk, data, status)
        self.gifts[number] = gift
        self.moved = time.monotonic()
        self._give(gift)

    def _what_is_asked(self, obj, start, stop):
        """The bytes of an object, of its tree or of its files, and how the
        stream ends behind them."""
        asked = ADDRESS.fullmatch(obj)
        if not asked:
            return b"", "Malformed"
        if self.our_bye:
            return b"", "Canceled"
        data, view = self.library.objects.get(asked[1]), asked[2]
        if data is None:
            return b"", "NotFound"
        if view == "/files":
            try:
                return folder.joined(folder.entries(data), self.library.objects, start, stop)
            except folder.NoManifest:
                return b"", "Malformed"
        if view == "/tree":
            data = self.library.tree(asked[1])
        return (data[start:stop], "ok") if start <= len(data) else (b"", "InvalidRange")

    def _on_find(self, corr, said):
        """Says that this peer is a provider of what it holds."""
        here = said["obj"] in self.library.objects and said["most"] > 0
        own = {"id": letter.peer_id(self.library.key), "overlay": [], "http": [], "age": 0}
        self.send(frame.RESP, corr, {"kind": "found", "providers": [own] if here else []})
        self.tell("found", obj=said["obj"], here=here)

    def _give(self, gift):
        for said in gift.messages():
            self.send(frame.RESP, gift.corr, said)
            if said["kind"] == "end":
                del self.gifts[gift.number]
                self.tell("gave", obj=gift.obj, chunks=gift.next, status=said["status"])
        self._leave_if_done()

    def _on_ack(self, corr, said):
        if said["stream"] in self.fetches:
            raise Refusal("Malformed", "message", "an ack from the side that gives")
        gift = self.gifts.get(said["stream"])
        if gift:
            gift.ack(said["up_to"])
            self.moved = time.monotonic()
            self._give(gift)

    def _on_data(self, corr, said):
        if said["stream"] in self.gifts:
            raise Refusal("Malformed", "message", "data from the side that asked")
        fetch = self.fetches.get(said["stream"])
        if not fetch:
            return  # it crossed an end
        self.moved = time.monotonic()
        answer = fetch.take(said["seq"], said["bytes"])
        if answer:
            self.send(frame.EVENT, fetch.corr, answer)
        if answer and answer["kind"] == "end":
            self._fetched(fetch, answer["status"])

    def _on_end(self, corr, said):
        gift = self.gifts.pop(said["stream"], None)
        if gift:
            self.tell("canceled", obj=gift.obj, status=said["status"], seq=said["seq"])
        fetch = self.fetches.get(said["stream"])
        if fetch:
            self._fetched(fetch, fetch.verdict(said["seq"], said["status"]))
        self._leave_if_done()

    def _fetched(self, fetch, status):
        del self.fetches[fetch.number]
        self.requests.pop(fetch.corr, None)
        if fetch.kept.whole:
            fetch.kept.whole(status, fetch.kept.data)
            return
        if status == "ok":
            self.library.objects[fetch.obj] = bytes(fetch.kept.data)
        if status in ("ok", "IntegrityFail"):
            self.library.kept.pop(fetch.obj, None)
        self.tell("fetched", obj=fetch.obj, status=status, start=fetch.start, size=len(fetch.kept.data), chunks=fetch.next)

    # Clocks.

    def tick(self):
        """Looks at the clocks of section 9; called a few times a second."""
        moment = time.monotonic()
        if self.reader.inside() and moment - self.progress > PROGRESS or moment - self.heard > IDLE:
            self._fail(frame.EVENT, 0, Refusal("Timeout", "clock"))
        elif moment - self.heard > IDLE / 3 * (self.asked + 1) and not self.leaving():
            self.asked += 1
            self.ping()
        elif (self.fetches or self.gifts) and moment - self.moved > STREAM:
            self._give_up_streams()

    def _give_up_streams(self):
        for fetch in list(self.fetches.values()):
            self.send(frame.EVENT, fetch.corr, fetch.end("Timeout"))
            self._fetched(fetch, "Timeout")
        for gift in list(self.gifts.values()):
            self.send(frame.RESP, gift.corr, gift.end("Timeout"))
            del self.gifts[gift.number]
        self._leave_if_done()

    # Closing.

    def _leave_if_done(self):
        """The side that said bye closes, when its streams have ended."""
        if self.our_bye and not self.closed and not self.fetches and not self.gifts:
            self._over(clean=self._hang_up(), why="bye")

    def _fail(self, flags, corr, refusal):
        """Says why, and closes."""
        try:
            self.send(flags, corr, {"kind": "error", "code": refusal.code, "msg": str(refusal)})
        except OSError:
            pass  # the other side has disconnected already
        self._hang_up()
        self._over(clean=False, why=str(refusal))

    def _hang_up(self):
        """Sends close_notify, and for up to a second throws away what still
        comes: a reset would eat what was said last. True if the other side
        then closed in its turn."""
        self.socket.settimeout(1)
        try:
            self.socket.unwrap().close()
            return True
        except (OSError, ValueError):
            pass  # it was still talking, or is gone
        plain = socket.socket(fileno=self.socket.detach())
        try:
            plain.settimeout(1)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(1 << 16):
                pass
            return True
        except OSError:
            return False
        finally:
            plain.close()

    def _over(self, clean, why):
        self.closed = True
        self.tell("closed", clean=clean, why=why)
