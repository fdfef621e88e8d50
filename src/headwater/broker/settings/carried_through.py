"""Changes that go on when the request that asked for them is gone."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def carried_through(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """What the metadata says and what is known here would differ if a change ended between the two, because the client
    that asked for it has gone."""

    @wraps(change)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        task = asyncio.get_running_loop().create_task(change(*args, **kwargs))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the request may be gone
        return await asyncio.shield(task)

    return run
