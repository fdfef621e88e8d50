"""Clients that read, write, and compare and set one key of a metadata store while servers fail, and note what they saw.

The history is for `is_linearizable`: a call without an outcome is in it as one that may have happened at any time, one
that certainly had no effect is not in it.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.testing.oracles.linearizability import (
    MAX_CALLS,
    RegisterCall,
    RegisterCompareAndSet,
    RegisterRead,
    RegisterWrite,
    Timed,
)

KEY: Final = "register"
MAX_PAUSE_S: Final = 0.05
PATIENCE_S: Final = 60.0


class RegisterLoad:
    """One worker for each URL. Begin with `prepare`, and run `work` for each worker as a task until `end`."""

    def __init__(self, urls: Sequence[str], seed: int = 0) -> None:
        self._urls = urls
        self._seed = seed
        self.history: list[Timed[RegisterCall]] = []
        self.done = 0
        """Writes that were acknowledged, with or without a comparison."""
        self.unknown = 0
        self._is_over = False
        self._progress = asyncio.Event()

    async def prepare(self) -> None:
        store = await open_metadata(self._urls[0])
        await store.txn([], [Put(KEY, b"0")])
        await store.close()

    async def until_done(self, count: int) -> None:
        """Wait for so many more writes."""
        goal = self.done + count
        async with asyncio.timeout(PATIENCE_S):
            while self.done < goal:
                self._progress.clear()
                await self._progress.wait()

    def end(self) -> None:
        self._is_over = True

    async def work(self, number: int) -> None:
        chance = random.Random(self._seed * 1000 + number)
        store = await open_metadata(self._urls[number])
        calls = 0
        try:
            while not self._is_over and len(self.history) < MAX_CALLS - 2 * len(self._urls):
                calls += 1
                await self._call(store, chance.random(), value=calls * len(self._urls) + number)
                await asyncio.sleep(chance.uniform(0, MAX_PAUSE_S))
        finally:
            await store.close()

    async def _call(self, store: MetaStore, kind: float, value: int) -> None:
        if kind < 0.2:
            await self._write(store, value)
            return
        began = time.monotonic()
        try:
            found = await store.get(KEY)
        except Unavailable:
            return
        assert found is not None, "the register is never deleted"
        seen = int(found.value)
        self.history.append(Timed(RegisterRead(seen), began, time.monotonic()))
        if kind < 0.8:
            await self._compare_and_set(store, seen, found.version, value)

    async def _write(self, store: MetaStore, value: int) -> None:
        began = time.monotonic()
        try:
            await store.txn([], [Put(KEY, str(value).encode())])
        except Unavailable:
            return
        except Unknown:
            self._note_unknown(RegisterWrite(value), began)
            return
        self.history.append(Timed(RegisterWrite(value), began, time.monotonic()))
        self._note_done()

    async def _compare_and_set(self, store: MetaStore, seen: int, version: int, value: int) -> None:
        began = time.monotonic()
        try:
            answer = await store.txn([Is(KEY, version)], [Put(KEY, str(value).encode())])
        except Unavailable:
            return
        except Unknown:
            self._note_unknown(RegisterCompareAndSet(seen, value, None), began)
            return
        self.history.append(Timed(RegisterCompareAndSet(seen, value, answer.ok), began, time.monotonic()))
        if answer.ok:
            self._note_done()

    def _note_done(self) -> None:
        self.done += 1
        self._progress.set()

    def _note_unknown(self, call: RegisterCall, began: float) -> None:
        self.unknown += 1
        self.history.append(Timed(call, began))
