"""Replies of a shard to whoever waits for them."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from headwater.model.errors import ErrorCode, RequestError


class Reply(Protocol):
    @property
    def to(self) -> object: ...

    @property
    def answer(self) -> object: ...


def give(replies: Sequence[Reply], error: RequestError | None) -> None:
    """Answer; or, with an error, send everyone to look for the coordinator again."""
    for reply in replies:
        waiting = reply.to
        assert isinstance(waiting, asyncio.Future), "who waits here waits for a future"
        if waiting.done():
            continue
        if error is None:
            waiting.set_result(reply.answer)
        else:
            waiting.set_exception(RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
