"""The members of one etcd cluster as one client: which member is asked, for how long, and when the next one is.

All calls go to one member until it fails, times out, or its caller was cancelled; then to the next. Calls that may be
repeated are, within ASK_S. The others go to one member only: to the next one only if it is certain that the member
before did not get the call.

At most MAX_UNDER_WAY calls are under way, the others wait here: a member's time runs from when it was asked, so a burst
of calls, as when many partitions change their leaders, is not mistaken for a slow member.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

from headwater.metadata.etcd.member import AnswerT, EtcdMember, Method, NoAnswer, QuestionT
from headwater.metadata.etcd.url import EtcdAddress
from headwater.metadata.store import Unavailable, Unknown

ASK_S: Final = 8.0
"""Longer than an election takes, so that a reader does not notice one."""
MEMBER_ASK_S: Final = 1.5
MEMBER_TELL_S: Final = 3.0
MAX_UNDER_WAY: Final = 64
MAX_WAITING: Final = 10_000
MAX_WAIT_S: Final = 10.0
PAUSE_S: Final = 0.05
"""Between a member that failed and the next."""


class EtcdClient:
    """Made and used on one event loop."""

    def __init__(self, address: EtcdAddress) -> None:
        self._address = address
        self._members = [EtcdMember(endpoint, address) for endpoint in address.endpoints]
        self._current = 0
        self._slots = asyncio.Semaphore(MAX_UNDER_WAY)
        self._waiting = 0
        self.is_closed = False

    def __str__(self) -> str:
        return str(self._address)

    @property
    def member(self) -> EtcdMember:
        return self._members[self._current]

    def rotate(self, failed: EtcdMember) -> None:
        """Go on with the next member, unless another call that failed has seen to it already."""
        if failed is self.member:
            self._current = (self._current + 1) % len(self._members)

    async def ask(self, method: Method[QuestionT, AnswerT], question: QuestionT) -> AnswerT:
        """For what may be repeated. Raises Unavailable, or what the member raised that answered."""
        async with self._slot():
            return await self._ask(method, question)

    async def tell_once(self, method: Method[QuestionT, AnswerT], question: QuestionT) -> AnswerT:
        """For what must not happen twice. Raises Unavailable when it did not happen, Unknown when it may have."""
        async with self._slot():
            return await self._tell_once(method, question)

    async def close(self) -> None:
        self.is_closed = True
        await asyncio.gather(*(member.close() for member in self._members))

    async def _ask(self, method: Method[QuestionT, AnswerT], question: QuestionT) -> AnswerT:
        deadline = time.monotonic() + ASK_S
        while True:
            member = self._open_member()
            try:
                return await member.ask(method, question, MEMBER_ASK_S)
            except NoAnswer as error:
                self.rotate(member)
                if time.monotonic() >= deadline:
                    raise Unavailable(f"{self} cannot be reached: {error}") from error
            except asyncio.CancelledError:
                self.rotate(member)
                raise
            await asyncio.sleep(PAUSE_S)

    async def _tell_once(self, method: Method[QuestionT, AnswerT], question: QuestionT) -> AnswerT:
        failure: NoAnswer | None = None
        for _ in self._members:
            member = self._open_member()
            try:
                await member.connect()
                return await member.ask(method, question, MEMBER_TELL_S)
            except NoAnswer as error:
                self.rotate(member)
                if error.is_sent:
                    raise Unknown(f"{self}: unclear whether the change was kept: {error}") from error
                failure = error
            except asyncio.CancelledError:
                self.rotate(member)
                raise
        raise Unavailable(f"{self} cannot be reached: {failure}") from failure

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING:
            raise Unavailable(f"{self}: {MAX_WAITING} calls are waiting already")
        self._waiting += 1
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable(f"{self}: the calls before this one took more than {MAX_WAIT_S} s") from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    def _open_member(self) -> EtcdMember:
        if self.is_closed:
            raise Unavailable(f"the connection to {self} is closed")
        return self.member
