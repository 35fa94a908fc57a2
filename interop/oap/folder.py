"""Folders, section 8: the manifest of one, and its files one after the other."""

import json
import re

TYPE = "micronode manifest v1"
ADDRESS = re.compile("b3:[0-9a-f]{64}")


class NoManifest(ValueError):
    """The object is not the manifest of a folder."""


def entries(data):
    """The files of a manifest, in its order: path, address, size."""
    try:
        read = json.loads(data)
        if read["type"] != TYPE:
            raise ValueError("another type")
        files = [(entry["path"], entry["b3"], entry["size"]) for entry in read["entries"]]
        if any(type(path) is not str or not ADDRESS.fullmatch(obj) or type(size) is not int or size < 0 for path, obj, size in files):
            raise ValueError("an entry")
        return files
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoManifest(str(error)) from None


def manifest(files):
    """The manifest of files: path to (address, size). It has one spelling."""
    listed = [{"b3": obj, "path": path, "size": size, "type": "application/octet-stream"} for path, (obj, size) in sorted(files.items(), key=lambda file: file[0].encode())]
    return json.dumps({"entries": listed, "type": TYPE}, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def joined(files, objects, start, stop):
    """The bytes of all files from one offset to another, and how the stream
    ends: at a file that is not held, or is not as long as the manifest says."""
    data, at = [], 0
    total = sum(size for _, _, size in files)
    if start > total:
        return b"", "InvalidRange"
    for _, obj, size in files:
        begin, at = at, at + size
        if at <= start or size == 0:
            continue
        if stop is not None and begin >= stop:
            break
        held = objects.get(obj)
        if held is None:
            return b"".join(data), "NotFound"
        if len(held) != size:
            return b"".join(data), "Malformed"
        data.append(held[max(0, start - begin):None if stop is None else stop - begin])
    return b"".join(data), "ok"
