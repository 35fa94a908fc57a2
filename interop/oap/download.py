"""What is fetched in several streams: an object in parts that are verified with
its tree, and the files of a folder. Both are told of by `downloaded`."""

import folder
import stream
import tree
from blake3 import blake3

PART = 1 << 20  # whole groups
AT_A_TIME = 4   # parts that are under way


class Object:
    """An object, in parts, in any order."""

    def __init__(self, session, obj):
        self.session, self.obj = session, obj
        self.tree, self.data = None, b""
        self.waiting, self.under_way = [], 0
        self.over = False
        session.start(obj + "/tree", self._have_tree)

    def _have_tree(self, status, raw):
        if status == "ok" and not raw:  # an object of one group has none
            self.session.start(self.obj, self._have_all)
            return
        if status != "ok":
            self._end(status)
            return
        try:
            self.tree = tree.Tree(bytes.fromhex(self.obj[3:]), raw)
        except tree.Wrong:
            self._end("IntegrityFail")
            return
        self.data = bytearray(self.tree.size)
        self.waiting = list(range(0, self.tree.size, PART))
        for _ in range(AT_A_TIME):
            self._next()

    def _next(self):
        if self.waiting:
            at = self.waiting.pop(0)
            self.under_way += 1
            self.session.start(self.obj, lambda status, data: self._have_part(at, status, data), at, min(PART, self.tree.size - at))

    def _have_part(self, at, status, data):
        self.under_way -= 1
        if self.over:
            return
        try:
            if status != "ok" or len(data) != min(PART, self.tree.size - at):
                self._end(status if status != "ok" else "Incomplete")
                return
            self.tree.check(at, data)
        except tree.Wrong:
            self._end("IntegrityFail")
            return
        self.data[at:at + len(data)] = data
        self._next()
        if not self.under_way:
            self._end("ok")

    def _have_all(self, status, data):
        if status == "ok" and stream.address(blake3(data)) != self.obj:
            status = "IntegrityFail"
        self.data = data
        self._end(status)

    def _end(self, status):
        self.over = True
        if status == "ok":
            self.session.library.objects[self.obj] = bytes(self.data)
        self.session.tell("downloaded", obj=self.obj, status=status, size=len(self.data), groups=len(self.tree.groups) if self.tree else 0)


class Folder:
    """A folder: its manifest, and all files in one stream."""

    def __init__(self, session, obj):
        self.session, self.obj, self.files = session, obj, []
        session.start(obj, self._have_manifest)

    def _have_manifest(self, status, data):
        if status == "ok" and stream.address(blake3(data)) != self.obj:
            status = "IntegrityFail"
        try:
            self.files = folder.entries(data) if status == "ok" else []
        except folder.NoManifest:
            status = "Malformed"
        if status != "ok":
            self._end(status, 0)
            return
        self.session.library.objects[self.obj] = bytes(data)
        self.session.start(self.obj + "/files", self._have_files)

    def _have_files(self, status, data):
        """Keeps what came of them, each by its own hash."""
        at = kept = 0
        for _, obj, size in self.files:
            file = bytes(data[at:at + size])
            at += size
            if stream.address(blake3(file)) != obj:
                status = "IntegrityFail" if status == "ok" else status
                break
            self.session.library.objects[obj] = file
            kept += 1
        self._end(status, kept)

    def _end(self, status, kept):
        self.session.tell("downloaded", obj=self.obj, status=status, files=kept, paths=[path for path, _, _ in self.files])
