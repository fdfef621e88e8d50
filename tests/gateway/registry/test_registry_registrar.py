"""A registry whose topic is new, moves or is gone: it waits for a leader for a moment, and then says what is wrong."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.errors import ClusterError, ClusterNotReady, KafkaFailure, TopicNotFound
from headwater.gateway.registry import registrar
from headwater.gateway.registry.registrar import Registrar
from headwater.schemas.event_records import TOPIC

NOT_HEARD_OF = TopicNotFound("The broker has not heard of it.")


class Cluster:
    """Answers where the topic ends with what a test wrote down, and with the last of it again and again."""

    def __init__(self, *answers: dict[tuple[str, int], int] | KafkaFailure) -> None:
        self._answers = list(answers)
        self.has_topic = True

    async def metadata(self) -> Any:
        return SimpleNamespace(topics={TOPIC: None} if self.has_topic else {})

    async def offsets(self, *_: object, **__: object) -> dict[tuple[str, int], int]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KafkaFailure):
            raise answer
        return answer


def registrar_of(cluster: Cluster) -> Registrar:
    admin: Any = cluster
    return Registrar(GatewayConfig("127.0.0.1:9092"), admin, CallThreads(1))


def test_a_topic_that_has_no_leader_yet_is_waited_for() -> None:
    asyncio.run(registrar_of(Cluster({}, NOT_HEARD_OF, {}, {(TOPIC, 0): 0})).catch_up())


def test_a_topic_that_stays_without_a_leader_is_told_and_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrar, "LEADER_S", 0.2)

    async def scenario() -> None:
        cluster = Cluster(NOT_HEARD_OF)
        asked = registrar_of(cluster)
        with pytest.raises(ClusterNotReady):
            await asked.catch_up()
        cluster.has_topic = False  # it was deleted: there is nothing to read
        await asked.catch_up()

    asyncio.run(scenario())


def test_another_trouble_is_told_at_once() -> None:
    with pytest.raises(ClusterError):
        asyncio.run(registrar_of(Cluster(ClusterError("Nobody answered."))).catch_up())
