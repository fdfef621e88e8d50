"""`headwater.testing.Broker`: a real broker, quickly, without a trace."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.broker.settings.broker_config import ConfigError
from headwater.testing import Broker
from tests.support.eventually import eventually

BOTH = pytest.mark.parametrize("is_process", [False, True], ids=["thread", "process"])


def produce(broker: Broker, value: bytes, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": False})
    outcome = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(60) == 0
    assert outcome == [None]


def consumed(broker: Broker, topic: str = "t") -> list[bytes]:
    settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                return values
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
    finally:
        consumer.close()


@BOTH
def test_what_is_written_can_be_read(is_process: bool) -> None:
    with Broker(subprocess=is_process) as broker:
        produce(broker, b"hello")
        assert consumed(broker) == [b"hello"]


@BOTH
def test_a_restart_keeps_the_port_and_the_data(is_process: bool) -> None:
    with Broker(subprocess=is_process) as broker:
        before = broker.bootstrap
        produce(broker, b"one")
        broker.restart()
        assert broker.bootstrap == before
        produce(broker, b"two")
        assert consumed(broker) == [b"one", b"two"]


@BOTH
def test_nothing_is_left_behind(is_process: bool) -> None:
    threads = set(threading.enumerate())
    with Broker(subprocess=is_process) as broker:
        data_dir = broker.data_dir
        pid = broker.pid
        assert data_dir.is_dir()
    assert not data_dir.parent.exists()
    assert not broker.is_running
    assert not is_process or not psutil.pid_exists(pid)
    assert set(threading.enumerate()) <= threads


@BOTH
def test_a_given_data_directory_stays(tmp_path: Path, is_process: bool) -> None:
    with Broker(subprocess=is_process, data_dir=tmp_path / "mine") as broker:
        produce(broker, b"kept")
    with Broker(subprocess=is_process, data_dir=tmp_path / "mine") as broker:
        assert consumed(broker) == [b"kept"]


def test_brokers_beside_each_other_share_nothing() -> None:
    with Broker() as one, Broker() as other:
        produce(one, b"one")
        produce(other, b"other")
        assert (consumed(one), consumed(other)) == ([b"one"], [b"other"])


def test_a_killed_process_starts_again_with_what_it_acknowledged() -> None:
    with Broker(subprocess=True, durability="sync") as broker:
        produce(broker, b"acknowledged")
        first = broker.pid
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.pid != first
        assert consumed(broker) == [b"acknowledged"]
        assert "started" in broker.log


def test_a_thread_cannot_be_killed() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="only a running Broker"):
        broker.kill()


@BOTH
def test_configuration_reaches_the_broker(is_process: bool) -> None:
    settings: dict[str, Any] = {"auto_create_topics": False, "topic": {"retention.ms": "1000"}, "idle_timeout_s": 30.5}
    with Broker(subprocess=is_process, **settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1000})
        outcome = []
        producer.produce("t", b"x", on_delivery=lambda error, _: outcome.append(error.name()))
        producer.flush(60)
        assert outcome in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"], ["_MSG_TIMED_OUT"])


def test_a_mistake_in_the_configuration_is_said_by_either() -> None:
    with pytest.raises(ConfigError, match="no_such_setting"):
        Broker(no_such_setting=1).start()
    with pytest.raises(RuntimeError, match="no_such_setting"):
        Broker(subprocess=True, no_such_setting=1).start()


def test_a_broker_starts_in_well_under_half_a_second() -> None:
    with Broker():
        pass  # the imports, once
    began = time.process_time()
    with Broker():
        computed_s = time.process_time() - began
    assert computed_s < 0.5, "of its own: other processes may have the processor meanwhile"


def test_a_process_ends_when_the_one_that_started_it_is_killed() -> None:
    code = (
        "import time; from headwater.testing import Broker\n"
        "broker = Broker(subprocess=True).start(); print(broker.pid, broker.data_dir, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, data_dir = parent.stdout.readline().split()
        os.kill(parent.pid, signal.SIGKILL)
    eventually(
        lambda: not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE,
        "the process has ended",
    )
    subprocess.run(["rm", "-rf", str(Path(data_dir).parent)], check=True)
