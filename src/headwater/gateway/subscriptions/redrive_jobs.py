"""Dead letters sent back on request: one redrive after the other in threads of the gateway, a few at once.

What runs remember of each other lies in the cluster, so that a letter is sent back once, by whichever gateway or
command. A run that is asked to stop ends with its next batch, in order.
"""

import asyncio
import logging
import threading

from confluent_kafka import KafkaException

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem, bad_request, too_busy, unavailable
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.librdkafka_errors import failure_of
from headwater.gateway.kafka.settings import client_settings
from headwater.gateway.redrive.failures import BadFilter, BadTarget, OriginUnknown, RedriveFailed
from headwater.gateway.redrive.tally import RedriveOptions, Tally
from headwater.gateway.subscriptions.bodies import RedriveIn, Redriven

MAX_AT_ONCE = 2
TIMEOUT_S = 300.0
STOP_S = 10.0

log = logging.getLogger(__name__)


class RedriveJobs:
    def __init__(self, config: GatewayConfig, threads: CallThreads) -> None:
        self._config = config
        self._threads = threads
        self._running: dict[asyncio.Future[Tally], threading.Event] = {}
        """The event that ends each."""

    async def run(self, topic: str, request: RedriveIn) -> Redriven:
        """Raises Problem, KafkaFailure."""
        if len(self._running) >= MAX_AT_ONCE:
            raise too_busy(f"{MAX_AT_ONCE} redrives run here at this moment.", 5)
        if "\0" in f"{request.to}{request.filter}":
            raise bad_request("A zero byte is in no filter and in no name.")
        options = RedriveOptions(topic, request.to, request.filter, limit=request.limit, is_dry_run=request.dry_run)
        stop = threading.Event()
        running = asyncio.ensure_future(self._threads.run(self._redrive, options, stop))
        self._running[running] = stop
        running.add_done_callback(self._ended)  # when the thread is free, which may be after the request has ended
        try:
            async with asyncio.timeout(TIMEOUT_S):
                tally = await asyncio.shield(running)
        except TimeoutError:
            raise unavailable(
                f"The redrive took longer than {TIMEOUT_S:.0f} s; another goes on where it was."
            ) from None
        except KafkaException as error:
            raise failure_of(error, topic=request.to or topic) from None
        except RedriveFailed as failure:
            raise _problem(failure) from None
        finally:
            stop.set()
        if tally.may_repeat:
            log.warning("redrive_memory_incomplete topic=%s redriven=%d", topic, tally.redriven)
        return Redriven(
            topic=topic,
            redriven=tally.redriven,
            targets=dict(tally.targets),
            filtered=tally.filtered,
            sent_before=tally.sent_before,
            gone=tally.gone,
            dry_run=request.dry_run,
        )

    async def close(self) -> None:
        """Stop the redrives that run, and wait a moment for them to leave their groups."""
        for stop in self._running.values():
            stop.set()
        if self._running:
            await asyncio.wait(list(self._running), timeout=STOP_S)

    def _redrive(self, options: RedriveOptions, stop: threading.Event) -> Tally:
        from headwater.gateway.redrive.redrive import Redrive

        return Redrive(options, client_settings(self._config), _no_progress, stop.is_set).run()

    def _ended(self, running: "asyncio.Future[Tally]") -> None:
        self._running.pop(running, None)
        if not running.cancelled():
            running.exception()  # the request may have ended: asyncio must not report it as unseen


def _problem(failure: RedriveFailed) -> Problem:
    if isinstance(failure, BadFilter | BadTarget):
        return bad_request(str(failure))
    if isinstance(failure, OriginUnknown):
        return Problem(409, "Origin unknown", f'{failure} Name a topic as "to".')
    return unavailable(str(failure))


def _no_progress(_: Tally) -> None:
    pass
