"""The partitions that one request creates and deletes, against the limit of its client (KIP-599).

Newer versions of an API are strict: what comes when the client has to wait is refused, topic by topic. Older versions
cannot say so: all of it is done, and the client waits afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from headwater.broker.quotas.request_usage import RequestUsage
from headwater.model.errors import RequestError
from headwater.security.quota_entities import QuotaLimit


class MutationQuota:
    def __init__(self, usage: RequestUsage | None, limit: QuotaLimit | None, *, is_strict: bool) -> None:
        self._usage = usage
        self._limit = limit
        self._is_strict = is_strict

    @classmethod
    def of(cls, usage: RequestUsage | None, *, is_strict: bool) -> Self:
        """Of a request that has `usage`: None if nothing limits its client."""
        return cls(usage, usage.mutation_limit if usage is not None else None, is_strict=is_strict)

    @property
    def may_refuse(self) -> bool:
        """A change that could not be done anyway is to be refused for that first, as in Kafka."""
        return self._is_strict and self._limit is not None

    @contextmanager
    def admitted(self, partitions: int) -> Iterator[None]:
        """Around a change, which is not counted if it fails. Raises RequestError if the client has to wait first."""
        usage, limit = self._usage, self._limit
        if usage is None or limit is None:
            yield
            return
        if not self._is_strict:
            yield
            usage.charge_mutations(partitions, limit)
            return
        usage.admit_mutations(partitions, limit)
        try:
            yield
        except RequestError:
            usage.take_back_mutations(partitions, limit)
            raise
