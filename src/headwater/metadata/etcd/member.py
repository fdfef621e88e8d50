"""gRPC to one member of an etcd cluster: its channel, its login, and what a failure of a call means.

A failure is one of three things, and the caller needs to know which:

    Refused     etcd's own answer: the request was looked at and had no effect
    NoAnswer    the member gave none; `is_sent` says whether the request may have taken effect nevertheless
    cancelled   by the caller

Every request carries `hasleader`: a member that knows of no leader says so at once, before it looks at the request.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from headwater.metadata.etcd import etcd_pb2 as pb
from headwater.metadata.etcd.url import EtcdAddress
from headwater.metadata.store import Unavailable

CONNECT_S: Final = 1.0
LOGIN_S: Final = 2.0
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
MAX_SHOWN_CHARS: Final = 300
"""How much of a failure's text an error message repeats."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # No call is sent twice behind our back, and none takes a detour over a web proxy.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # A silent member is noticed under a watch that has nothing to say. etcd cuts off who pings more than every 5 s.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Two stores in one process do not share a connection, and so not its troubles.
    ("grpc.use_local_subchannel_pool", 1),
)
_HAS_LEADER: Final = ("hasleader", "true")
_ANSWERS: Final = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_STALE_LOGIN: Final = ("invalid auth token", "revision of auth store is old")

QuestionT = TypeVar("QuestionT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[QuestionT, AnswerT]):
    path: str
    question: type[QuestionT]
    answer: type[AnswerT]


RANGE: Final = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN: Final = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
LEASE_GRANT: Final = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE: Final = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE: Final = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
WATCH: Final = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
AUTHENTICATE: Final = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)


class Refused(Unavailable):
    """etcd answered, and the answer is no."""

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.is_not_found = code is grpc.StatusCode.NOT_FOUND


class AnswerTooLarge(Unavailable):
    """The answer has more than MAX_ANSWER_BYTES: ask for less."""


class NoAnswer(Exception):
    """This member is of no use now; another may be."""

    def __init__(self, message: str, is_sent: bool) -> None:
        super().__init__(message)
        self.is_sent = is_sent


class _StaleLogin(Exception):
    """The member no longer knows our token. It has not looked at the request."""


class EtcdMember:
    """Made and used on one event loop."""

    def __init__(self, endpoint: str, address: EtcdAddress) -> None:
        self.endpoint = endpoint
        self._user, self._password = address.user, address.password
        self._channel = _open_channel(endpoint, address)
        self._token: str | None = None if address.user else ""
        self._login = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Calls under way end with NoAnswer."""
        self._is_closed = True
        await self._channel.close()

    async def connect(self) -> None:
        """Raises NoAnswer unless there is a connection. After this a request that fails may have been sent."""
        try:
            async with asyncio.timeout(CONNECT_S):
                state = self._channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                        raise NoAnswer(f"{self.endpoint}: no connection", is_sent=False)
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            raise NoAnswer(f"{self.endpoint}: no connection within {CONNECT_S} s", is_sent=False) from None

    async def ask(self, method: Method[QuestionT, AnswerT], question: QuestionT, timeout_s: float) -> AnswerT:
        """Raises Refused, AnswerTooLarge, NoAnswer. What was refused for its old token is sent again, once."""
        metadata = await self._metadata()
        try:
            return await self._call(method, question, timeout_s, metadata)
        except _StaleLogin:
            self._token = None
        metadata = await self._metadata()
        try:
            return await self._call(method, question, timeout_s, metadata)
        except _StaleLogin as error:
            self._token = None
            raise NoAnswer(str(error), is_sent=False) from error

    @contextlib.asynccontextmanager
    async def stream(
        self, method: Method[QuestionT, AnswerT], timeout_s: float | None = None
    ) -> AsyncIterator["EtcdStream[QuestionT, AnswerT]"]:
        """Both ways, until the block ends; with `timeout_s`, for no longer than that."""
        metadata = await self._metadata()
        calls: grpc.aio.StreamStreamMultiCallable[QuestionT, AnswerT] = self._channel.stream_stream(
            method.path, method.question.SerializeToString, method.answer.FromString
        )
        call = calls(timeout=timeout_s, metadata=metadata)
        try:
            yield EtcdStream(self, call)
        except _StaleLogin as error:
            self._token = None
            raise NoAnswer(str(error), is_sent=False) from error
        finally:
            call.cancel()

    async def _call(
        self,
        method: Method[QuestionT, AnswerT],
        question: QuestionT,
        timeout_s: float,
        metadata: tuple[tuple[str, str], ...],
    ) -> AnswerT:
        call = self._channel.unary_unary(method.path, method.question.SerializeToString, method.answer.FromString)
        with self.failures():
            answer: AnswerT = await call(question, timeout=timeout_s, metadata=metadata)
            return answer

    async def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._token is None:
            async with self._login:
                if self._token is None:
                    self._token = await self._authenticate()
        return (_HAS_LEADER, ("token", self._token)) if self._token else (_HAS_LEADER,)

    async def _authenticate(self) -> str:
        question = pb.AuthenticateRequest(name=self._user, password=self._password)
        try:
            return (await self._call(AUTHENTICATE, question, LOGIN_S, (_HAS_LEADER,))).token
        except Refused as error:
            if "authentication is not enabled" in str(error):
                return ""
            raise
        except (NoAnswer, _StaleLogin) as error:
            raise NoAnswer(str(error), is_sent=False) from error

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn what gRPC raises into what it means."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._meaning(error) from error
        except asyncio.CancelledError:
            # gRPC cancels the calls of a channel that is closed. The task itself was not cancelled then.
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise NoAnswer(f"{self.endpoint}: closed", is_sent=True) from None
            raise
        except grpc.aio.UsageError as error:
            # A closed channel refuses new calls.
            raise NoAnswer(f"{self.endpoint}: closed", is_sent=False) from error

    def _meaning(self, error: grpc.aio.AioRpcError) -> Exception:
        code, details = error.code(), error.details() or ""
        message = f"{self.endpoint}: {details[:MAX_SHOWN_CHARS] or code.name}"
        if "larger than max" in details:
            return AnswerTooLarge(message)
        # The same codes come from HTTP/2 and from gRPC itself; only with these words are they etcd's.
        if not details.startswith("etcdserver: "):
            return NoAnswer(message, is_sent=True)
        if any(words in details for words in _STALE_LOGIN):
            return _StaleLogin(message)
        if code in _ANSWERS:
            return Refused(message, code)
        return NoAnswer(message, is_sent=details != "etcdserver: no leader")


class EtcdStream(Generic[QuestionT, AnswerT]):
    def __init__(self, member: EtcdMember, call: "grpc.aio.StreamStreamCall[QuestionT, AnswerT]") -> None:
        self._member = member
        self._call = call

    async def send(self, question: QuestionT) -> None:
        # A call that has ended says why when it is read.
        with self._member.failures(), contextlib.suppress(asyncio.InvalidStateError):
            await self._call.write(question)

    async def receive(self) -> AnswerT:
        with self._member.failures():
            answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise NoAnswer(f"{self._member.endpoint}: the stream ended", is_sent=True)
        return cast(AnswerT, answer)


def _open_channel(endpoint: str, address: EtcdAddress) -> grpc.aio.Channel:
    if address.tls is None:
        return grpc.aio.insecure_channel(endpoint, _OPTIONS)
    tls = grpc.ssl_channel_credentials(address.tls.ca, address.tls.key, address.tls.certificate)
    return grpc.aio.secure_channel(endpoint, tls, _OPTIONS)
