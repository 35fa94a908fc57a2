"""peer.py SEED: a peer of OAP/1, written from docs/oap1.md alone.

It reads commands as lines of JSON from standard input, and reports what
happens by lines of JSON on standard output. SEED is 64 hex digits.

    {"do": "dial", "peer": "ID@HOST:PORT", "compress": true}
    {"do": "ping"}
    {"do": "publish", "topic": "news/eu", "data": "HEX"}       and push it
    {"do": "announce", "topic": "news/eu", "data": "HEX"}      and send `have`
    {"do": "want", "ids": ["HEX"]}
    {"do": "hold", "path": "FILE"}                             an object to give
    {"do": "fetch", "obj": "b3:HEX", "stop_after": 10}         a second fetch goes on
    {"do": "download", "obj": "b3:HEX"}                        in parts, verified with the tree
    {"do": "download_folder", "obj": "b3:HEX"}                 all of its files in one stream
    {"do": "hold_folder", "path": "FOLDER"}
    {"do": "drop", "obj": "b3:HEX"}                            hold it no more
    {"do": "damage", "obj": "b3:HEX", "at": 70000}             give another byte there
    {"do": "save", "obj": "b3:HEX", "path": "FILE"}
    {"do": "bye"}
    {"do": "say", "flags": 1, "message": {"kind": "later"}}    whether it is allowed or not;
                                                               byte strings are hex
    {"do": "raw", "hex": "HEX"}                                bytes instead of a frame

Every line that comes out has `event`; `failed` says that a line could not be
done. The end of standard input ends the program."""

import json
import os
import select
import sys

import download
import folder
import frame
import letter
from refusal import Refusal
from session import Library, Session
from transport import Stranger

TICK = 0.2  # seconds


def tell(event, **about):
    print(json.dumps({"event": event, **about}), flush=True)


class Peer:
    def __init__(self, seed):
        self.library = Library(seed)
        self.session = None

    def do(self, line):
        try:
            order = json.loads(line)
            getattr(self, "do_" + order.pop("do"))(**order)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, Refusal, Stranger) as error:
            tell("failed", line=line[:200], why=f"{type(error).__name__}: {error}")

    def do_dial(self, peer, compress=False):
        self.session = Session(self.library, peer, compress, tell)

    def do_ping(self):
        corr, ts = self.open().ping()
        tell("pinged", corr=corr, ts=ts)

    def do_publish(self, topic, data, compress=False):
        id = self.library.write(topic, bytes.fromhex(data))
        self.open().push(id, compress)
        tell("published", id=id.hex())

    def do_announce(self, topic, data):
        id = self.library.write(topic, bytes.fromhex(data))
        self.open().event({"kind": "have", "ids": [id]})
        tell("announced", id=id.hex())

    def do_want(self, ids):
        self.open().event({"kind": "want", "ids": [bytes.fromhex(id) for id in ids]})

    def do_hold(self, path):
        with open(path, "rb") as file:
            data = file.read()
        obj = self.library.hold(data)
        tell("holding", obj=obj, size=len(data))

    def do_hold_folder(self, path):
        files = {}
        for place, _, names in os.walk(path):
            for name in names:
                with open(os.path.join(place, name), "rb") as file:
                    data = file.read()
                relative = os.path.relpath(os.path.join(place, name), path)
                files[relative] = self.library.hold(data), len(data)
        obj = self.library.hold(folder.manifest(files))
        tell("holding", obj=obj, size=sum(size for _, size in files.values()))

    def do_drop(self, obj):
        del self.library.objects[obj]
        tell("dropped_object", obj=obj)

    def do_damage(self, obj, at):
        data = bytearray(self.library.objects[obj])
        data[at] ^= 1
        self.library.objects[obj] = bytes(data)
        tell("damaged", obj=obj)

    def do_download(self, obj):
        download.Object(self.open(), obj)

    def do_download_folder(self, obj):
        download.Folder(self.open(), obj)

    def do_fetch(self, obj, stop_after=None):
        self.open().fetch(obj, stop_after)

    def do_save(self, obj, path):
        with open(path, "wb") as file:
            file.write(self.library.objects[obj])
        tell("saved", obj=obj)

    def do_say(self, flags, message):
        bytewise = {key: bytes.fromhex(message[key]) for key in ("msg", "sig", "bytes") if key in message}
        session = self.open()
        corr = session.new_corr()
        if flags & frame.REQ:
            session.requests[corr] = message["kind"]
        session.send(flags, corr, {**message, **bytewise})
        tell("said", corr=corr)

    def do_raw(self, hex):
        self.open().socket.settimeout(1)
        self.open().socket.sendall(bytes.fromhex(hex))

    def do_bye(self):
        self.open().bye()

    def open(self):
        """The session, if something may still be started on it."""
        if self.session is None or self.session.closed or self.session.leaving():
            raise ValueError("no open session")
        return self.session

    def run(self, orders):
        """Waits for orders and for the session, until there are no more
        orders."""
        rest = b""
        while True:
            live = self.session is not None and not self.session.closed
            ready, _, _ = select.select([orders] + ([self.session.socket] if live else []), [], [], TICK)
            if orders in ready:
                data = os.read(orders, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.do(line.decode())
            self.look_after_session()

    def look_after_session(self):
        """Reads even if select saw nothing: TLS may have more in its hands."""
        if self.session is None or self.session.closed:
            return
        try:
            self.session.readable()
            if not self.session.closed:
                self.session.tick()
        except OSError as error:
            self.session.lost(error)


def main():
    seed = bytes.fromhex(sys.argv[1])
    peer = Peer(seed)
    tell("ready", peer=letter.peer_id(peer.library.key))
    peer.run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
