"""Requests with an idempotency key: each slot settles those that came meanwhile together, one group after the other."""

import asyncio
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem, bad_request, too_busy
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.records.idempotency_slot import (
    MEMO_TOPIC,
    REMEMBERED_MS,
    SLOTS,
    Asked,
    MemoSlot,
    Settled,
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


class Memos:
    def __init__(self, config: GatewayConfig, admin: Admin) -> None:
        self._admin = admin
        self._pool = ThreadPoolExecutor(SLOTS, thread_name_prefix="gateway-memos")
        self._slots = [MemoSlot(config, index) for index in range(SLOTS)]
        self._waiting: list[deque[tuple[Asked, asyncio.Future[Settled]]]] = [deque() for _ in range(SLOTS)]
        self._tasks: list[asyncio.Task[None] | None] = [None] * SLOTS
        self._has_topic = False
        self._topic_lock = asyncio.Lock()

    async def write_once(self, asked: Asked) -> Written:
        """Write the records, or give the answer of the time when they were written. All of them, or none.

        Raises Problem."""
        if not (0 < len(asked.key) <= MAX_KEY_CHARS and asked.key.isascii() and asked.key.isprintable()):
            raise bad_request(f"An Idempotency-Key has 1 to {MAX_KEY_CHARS} characters of ASCII.")
        await self._ensure_topic()
        slot = zlib.crc32(asked.key.encode()) % SLOTS
        waiting = self._waiting[slot]
        if len(waiting) >= MAX_WAITING:
            raise too_busy("Too many requests with an Idempotency-Key wait. Try it again in a moment.")
        done: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        waiting.append((asked, done))
        task = self._tasks[slot]
        if task is None or task.done():
            self._tasks[slot] = asyncio.create_task(self._run(slot), name=f"memo-slot-{slot}")
        settled = await done
        if isinstance(settled, Problem):
            raise settled
        return settled

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
            try:
                asked = [each for each, _ in group]
                settled = await loop.run_in_executor(self._pool, self._slots[slot].settle, asked)
            except Exception as error:
                for _, done in group:
                    if not done.done():
                        done.set_exception(error)
                continue
            for (_, done), outcome in zip(group, settled, strict=True):
                if not done.done():
                    done.set_result(outcome)

    async def _ensure_topic(self) -> None:
        async with self._topic_lock:
            if self._has_topic:
                return
            if MEMO_TOPIC not in (await self._admin.metadata()).topics:
                try:
                    await self._admin.create_topic(MEMO_TOPIC, SLOTS, config=TOPIC_CONFIG)
                except Problem as problem:
                    if problem.status != 409:  # another gateway was faster
                        raise
            self._has_topic = True


def _next_group(
    waiting: "deque[tuple[Asked, asyncio.Future[Settled]]]",
) -> "list[tuple[Asked, asyncio.Future[Settled]]]":
    """Those that wait, up to the second use of a key: it must see the memo of the first."""
    group: list[tuple[Asked, asyncio.Future[Settled]]] = []
    keys: set[str] = set()
    while waiting and len(group) < MAX_GROUP and waiting[0][0].key not in keys:
        group.append(waiting.popleft())
        keys.add(group[-1][0].key)
    return group
