"""Requests with an idempotency key: each slot writes the requests that came meanwhile together, one group after the
other."""

import asyncio
import contextlib
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import bad_request, too_busy
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import TopicExists
from headwater.gateway.records.idempotency_slot import (
    MEMO_TOPIC,
    REMEMBERED_MS,
    SLOTS,
    IdempotencySlot,
    KeyedAnswer,
    KeyedRequest,
    Written,
)

MAX_WAITING = 1_000
MAX_GROUP = 100
MAX_KEY_CHARS = 255
TOPIC_CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(REMEMBERED_MS),
    "segment.ms": str(REMEMBERED_MS // 4),
}


class IdempotentRequests:
    def __init__(self, config: GatewayConfig, admin: Admin) -> None:
        self._admin = admin
        self._pool = ThreadPoolExecutor(SLOTS, thread_name_prefix="gateway-memos")
        self._slots = [IdempotencySlot(config, index) for index in range(SLOTS)]
        self._waiting: list[deque[tuple[KeyedRequest, asyncio.Future[KeyedAnswer]]]] = [deque() for _ in range(SLOTS)]
        self._tasks: list[asyncio.Task[None] | None] = [None] * SLOTS
        self._has_topic = False
        self._topic_lock = asyncio.Lock()

    async def write_once(self, request: KeyedRequest) -> Written:
        """Write the records, or repeat the answer if they were written before. All of them, or none.

        Raises Problem, KafkaFailure."""
        if not (0 < len(request.key) <= MAX_KEY_CHARS and request.key.isascii() and request.key.isprintable()):
            raise bad_request(f"An Idempotency-Key has 1 to {MAX_KEY_CHARS} characters of ASCII.")
        await self._ensure_topic()
        slot = zlib.crc32(request.key.encode()) % SLOTS
        waiting = self._waiting[slot]
        if len(waiting) >= MAX_WAITING:
            raise too_busy("Too many requests with an Idempotency-Key wait. Try it again in a moment.")
        done: asyncio.Future[KeyedAnswer] = asyncio.get_running_loop().create_future()
        waiting.append((request, done))
        task = self._tasks[slot]
        if task is None or task.done():
            self._tasks[slot] = asyncio.create_task(self._run(slot), name=f"memo-slot-{slot}")
        answer = await done
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        for slot in self._slots:
            await asyncio.to_thread(slot.close)

    async def _run(self, slot: int) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._waiting[slot]
        while waiting:
            group = _next_group(waiting)
            requests = [request for request, _ in group]
            try:
                answers = await loop.run_in_executor(self._pool, self._slots[slot].write_once, requests)
            except Exception as error:
                for _, done in group:
                    if not done.done():
                        done.set_exception(error)
                continue
            for (_, done), answer in zip(group, answers, strict=True):
                if not done.done():
                    done.set_result(answer)

    async def _ensure_topic(self) -> None:
        async with self._topic_lock:
            if self._has_topic:
                return
            if MEMO_TOPIC not in (await self._admin.metadata()).topics:
                with contextlib.suppress(TopicExists):  # another gateway was faster
                    await self._admin.create_topic(MEMO_TOPIC, SLOTS, config=TOPIC_CONFIG)
            self._has_topic = True


def _next_group(
    waiting: "deque[tuple[KeyedRequest, asyncio.Future[KeyedAnswer]]]",
) -> "list[tuple[KeyedRequest, asyncio.Future[KeyedAnswer]]]":
    """Requests that wait, up to the second use of a key: it must see the memo of the first."""
    group: list[tuple[KeyedRequest, asyncio.Future[KeyedAnswer]]] = []
    keys: set[str] = set()
    while waiting and len(group) < MAX_GROUP and waiting[0][0].key not in keys:
        group.append(waiting.popleft())
        keys.add(group[-1][0].key)
    return group
