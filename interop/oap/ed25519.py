"""Ed25519 of RFC 8032, in extended coordinates. It takes no care to run in the
same time for every key: it is for tests, not for secrets."""

from hashlib import sha512

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)
NEUTRAL = (0, 1, 1, 0)


def _add(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(n, p):
    q = NEUTRAL
    while n:
        if n & 1:
            q = _add(q, p)
        p = _add(p, p)
        n >>= 1
    return q


def _x(y, sign):
    """The x of a point, or None if the curve has no such point."""
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def _pack(p):
    z = pow(p[2], P - 2, P)
    x, y = p[0] * z % P, p[1] * z % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _unpack(data):
    n = int.from_bytes(data, "little")
    y, sign = n & (1 << 255) - 1, n >> 255
    x = _x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


_BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = (_x(_BASE_Y, 0), _BASE_Y, 1, _x(_BASE_Y, 0) * _BASE_Y % P)


def _hash(*parts):
    return int.from_bytes(sha512(b"".join(parts)).digest(), "little")


def _expand(seed):
    h = sha512(seed).digest()
    a = int.from_bytes(h[:32], "little") & (1 << 254) - 8 | 1 << 254
    return a, h[32:]


def public(seed):
    return _pack(_times(_expand(seed)[0], BASE))


def sign(seed, data):
    a, prefix = _expand(seed)
    key = _pack(_times(a, BASE))
    r = _hash(prefix, data) % L
    point = _pack(_times(r, BASE))
    s = (r + _hash(point, key, data) % L * a) % L
    return point + s.to_bytes(32, "little")


def verify(key, data, sig):
    """Without the cofactor, and with R compared as bytes: the stricter of the
    two ways that the RFC allows, and the one that OAP/1 wants."""
    s = int.from_bytes(sig[32:], "little")
    a = _unpack(key)
    if len(sig) != 64 or s >= L or a is None:
        return False
    k = _hash(sig[:32], key, data) % L
    minus = (P - a[0], a[1], 1, P - a[3])
    return _pack(_add(_times(s, BASE), _times(k, minus))) == sig[:32]
