"""A broker in a thread of this process, with its own event loop."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Mapping
from typing import Any

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class BrokerThread:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._thread = threading.Thread(target=self._run, name="headwater-broker", daemon=True)
        self._started_or_failed = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked: asyncio.Event | None = None
        self._address: tuple[str, int] | None = None
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and self._failure is None

    @property
    def pid(self) -> int:
        return os.getpid()

    def start(self) -> tuple[str, int]:
        """Return the address once it is bound; raise what the broker raised if it could not start."""
        self._thread.start()
        if not self._started_or_failed.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S:.0f} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        assert self._address is not None, "a broker that started has an address"
        return self._address

    def stop(self) -> None:
        """Return when the broker has stopped; raise what it failed of, if it did not live until now."""
        assert self._loop is not None and self._stop_asked is not None, "stop comes after start"
        with contextlib.suppress(RuntimeError):  # the loop is closed when the broker failed before
            self._loop.call_soon_threadsafe(self._stop_asked.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        from headwater.cli.runtime import new_event_loop

        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started_or_failed.set()

    async def _serve(self) -> None:
        from headwater.broker.server import Broker
        from headwater.broker.settings.broker_config import BrokerConfig

        broker = await Broker.start(BrokerConfig.load(None, **self._config))
        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        self._address = broker.address
        self._started_or_failed.set()
        stop_asked = asyncio.ensure_future(self._stop_asked.wait())
        stopped = asyncio.ensure_future(broker.wait_stopped())
        try:
            await asyncio.wait((stop_asked, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_asked.cancel()
            await broker.stop()
        await stopped
