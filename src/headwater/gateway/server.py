"""The gateway under uvicorn, in a thread with its own event loop.

    listener = listen(config)                # at once: whether the address can be had is known before anything else
    gateway = GatewayThread(config, listener)
    gateway.start()
    ...
    gateway.stop()

Clients that connect between `listen` and the moment when the application is ready wait in the listener's queue.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.gateway.config import GatewayConfig

if TYPE_CHECKING:
    import uvicorn

    from headwater.gateway.cluster.broker_pages import BrokerPages

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
GRACE_S = 5
"""For requests that are being answered when the gateway is asked to stop."""
START_POLL_S = 0.01
KEEP_ALIVE_S = 65
"""Longer than the minute that proxies keep a connection for: the client should close it."""
BACKLOG = 1024
MAX_SOCKET_MESSAGE_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


def listen(config: GatewayConfig) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host.strip("[]"), config.port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class GatewayThread:
    def __init__(
        self,
        config: GatewayConfig,
        listener: socket.socket,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        pages: "BrokerPages | None" = None,
    ) -> None:
        """`pages` are those of the broker in this process, if there is one."""
        self._listener = listener
        self.host, self.port = listener.getsockname()[:2]
        self._config = replace(config, port=self.port)
        self._loop_factory = loop_factory
        self._pages = pages
        self._thread = threading.Thread(target=self._run, name="headwater-gateway", daemon=True)
        self._is_ready_or_failed = threading.Event()
        self._stop_asked = threading.Event()
        self._server: uvicorn.Server | None = None
        self.failure: BaseException | None = None
        """Why it does not serve, if it does not."""

    def start(self) -> None:
        """Return at once."""
        self._thread.start()

    def wait_until_ready(self) -> None:
        """Raises what kept it from starting."""
        if not self._is_ready_or_failed.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the gateway did not start within {START_TIMEOUT_S:.0f} s")
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Answer requests that were begun, and return when the thread has ended."""
        self._stop_asked.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)
        self._listener.close()
        if self._thread.is_alive():
            log.warning("gateway_stop_timeout seconds=%d", STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self.failure = error
            log.error("gateway_failed", exc_info=error)
        finally:
            self._is_ready_or_failed.set()

    async def _serve(self) -> None:
        # Half a second of imports: a broker in this process has begun to serve meanwhile.
        import uvicorn

        from headwater.gateway.app import running_app
        from headwater.gateway.http.protocol import BoundedHttpProtocol, BoundedSocketProtocol

        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        async with running_app(self._config, self._pages) as app:
            server = uvicorn.Server(
                uvicorn.Config(
                    app,
                    http=BoundedHttpProtocol,
                    ws=BoundedSocketProtocol,
                    ws_max_size=MAX_SOCKET_MESSAGE_BYTES,
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    server_header=False,
                    proxy_headers=False,
                    limit_concurrency=self._config.max_connections,
                    timeout_keep_alive=KEEP_ALIVE_S,
                    timeout_graceful_shutdown=GRACE_S,
                )
            )
            self._server = server
            serving = asyncio.ensure_future(server.serve(sockets=[self._listener]))
            while not (server.started or serving.done()):  # noqa: ASYNC110 (uvicorn has no event for it)
                await asyncio.sleep(START_POLL_S)
            if self._stop_asked.is_set():
                server.should_exit = True
            self._is_ready_or_failed.set()
            await serving
