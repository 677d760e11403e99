"""Ed25519 signatures: who answers for a certificate.

Make a pair of keys with

    openssl genpkey -algorithm ed25519 -out key.pem
    openssl pkey -in key.pem -pubout -out public.pem
"""

import base64
import binascii
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_HOW = "Make one with `openssl genpkey -algorithm ed25519 -out key.pem`."


class SignatureError(ValueError):
    """A signature is missing, or does not match the key and the bytes."""


def read_private_key(path: str | Path) -> Ed25519PrivateKey:
    """The key to sign with, from an unencrypted PEM file (PKCS 8)."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = Path(path).read_bytes()
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError as error:  # what `cryptography` raises for an encrypted key
        raise ValueError(
            f"The private key in `{path}` is encrypted. Decrypt it in a folder that only you can read, for example "
            "with `openssl pkey -in encrypted.pem -out key.pem`, and pass that file."
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"`{path}` does not hold a private key in PEM form. {_HOW}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"The private key in `{path}` is not an Ed25519 key. {_HOW}")
    return key


def read_public_key(path: str | Path) -> Ed25519PublicKey:
    """The key to check a signature with, from a PEM file."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    how = "Make it with `openssl pkey -in key.pem -pubout -out public.pem`."
    try:
        key = load_pem_public_key(Path(path).read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"`{path}` does not hold a public key in PEM form. {how}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"The public key in `{path}` is not an Ed25519 key. {how}")
    return key


def sign(content: bytes, key: Ed25519PrivateKey) -> str:
    """The signature of these bytes, in base64."""
    return base64.b64encode(key.sign(content)).decode()


def verify_signature(content: bytes, signature: str, key: Ed25519PublicKey) -> None:
    """Raises `SignatureError` unless the owner of `key` signed these bytes."""
    if not signature:
        raise SignatureError("The certificate is not signed.")
    try:
        key.verify(base64.b64decode(signature, validate=True), content)
    except (InvalidSignature, binascii.Error, ValueError) as error:
        raise SignatureError(
            "The signature does not match this key: the certificate was changed, or another key signed it."
        ) from error
