"""The TLS files of a service: checked at start, watched until they expire, and read again on SIGHUP."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from privrl.service.bodies import write_time
from privrl.service.event_log import log_event

WARNING_SECONDS = 30 * 86_400
"""How long before a certificate expires the service begins to warn."""
_DAY = 86_400


@dataclass(frozen=True)
class TlsFiles:
    """A certificate chain and its private key, in PEM, without a password."""

    certificate: Path
    private_key: Path

    def check(self, now: float) -> float:
        """Check that the files can be used at a time, in seconds since 1970.

        Returns:
            The time at which the first certificate of the chain expires.

        Raises:
            ValueError: if a file cannot be read, or a certificate is not valid at this time.
        """
        try:
            self.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            chain = x509.load_pem_x509_certificates(self.certificate.read_bytes())
        except (OSError, ValueError) as error:  # also an SSLError
            if isinstance(error, ssl.SSLError):
                reason = error.reason or "not PEM"
            else:
                reason = (error.strerror if isinstance(error, OSError) else None) or "not PEM"
            raise ValueError(
                f"`--tls-cert` is `{self.certificate}` and `--tls-key` is `{self.private_key}`. They cannot be used "
                f"for TLS ({reason}). Give a certificate chain and its key, in PEM, without a password."
            ) from error
        expires = min(_seconds(one.not_valid_after_utc) for one in chain)
        begins = max(_seconds(one.not_valid_before_utc) for one in chain)
        if now >= expires:
            raise ValueError(f"`--tls-cert` is `{self.certificate}`, which expired at {write_time(expires)}. Renew it.")
        if now < begins:
            raise ValueError(
                f"`--tls-cert` is `{self.certificate}`, which is valid from {write_time(begins)} on, and the clock of "
                f"this machine says {write_time(now)}. Correct the clock, or give a certificate that is valid now."
            )
        return expires

    def load(self, context: ssl.SSLContext) -> None:
        """Use the files for new connections."""
        # Without a password, a key that needs one would prompt for it here.
        context.load_cert_chain(self.certificate, self.private_key, password=lambda: b"")


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


class LiveTls:
    """The certificate of a running service.

    Arguments:
        context: what uvicorn uses for new connections.

    Attributes:
        expires: when the certificate expires, in seconds since 1970.
    """

    def __init__(self, files: TlsFiles, context: ssl.SSLContext, clock: Callable[[], float] = time.time) -> None:
        self._files, self._context, self._clock = files, context, clock
        self.expires = files.check(clock())

    def reload(self) -> None:
        """Read the files again. If they cannot be used, the service keeps the old ones and logs the reason."""
        try:
            expires = self._files.check(self._clock())
            self._files.load(self._context)
        except (ValueError, OSError) as error:
            message = f"The TLS files were not reloaded, and the old ones stay in use. {error}"
            log_event("tls", message, level=logging.ERROR)
            return
        self.expires = expires
        log_event("tls", "The TLS files were reloaded.", expires=write_time(expires))

    def warn(self) -> None:
        """Log a warning if the certificate expires soon."""
        left = self.expires - self._clock()
        if left < WARNING_SECONDS:
            message = "The TLS certificate expires soon. Renew it, and send SIGHUP to this process."
            expires, days = write_time(self.expires), max(0, int(left // _DAY))
            log_event("tls", message, level=logging.WARNING, expires=expires, days_left=days)

    async def watch(self) -> None:
        """Warn once a day, until cancelled."""
        while True:
            self.warn()
            await asyncio.sleep(_DAY)
