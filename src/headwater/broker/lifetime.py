"""How long a broker lives: until it is stopped, or until something fails that it cannot go on without.

It exists before any part of the broker, because parts run tasks and report failures while others are still being built.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from headwater.logs.events import log_event

T = TypeVar("T")


class Lifetime:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """The first one."""
        return self._failure

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that belongs to the broker: it is cancelled at the stop, and its failure is the broker's."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def fail(self, error: BaseException) -> None:
        """The broker cannot go on: stop, and let the process say why."""
        if self._failure is None:
            self._failure = error
            log_event("broker_failed", logging.ERROR, error=f"{type(error).__name__}: {error}")
            self._ended.set()

    async def unless_failed(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns. If the broker fails meanwhile, `work` is cancelled and the failure is raised: `work` may
        wait for what never happens then."""
        working = asyncio.create_task(work)
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait((working, ended), return_when=asyncio.FIRST_COMPLETED)
            if self._failure is not None:
                raise self._failure
            return await working
        finally:
            for task in (working, ended):
                task.cancel()
            await asyncio.gather(working, ended, return_exceptions=True)

    async def cancel_tasks(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def end(self) -> None:
        self._ended.set()

    async def wait(self) -> None:
        """Return when it has ended. Raises the failure, if there is one."""
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
