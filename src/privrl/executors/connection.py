"""Connections to a Dask cluster, which must be encrypted or stay inside this machine."""

import contextlib
import ipaddress
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from privrl.executors.failures import ShardError

if TYPE_CHECKING:
    from distributed import Client

LOST = (
    "The connection to the cluster's scheduler was lost. Nothing was released from this pass. Start the cluster again, "
    "and repeat the command with the same store: what was released before is read from it."
)


@contextlib.contextmanager
def replace_connection_errors() -> Iterator[None]:
    """Raises a `ShardError` of fixed wording if the scheduler is lost: other messages might quote anything."""
    try:
        yield
    except (OSError, CancelledError):  # `TimeoutError` and the errors of a closed connection are `OSError`s
        raise ShardError(LOST) from None


def connect(address: str, ca: str | None = None, certificate: str | None = None, key: str | None = None) -> "Client":
    """Connects to the scheduler at an address, which must be `tls://` or on this machine.

    Arguments:
        address: the scheduler's address.
        ca: the file of the certificate of the authority that signed the cluster's certificates.
        certificate: the file of this client's certificate.
        key: the file of its private key, if that is another one.
    """
    refuse_plain(address, "The scheduler")
    encrypted = address.startswith("tls://")
    if encrypted and (ca is None or certificate is None):
        raise ValueError(
            "A `tls://` scheduler needs the authority's certificate (`--dask-ca`) and your own (`--dask-cert`)."
        )
    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError:
        raise ImportError("`--dask` needs the extra `privrl[dask]`: pip install 'privrl[dask]'.") from None
    security = None
    if encrypted:
        security = Security(
            tls_ca_file=ca, tls_client_cert=certificate, tls_client_key=key or certificate, require_encryption=True
        )
    try:
        return Client(address, security=security, timeout=30, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ValueError(
            f"No scheduler answers at {address}, or it rejects the certificate ({type(error).__name__}). Check the "
            "address and the certificates."
        ) from None


def refuse_plain(address: str, who: str) -> None:
    """Refuses addresses to which rows and exact sums would travel unencrypted over a network."""
    parts = urlsplit(address)
    if parts.scheme in ("tls", "inproc") or (parts.scheme == "tcp" and _is_loopback(parts.hostname)):
        return
    raise ValueError(
        f"{who} is at `{address}`: exact sums of people would travel in the clear. Use `tls://` with certificates, or "
        "`tcp://127.0.0.1` on one machine."
    )


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return host is not None and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
