"""The gateway in the process of a broker, started anew when the password that it logs in with was replaced.

The password follows from the secret of the cluster. Both passwords are right until the last step of a rotation, so HTTP
is away for a moment on one node, and what it asks other nodes is not refused.
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from headwater.cli.gateway_thread import start_gateway
from headwater.logs.events import log_event

if TYPE_CHECKING:
    from headwater.broker.server import Broker
    from headwater.gateway.server import GatewayThread


class RenewedGateway:
    def __init__(self, broker: "Broker", thread: "GatewayThread") -> None:
        self._broker = broker
        self._thread = thread
        self._password = broker.gateway_password
        self._renewing: asyncio.Task[None] | None = None
        self.host, self.port = thread.host, thread.port
        if broker.cluster_secrets is not None and broker.config.gateway_logs_in:
            broker.cluster_secrets.watchers.append(self._secrets_replaced)

    @classmethod
    def start(cls, broker: "Broker") -> "RenewedGateway | None":
        """None if the setting http is off. Raises as `start_gateway`."""
        thread = start_gateway(broker)
        return cls(broker, thread) if thread is not None else None

    async def stop(self) -> None:
        if self._broker.cluster_secrets is not None:
            with contextlib.suppress(ValueError):
                self._broker.cluster_secrets.watchers.remove(self._secrets_replaced)
        if self._renewing is not None:
            await asyncio.gather(self._renewing, return_exceptions=True)
        await asyncio.to_thread(self._thread.stop)

    def _secrets_replaced(self) -> None:
        if self._broker.gateway_password != self._password and (self._renewing is None or self._renewing.done()):
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while self._broker.gateway_password != self._password:
            self._password = self._broker.gateway_password
            await asyncio.to_thread(self._thread.stop)
            try:
                thread = start_gateway(self._broker, self.port)
            except (OSError, ValueError) as error:
                log_event("http_not_restarted", logging.ERROR, reason=str(error))
                return
            assert thread is not None, "it is on, as it was before"
            self._thread = thread
            log_event("http_restarted", reason="the secret of the cluster was replaced")
