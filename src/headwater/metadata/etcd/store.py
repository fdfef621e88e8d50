"""The metadata store in etcd, for clusters. Works with etcd 3.4 and newer.

- A key lies in etcd below the prefix of the URL; a version is its mod_revision, which no other write ever has.
- All reads are linearizable. A transaction is sent once; when its answer is lost the outcome is Unknown.
- A session is a lease. A put into one that has ended fails in etcd as a whole, and is answered like a failed condition.
- A list is read in pages, each current when it was read.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from headwater.metadata.etcd import etcd_pb2 as pb
from headwater.metadata.etcd.client import EtcdClient
from headwater.metadata.etcd.member import RANGE, TXN, AnswerTooLarge, Refused
from headwater.metadata.etcd.session import EtcdSession
from headwater.metadata.etcd.url import EtcdAddress
from headwater.metadata.etcd.watch import EtcdWatch
from headwater.metadata.limits import check_key, check_keys, check_prefix, check_ttl, check_txn
from headwater.metadata.store import KV, Condition, Has, MetaSession, Operation, Put, Resync, Txn, Unavailable

PAGE_KEYS: Final = 1000
PAGE_SHRINKS_BY: Final = 8


class EtcdMetaStore:
    """See `MetaStore`. Open with `open`; close sessions before the store."""

    def __init__(self, client: EtcdClient, prefix: str) -> None:
        self._client = client
        self._root = prefix.encode() + b"/"
        self._sessions: set[EtcdSession] = set()

    @classmethod
    async def open(cls, address: EtcdAddress) -> "EtcdMetaStore":
        """Raises Unavailable when no member answers, or etcd does not let us in."""
        client = EtcdClient(address)
        store = cls(client, address.prefix)
        try:
            await client.ask(RANGE, pb.RangeRequest(key=store._root, keys_only=True))
        except BaseException:
            await client.close()
            raise
        return store

    async def get(self, key: str) -> KV | None:
        check_key(key)
        answer = await self._client.ask(RANGE, pb.RangeRequest(key=self._bytes(key)))
        return KV(key, answer.kvs[0].value, answer.kvs[0].mod_revision) if answer.kvs else None

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        check_keys(keys)
        if not keys:
            return []
        reads = [pb.RequestOp(request_range=pb.RangeRequest(key=self._bytes(key))) for key in keys]
        try:
            answer = await self._client.ask(TXN, pb.TxnRequest(success=reads))
        except AnswerTooLarge:
            return [await self.get(key) for key in keys]
        if len(answer.responses) != len(keys):
            raise Unavailable(f"{self._client} was asked for {len(keys)} keys, and answers for {len(answer.responses)}")
        found = [response.response_range.kvs for response in answer.responses]
        return [
            KV(key, kvs[0].value, kvs[0].mod_revision) if kvs else None for key, kvs in zip(keys, found, strict=True)
        ]

    async def list(self, prefix: str) -> list[KV]:
        check_prefix(prefix)
        first, end = self._range(prefix)
        limit = PAGE_KEYS
        found: list[KV] = []
        while True:
            try:
                page = await self._client.ask(RANGE, pb.RangeRequest(key=first, range_end=end, limit=limit))
            except AnswerTooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // PAGE_SHRINKS_BY)
                continue
            found.extend(
                KV(key, kv.value, kv.mod_revision) for kv in page.kvs if (key := self._name(kv.key)) is not None
            )
            if not page.more:
                return found
            if not page.kvs or page.kvs[-1].key < first:
                raise Unavailable(f"{self._client} says that there are more keys, and gives none")
            first = page.kvs[-1].key + b"\0"

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        check_txn(conditions, operations)
        question = pb.TxnRequest(
            compare=[self._compare(condition) for condition in conditions],
            success=[self._request(operation) for operation in operations],
        )
        if not operations:
            return Txn((await self._client.ask(TXN, question)).succeeded, {})
        try:
            answer = await self._client.tell_once(TXN, question)
        except Refused as error:
            if error.is_not_found:
                return Txn(False, {})
            raise
        if not answer.succeeded:
            return Txn(False, {})
        revision = answer.header.revision
        return Txn(True, {op.key: revision if isinstance(op, Put) else 0 for op in operations})

    async def session(self, ttl_s: float) -> MetaSession:
        """A time to live below MIN_TTL_S is raised to it."""
        check_ttl(ttl_s)
        # No key of the contract begins with "/", so these cannot collide with one.
        session = await EtcdSession.open(self._client, ttl_s, self._root + b"/sessions/", self._sessions.discard)
        self._sessions.add(session)
        return session

    async def watch(self, prefix: str) -> AsyncIterator[set[str] | Resync]:
        check_prefix(prefix)
        if self._client.is_closed:
            raise Unavailable(f"the connection to {self._client} is closed")
        first, end = self._range(prefix)
        hints = EtcdWatch(self._client, first, end, self._name).hints()
        try:
            async for hint in hints:
                yield hint
        finally:
            await hints.aclose()

    async def close(self) -> None:
        """Watches end; sessions that were not closed expire, as if the process had died."""
        if self._client.is_closed:
            return
        keepers = [keeper for session in self._sessions if (keeper := session.abandon()) is not None]
        await asyncio.gather(*keepers, return_exceptions=True)
        await self._client.close()

    def _bytes(self, key: str) -> bytes:
        return self._root + key.encode()

    def _name(self, key: bytes) -> str | None:
        """None for a key that strangers wrote below our prefix, and that could not be read as one of ours."""
        try:
            name = key.removeprefix(self._root).decode("ascii")
            check_key(name)
        except ValueError:
            return None
        return name

    def _range(self, prefix: str) -> tuple[bytes, bytes]:
        """From the prefix to the first key that sorts after all that begin with it: "0" follows "/"."""
        first = self._bytes(prefix)
        return first, first[:-1] + b"0"

    def _compare(self, condition: Condition) -> pb.Compare:
        key = self._bytes(condition.key)
        if isinstance(condition, Has):
            return pb.Compare(key=key, target=pb.Compare.CREATE, result=pb.Compare.GREATER, create_revision=0)
        return pb.Compare(key=key, target=pb.Compare.MOD, result=pb.Compare.EQUAL, mod_revision=condition.version)

    def _request(self, operation: Operation) -> pb.RequestOp:
        key = self._bytes(operation.key)
        if not isinstance(operation, Put):
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
        lease = 0
        if operation.session is not None:
            if not isinstance(operation.session, EtcdSession):
                raise ValueError(f"the session of {operation.key!r} is not one of etcd's")
            lease = operation.session.lease
        return pb.RequestOp(request_put=pb.PutRequest(key=key, value=operation.value, lease=lease))
