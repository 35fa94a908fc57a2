"""The connection of section 1: TCP, TLS 1.3, both sides' keys."""

import os
import socket
import ssl
import tempfile

import certificate
import ed25519
import letter
from blake3 import blake3

ALPN = "ron/oap1"
# OpenSSL offers X25519MLKEM768 first from 3.5 on. An older one cannot, and
# then this peer says nothing about post-quantum.
SETTING = "hybrid" if ssl.OPENSSL_VERSION_INFO >= (3, 5) else ""


class Stranger(Exception):
    """Another peer answered."""


def dial(seed, peer, patience):
    """Connects to ID@HOST:PORT. The listener must own the key of ID."""
    wanted, _, address = peer.partition("@")
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host.strip("[]"), int(port)), patience)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # With suppress_ragged_eofs an end without close_notify would look like a
    # normal one.
    secure = _context(seed).wrap_socket(plain, suppress_ragged_eofs=False)
    try:
        _check(secure, wanted, letter.peer_id(ed25519.public(seed)))
    except BaseException:
        secure.close()
        raise
    return secure


def _context(seed):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The certificate proves a key and nothing else, so no authority signs it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    # The module takes keys from files only. This one is readable by us alone
    # and gone before the first byte is sent.
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as file:
            file.write(certificate.pem(seed))
        context.load_cert_chain(path)
    finally:
        os.remove(path)
    return context


def _check(secure, wanted, own):
    if secure.selected_alpn_protocol() != ALPN:
        raise Stranger("the other side does not speak " + ALPN)
    info = certificate.public_key_info(secure.getpeercert(binary_form=True))
    if len(info) != 44 or not info.startswith(letter.SPKI):
        raise Stranger("the other side's key is not Ed25519")
    found = letter.printed(blake3(info))
    if found != wanted or found == own:
        raise Stranger(f"{found} answered, not {wanted}")
