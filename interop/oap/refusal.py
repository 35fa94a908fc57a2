"""The one error of this peer that is sent to the other side."""


class Refusal(Exception):
    """code goes over the wire; reason is the rule that was broken, by the
    names of section 10."""

    def __init__(self, code, reason, text=""):
        super().__init__(f"{code} ({reason}) {text}".rstrip())
        self.code, self.reason = code, reason
