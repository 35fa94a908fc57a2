"""judge.py: say of each line what this peer makes of the bytes in it. A line
has one of `frame` (with `compressed`), `message` and `letter` (with `sig`), in
hex. The answer has what it is when it is sent again, or why it is refused."""

import json
import sys

import frame
import letter
import message
from blake3 import blake3
from refusal import Refusal


def judge_frame(data, compressed):
    reader = frame.Reader()
    reader.feed(data)
    found = reader.next()
    if found is None:
        return "more"
    flags, corr, payload = found
    return frame.encode(flags & ~frame.COMP, corr, frame.inflate(flags, payload, compressed)).hex()


def judge_message(data):
    read = message.decode(data)
    return message.encode(read).hex() if read["kind"] in message.KINDS else "unknown kind " + read["kind"]


def judge_letter(msg, sig):
    read = letter.decode(msg)
    letter.check_signature(msg, read, sig)
    return blake3(msg).hex()


def judge(case):
    if "frame" in case:
        return judge_frame(bytes.fromhex(case["frame"]), case["compressed"])
    if "message" in case:
        return judge_message(bytes.fromhex(case["message"]))
    return judge_letter(bytes.fromhex(case["letter"]), bytes.fromhex(case["sig"]))


for line in sys.stdin:
    try:
        verdict = {"again": judge(json.loads(line))}
    except Refusal as refusal:
        verdict = {"error": refusal.code, "reason": refusal.reason}
    print(json.dumps(verdict))
