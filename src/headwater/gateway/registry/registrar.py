"""The registry as the gateway has it: the state, kept up by following the log, and changes that are decided, logged and
read back before they are answered."""

import asyncio
import contextlib
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import OffsetSpec

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import too_busy, unavailable
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.errors import ClusterNotReady, TopicExists, TopicNotFound
from headwater.gateway.kafka.until_ready import retry_until_ready
from headwater.gateway.registry.schema_log import TOPIC_CONFIG, SchemaLog
from headwater.schemas.contexts import context_of
from headwater.schemas.event_records import TOPIC
from headwater.schemas.events import Event
from headwater.schemas.parsed import Parsed, parse
from headwater.schemas.refusal import SchemaRefused, invalid_schema
from headwater.schemas.registry import Registry, Version
from headwater.schemas.schema import InvalidSchema, Resolved

TRIES = 10
MAX_WAITING = 200
"""Changes that wait for one another."""
MAX_PARSED = 256
CATCH_UP_S = 10.0
LEADER_S = 8.0
"""How long a topic may be without a leader: in a cluster a new one is, for a moment, and one whose leader has died."""
MAX_PAUSE_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")


class Registrar:
    def __init__(self, config: GatewayConfig, admin: Admin, threads: CallThreads) -> None:
        self._admin = admin
        self._threads = threads
        self.registry = Registry()
        self._log = SchemaLog(config)
        self._position = 0
        self._moved = asyncio.Event()
        self._changing = asyncio.Lock()
        self._waiting = 0
        self._has_topic = False
        self._parsed: OrderedDict[bytes, Parsed] = OrderedDict()
        self._computing = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1, thread_name_prefix="registry")

        def post(call: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(call)

        def follow(events: Sequence[Event], position: int) -> None:
            post(lambda: self._followed(events, position))

        following = loop.run_in_executor(pool, self._log.follow, follow, lambda: post(self._restarted))
        try:
            yield
        finally:
            self._log.stop()
            await asyncio.wait([following])
            pool.shutdown(wait=False)
            await asyncio.to_thread(self._log.disown)

    def _followed(self, events: Sequence[Event], position: int) -> None:
        for event in events:
            self.registry.apply(event)
        self._position = position
        self._moved.set()
        self._moved = asyncio.Event()

    def _restarted(self) -> None:
        self.registry = Registry()
        self._position = 0

    async def catch_up(self, *, to_the_end: bool = False) -> None:
        """Everything that was committed before this was called is known when it returns; with `to_the_end`, also how
        everything ended that was written before. Raises Problem, KafkaFailure."""
        if not self._has_topic:
            self._has_topic = TOPIC in (await self._admin.metadata()).topics
            if not self._has_topic:
                return
            self._log.wake()
        try:
            end = await retry_until_ready(lambda: self._end(committed=not to_the_end), LEADER_S)
        except ClusterNotReady:
            self._has_topic = False
            raise
        try:
            async with asyncio.timeout(CATCH_UP_S):
                while self._position < end:
                    await self._moved.wait()
        except TimeoutError:
            raise unavailable(f"The topic {TOPIC} could not be read in time.") from None

    async def _end(self, committed: bool) -> int:
        """Raises ClusterNotReady if the topic has no leader that the broker knows of, and other failures."""
        partition = (TOPIC, 0)
        try:
            ends = await self._admin.offsets([partition], OffsetSpec.latest(), committed=committed, topic=TOPIC)
        except TopicNotFound:
            ends = {}
        if partition not in ends:
            raise ClusterNotReady(f"No node leads the topic {TOPIC} now.")
        return ends[partition]

    async def change(self, decide: Callable[[], Awaitable[tuple[T, Sequence[Event]]]]) -> T:
        """Decide on the newest state, write what was decided, and wait until it was read back. `decide` may be called
        again when another gateway wrote first. Raises what it raises, Problem and KafkaFailure."""
        if self._waiting >= MAX_WAITING:
            raise too_busy("Too many changes of schemas wait. Try it again in a moment.")
        self._waiting += 1
        try:
            async with self._changing:
                return await self._change(decide)
        finally:
            self._waiting -= 1

    async def _change(self, decide: Callable[[], Awaitable[tuple[T, Sequence[Event]]]]) -> T:
        reason = ""
        for _ in range(TRIES):
            try:
                await self._threads.run(self._log.own)
                await self.catch_up(to_the_end=True)
                result, events = await decide()
                if events:
                    await self._ensure_topic()
                    await self._threads.run(self._log.append, events)
                    await self.catch_up(to_the_end=True)
                return result
            except KafkaException as error:
                reason = str(error.args[0])
                await self._threads.run(self._log.disown)
                await asyncio.sleep(random.uniform(0, MAX_PAUSE_S))
            except asyncio.CancelledError:
                self._log.disown()  # it is not known how far it came
                raise
        raise unavailable(f"The topic {TOPIC} could not be written: {reason}.")

    async def _ensure_topic(self) -> None:
        if self._has_topic:
            return
        with contextlib.suppress(TopicExists):
            await self._admin.create_topic(TOPIC, 1, config=TOPIC_CONFIG)
        self._has_topic = True
        self._log.wake()

    async def parsed(self, resolved: Resolved) -> Parsed:
        """Raises SchemaRefused."""
        key = resolved.fingerprint
        found = self._parsed.get(key)
        if found is None:
            try:
                found = await self.compute(parse, resolved)
            except InvalidSchema as error:
                raise invalid_schema(str(error)) from None
            self._parsed[key] = found
            if len(self._parsed) > MAX_PARSED:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(key)
        return found

    async def compute(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One at a time: a hostile schema takes seconds, and the parser of .proto files has global state."""
        async with self._computing:
            return await self._threads.run(call, *args, **kwargs)

    async def read(self, look: Callable[[Registry], T]) -> T:
        """What is known now; or, if that is nothing, what is known after a look at the end of the log."""
        try:
            return look(self.registry)
        except SchemaRefused:
            await self.catch_up()
            return look(self.registry)

    async def parsed_version(self, version: Version) -> Parsed:
        return await self.parsed(self.registry.resolve(version.schema, context_of(version.subject)))
