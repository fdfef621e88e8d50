"""One subscription on its way to its webhook: takes records, sends them as the machine says, and acknowledges them."""

import asyncio
import logging
import random
import time

from headwater.gateway.http.kafka_problems import FAILURES, problem_of
from headwater.gateway.push.machine import Answer, Attempt, PushMachine
from headwater.gateway.push.message import push_request
from headwater.gateway.push.source import Source
from headwater.gateway.push.webhook import Webhook
from headwater.gateway.subscriptions.push_settings import PushSettings

MAX_TAKE_BYTES = 4 * 1024 * 1024
TAKE_WAIT_MS = 5_000
REST_S = 1.0
STOP_S, STOP_STEP_S = 3.0, 0.01
"""How long requests that are under way may take when pushing ends."""

log = logging.getLogger(__name__)


class ReceiverGone(Exception):
    """The receiver wants nothing any more."""


class PushCounts:
    """Of all pumps of a gateway."""

    def __init__(self) -> None:
        self.taken = 0
        self.failed = 0
        self.dead = 0


class Pump:
    def __init__(
        self, subscription: str, settings: PushSettings, source: Source, webhook: Webhook, counts: PushCounts
    ) -> None:
        self.subscription = subscription
        self.last_failure: str | None = None
        self._settings = settings
        self._source = source
        self._webhook = webhook
        self._counts = counts
        self._machine = PushMachine(settings, random.random)
        self._has_room = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._is_stopping = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        return self._machine.window.in_flight

    @property
    def held(self) -> int:
        return len(self._machine.held)

    @property
    def window(self) -> int:
        return self._machine.window.size

    async def run(self) -> None:
        """Until cancelled. Raises ReceiverGone. What is under way may end before it does, for a moment."""
        try:
            async with asyncio.TaskGroup() as tasks:
                lasting = [tasks.create_task(each) for each in (self._source.run(), self._keep(tasks))]
                feeding = tasks.create_task(self._feed(tasks))
                try:
                    await self._is_gone.wait()
                finally:
                    feeding.cancel()
                    await self._stop()
                    for task in lasting:
                        task.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._webhook.close()
        raise ReceiverGone(self.last_failure)

    async def _stop(self) -> None:
        self._is_stopping = True
        for _ in range(int(STOP_S / STOP_STEP_S)):
            if not self.in_flight:
                break
            await asyncio.sleep(STOP_STEP_S)
        self._source.release(self._machine.held)
        await self._source.drain()

    async def _feed(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._has_room.clear()
            room = self._machine.room
            if not room:
                await self._has_room.wait()
                continue
            try:
                deliveries = await self._source.take(room, MAX_TAKE_BYTES, TAKE_WAIT_MS)
            except FAILURES as failure:
                self.last_failure = problem_of(failure).detail
                await asyncio.sleep(REST_S)
                continue
            if deliveries:
                self._machine.add(deliveries)
                self._go_on(tasks)

    def _go_on(self, tasks: asyncio.TaskGroup) -> None:
        """Send what may be sent, and come back when something is due."""
        loop = asyncio.get_running_loop()
        if self._is_stopping:
            return
        for attempt in self._machine.attempts(loop.time()):
            tasks.create_task(self._deliver(attempt, tasks))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self._machine.due_s()
        if due_s is not None:
            self._timer = loop.call_at(due_s, self._go_on, tasks)
        if self._machine.room:
            self._has_room.set()

    async def _deliver(self, attempt: Attempt, tasks: asyncio.TaskGroup) -> None:
        request = push_request(self.subscription, attempt.deliveries, self._settings, int(time.time()))
        outcome = await self._webhook.send(request)
        if outcome.answer is Answer.GONE:
            self._is_stopping = True
            self._is_gone.set()
        acks = self._machine.finished(attempt, outcome, asyncio.get_running_loop().time())
        if acks.accepted:
            self._counts.taken += len(acks.accepted)
            self._source.accept(acks.accepted)
        else:
            self._counts.failed += 1
            self.last_failure = outcome.reason
        if acks.rejected:
            self._counts.dead += len(acks.rejected)
            self._source.reject(acks.rejected)
        self._go_on(tasks)

    async def _keep(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(self._source.keep_every_s)
            try:
                self._machine.drop(await self._source.keep(self._machine.held))
            except FAILURES as failure:
                self.last_failure = problem_of(failure).detail
            self._go_on(tasks)
