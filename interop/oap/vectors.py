"""vectors.py VECTORS DOCUMENT: hold this peer against the vectors, and against
the session at the end of the document. Each one that fails is a line on
standard error; the last line, on standard output, counts them."""

import json
import re
import sys

import ed25519
import frame
import introduction
import letter
import message
import stream
import tree
from blake3 import blake3
from refusal import Refusal


def check_frame(vector):
    reader = frame.Reader()
    reader.feed(bytes.fromhex(vector["hex"]))
    flags, corr, sent = reader.next()
    payload = frame.inflate(flags, sent, vector.get("compressed", False))
    # The vectors give the flags of the message: COMP is gone with the
    # compression.
    expect("flags", flags & ~frame.COMP, vector["flags"])
    expect("corr", f"{corr:016x}", vector["corr"])
    expect("payload", payload.hex(), vector.get("payload", ""))
    expect("rest", reader.inside(), False)
    expect("encoding", frame.encode(flags, corr, sent).hex(), vector["hex"])


def check_message(vector):
    read = message.decode(bytes.fromhex(vector["hex"]))
    if vector["says"] == f"unknown kind {read['kind']}":
        return
    expect("says", notation(read), vector["says"])
    expect("encoding", message.encode(read).hex(), vector.get("canonical", vector["hex"]))


def check_letter(vector):
    msg = bytes.fromhex(vector["msg"])
    read = letter.decode(msg)
    sig = bytes.fromhex(vector["sig"])
    letter.check_signature(msg, read, sig)
    seed = bytes.fromhex(vector["seed"])
    expect("says", notation(read), vector["says"])
    expect("encoding", letter.encode(read), msg)
    expect("id", blake3(msg).hex(), vector["id"])
    expect("key", read["key"], ed25519.public(seed))
    expect("sig", letter.sign(seed, msg), sig)


def check_introduction(vector):
    raw = bytes.fromhex(vector["hex"])
    read, peer = introduction.decode(raw)
    expect("says", notation(read), vector["says"])
    expect("peer", peer, vector["peer"])
    expect("encoding", introduction.encode(bytes.fromhex(vector["seed"]), read), raw)


def check_step(step):
    """A frame of the session in the document. Flags, number and size stand in
    the words above it."""
    data = bytes.fromhex(step["hex"])
    reader = frame.Reader()
    reader.feed(data)
    flags, corr, payload = reader.next()
    expect("flags", flags, getattr(frame, step["flag"]))
    expect("corr", corr, int(step["corr"]))
    expect("size", len(data), int(step["size"]))
    read = message.decode(payload)
    if read["kind"] in message.KINDS:
        expect("says", notation(read), step["says"])
        expect("encoding", frame.encode(flags, corr, message.encode(read)), data)


def check_tree(vector):
    data = bytes(i % 251 for i in range(vector["size"]))
    root, raw = tree.encode(data)
    expect("address", stream.address(root), vector["address"])
    expect("tree", raw.hex(), vector["tree"])
    if raw:
        tree.Tree(root, raw).check(0, data)


STEP = re.compile(r"\*\*(?P<name>\d+\. [AB] → [AB])\*\* .*?`(?P<flag>REQ|RESP|EVENT)`, corr (?P<corr>\d+), (?P<size>\d+) bytes\.\n\n"
                  r"```\n(?P<says>[^`]+)\n```\n\n```\n(?P<hex>[0-9a-f\s]+)```", re.DOTALL)


def steps(document):
    return [match.groupdict() for match in STEP.finditer(document)]


def notation(value):
    """CBOR's diagnostic notation, with the keys in the order of the encoding."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key), key))
        return "{" + ", ".join(f'"{key}": {notation(value[key])}' for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(notation, value)) + "]"
    if isinstance(value, bytes):
        return f"h'{value.hex()}'"
    return json.dumps(value)


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, not {wanted!r}")


def failure(check, vector):
    """What is wrong with a vector, or None."""
    try:
        check(vector)
    except Refusal as refusal:
        if (refusal.code, refusal.reason) != (vector.get("error"), vector.get("reason")):
            return f"refused: {refusal}"
        return None
    except Exception as error:  # a bad one that is taken has nothing to be compared with
        return f"{type(error).__name__}: {error}"
    return "taken" if "error" in vector else None


def main(path, document):
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    with open(document, encoding="utf-8") as file:
        vectors["steps"] = steps(file.read())
    tally = {"failed": 0}
    checks = {"frames": check_frame, "messages": check_message, "letters": check_letter, "introductions": check_introduction, "trees": check_tree, "steps": check_step}
    for part, check in checks.items():
        tally[part] = len(vectors[part])
        for vector in vectors[part]:
            wrong = failure(check, vector)
            if wrong:
                tally["failed"] += 1
                print(f"{part}: {vector['name']}: {wrong}", file=sys.stderr)
    print(json.dumps(tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
