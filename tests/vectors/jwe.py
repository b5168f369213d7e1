"""JSON Web Encryption (RFC 7516) in the compact form, with RSA-OAEP and AES-GCM, without chance: what is random in it is
made of the text, so that the same input gives the same file. For vectors only.
"""

import base64
import hashlib
import json

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def b64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def flip(text):
    """The same base64 with the first letter changed."""
    return ("A" if text[0] != "A" else "B") + text[1:]


def mask(seed, length, digest):
    blocks = (digest(seed + i.to_bytes(4, "big")).digest() for i in range(-(-length // digest().digest_size)))
    return b"".join(blocks)[:length]


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def oaep(public, message, seed, digest):
    """RSAES-OAEP (RFC 8017, section 7.1.1) with a given seed and no label."""
    numbers = public.public_numbers()
    size, length = (numbers.n.bit_length() + 7) // 8, digest().digest_size
    block = digest(b"").digest() + bytes(size - len(message) - 2 * length - 2) + b"\x01" + message
    masked = xor(block, mask(seed, len(block), digest))
    encoded = b"\0" + xor(seed, mask(masked, length, digest)) + masked
    return pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(size, "big")


def seal(text, public, algorithm="RSA-OAEP-256", header=None, content_key=None, covered=None):
    """A ciphertext. `header` is what it says over what is done; `covered` what the tag covers in place of the header."""
    random = lambda what: hashlib.sha256(what.encode() + text.encode()).digest()
    digest = hashlib.sha256 if algorithm == "RSA-OAEP-256" else hashlib.sha1
    key, nonce = content_key or random("key"), random("nonce")[:12]
    head = b64url(json.dumps({"alg": algorithm, "enc": "A256GCM", "cty": "JWT"} | (header or {})).encode())
    sealed = AESGCM(key).encrypt(nonce, text.encode(), covered or head.encode())
    wrapped = oaep(public, key, random("seed")[: digest().digest_size], digest)
    return ".".join([head, *map(b64url, (wrapped, nonce, sealed[:-16], sealed[-16:]))])


def envelope(ciphertext):
    return json.dumps({"encrypted_body": ciphertext}, separators=(",", ":")).encode()
