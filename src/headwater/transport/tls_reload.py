"""The TLS context of a listener, made anew when its files change. Connections that exist keep theirs.

The files are looked at every few seconds, through their paths: Kubernetes replaces the directory that they lie in, so a
watch of the files would miss the second rotation. Reading and checking them happens in a thread.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.logs.events import log_event
from headwater.transport.tls import ServerTlsFiles, TlsContext, read_context, stamp
from headwater.transport.tls_errors import UnusableCertificate

LOOK_EVERY_S: Final = 5.0
WARN_DAYS: Final = (30, 14, 7, 1)
"""How many days before its certificate expires a listener says so, each once."""


def _now() -> datetime:
    return datetime.now(UTC)


class ReloadedTls:
    def __init__(
        self,
        name: str,
        files: ServerTlsFiles,
        hosts: tuple[str, ...],
        current: TlsContext,
        clock: Callable[[], datetime],
    ) -> None:
        self._name = name
        self._files = files
        self._hosts = hosts
        self._current = current
        self._clock = clock
        self._stamp = stamp(files)
        self._warned: int | None = None
        self.failures = 0
        """How often new files could not be used."""

    @classmethod
    async def open(
        cls, name: str, files: ServerTlsFiles, hosts: tuple[str, ...] = (), clock: Callable[[], datetime] = _now
    ) -> "ReloadedTls":
        """For the listener `name`, which clients reach as `hosts`. Raises UnusableCertificate."""
        return cls(name, files, hosts, await asyncio.to_thread(read_context, files, clock(), hosts), clock)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._current.context

    @property
    def current(self) -> TlsContext:
        """Context and certificate of one moment."""
        return self._current

    @property
    def certificate_der(self) -> bytes:
        return self._current.certificate.der

    @property
    def expires_in(self) -> timedelta:
        return self._current.certificate.not_after - self._clock()

    async def follow(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.reload_changed()
            self._warn()

    async def reload_changed(self) -> bool:
        """Read the files if they were replaced; say whether there is a new context."""
        found = stamp(self._files)
        if found is None or found == self._stamp:
            return False
        self._stamp = found
        return await self.reload()

    async def reload(self) -> bool:
        """Read the files; say whether there is a new context. What cannot be used is logged, and the old one stays."""
        try:
            self._current = await asyncio.to_thread(read_context, self._files, self._clock(), self._hosts)
        except UnusableCertificate as error:
            self.failures += 1
            log_event("tls_reload_failed", logging.ERROR, listener=self._name, reason=str(error))
            return False
        self._warned = None
        log_event("tls_reloaded", listener=self._name, expires=self._current.certificate.not_after.isoformat())
        return True

    def _warn(self) -> None:
        left = self.expires_in
        due = [days for days in WARN_DAYS if left <= timedelta(days=days)]
        if due and (self._warned is None or min(due) < self._warned):
            self._warned = min(due)
            expires = self._current.certificate.not_after.isoformat()
            log_event("tls_certificate_expires", logging.WARNING, listener=self._name, expires=expires)
