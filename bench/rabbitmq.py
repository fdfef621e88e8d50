"""A real RabbitMQ, one node as Debian packages it, with quorum queues: what people use there when records must not be
lost.

The node has its own name, data, logs, cookie and epmd, all on free ports of the loopback interface, and runs as the
user who runs the bench. A quorum queue syncs its log to disk before a publisher's confirm; an acknowledgement goes
through the same log, and no confirmation says when it is there.

The client is pika. A consumer acknowledges all that it was given at a time with one frame: less work could not be asked
of RabbitMQ."""

import os
import shutil
import subprocess
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import pika
from bench.drain import IDLE_WAIT_S, Consumer, Desk, number_in, payload
from bench.process import BrokerProcess
from pika.channel import Channel
from pika.spec import Basic

from headwater.transport.ports import free_port

SCRIPTS = Path("/usr/lib/rabbitmq/bin")
GREETING = b"AMQP\x00\x00\x09\x01"
PREFETCH = 1000
"""Records that a consumer may hold."""
MAX_UNCONFIRMED = 2000
STOP_TIMEOUT_S = 20.0
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


class RabbitMQServer:
    """A running RabbitMQ; `process` is the node, for CPU figures."""

    name = "rabbitmq"

    def __init__(self) -> None:
        if not (SCRIPTS / "rabbitmq-server").exists():
            raise RuntimeError("RabbitMQ is not installed (apt-get install rabbitmq-server)")
        self._folder = Path(tempfile.mkdtemp(prefix="rabbitmq-bench-"))
        self._port, self._epmd_port = free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{self._port}"
        self.consume: Consumer = consume
        self._sent = 0
        command = [str(SCRIPTS / "rabbitmq-server")]
        output = self._folder / "output.log"
        self.process = BrokerProcess(command, self.address, output, GREETING, self._environment())

    def start(self) -> None:
        # The node would start a daemon that outlives it: this one ends with the bench.
        command = ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        self._epmd = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.process.start()
            self.process.wait_until_answering()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.stop()
        if self._epmd is not None:
            self._epmd.terminate()
            self._epmd.wait(STOP_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self, queue: str) -> None:
        with pika.BlockingConnection(_parameters(self.address)) as connection:
            arguments = {"x-queue-type": "quorum"}
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)

    def fill(self, queue: str, records: int) -> None:
        _publish(self.address, queue, range(self._sent, self._sent + records))
        self._sent += records

    def nudge(self, queue: str) -> int:
        return 0

    def left(self, queue: str) -> int:
        """All consumers are gone, so that nothing is with one of them."""
        with pika.BlockingConnection(_parameters(self.address)) as connection:
            found = connection.channel().queue_declare(queue, passive=True)
            count: int = found.method.message_count
            return count

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),  # the cookie lies here
            "RUNNING_UNDER_SYSTEMD": "true",  # no shell in between: a signal reaches the node
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "logs"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "no-environment"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "no-config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "enabled-plugins"),
        }


def consume(address: str, queue: str, desk: Desk) -> None:
    numbers: list[int] = []
    tag = 0

    def take(_channel: object, method: Basic.Deliver, _properties: object, body: bytes) -> None:
        nonlocal tag
        numbers.append(number_in(body))
        tag = method.delivery_tag

    with pika.BlockingConnection(_parameters(address)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        desk.ready()
        channel.basic_consume(queue, take)
        while not desk.is_drained():
            connection.process_data_events(IDLE_WAIT_S)
            if numbers:
                channel.basic_ack(tag, multiple=True)
                desk.took(numbers)
                numbers.clear()
        channel.basic_qos(prefetch_count=PREFETCH)  # answered after the acknowledgements before it were taken
        desk.finish()


def _publish(address: str, queue: str, numbers: range) -> None:
    """Send a record for each number, at most `MAX_UNCONFIRMED` of them without an answer, and wait for all answers."""
    unconfirmed: set[int] = set()
    left = iter(numbers)
    channels: list[Channel] = []
    failures: list[BaseException] = []

    def opened(channel: Channel) -> None:
        channels.append(channel)
        channel.confirm_delivery(lambda frame: confirmed(channel, frame.method), callback=lambda _: send(channel))

    def send(channel: Channel) -> None:
        for number in islice(left, MAX_UNCONFIRMED - len(unconfirmed)):
            channel.basic_publish("", queue, payload(number), PERSISTENT)
            unconfirmed.add(number - numbers.start + 1)

    def confirmed(channel: Channel, method: Basic.Ack | Basic.Nack) -> None:
        if isinstance(method, Basic.Nack):
            failures.append(RuntimeError("RabbitMQ refused a record"))
        tags = [tag for tag in unconfirmed if tag <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        unconfirmed.difference_update(tags)
        if len(unconfirmed) <= MAX_UNCONFIRMED // 2:
            send(channel)
        if not unconfirmed or failures:
            connection.close()

    def closed(_connection: object, error: BaseException) -> None:
        if unconfirmed or not channels:
            failures.append(error)
        connection.ioloop.stop()

    connection: Any = pika.SelectConnection(
        _parameters(address),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
        on_open_error_callback=closed,
        on_close_callback=closed,
    )
    connection.ioloop.start()
    if failures:
        raise failures[0]


def _parameters(address: str) -> pika.ConnectionParameters:
    host, port = address.rsplit(":", 1)
    return pika.ConnectionParameters(host, int(port), heartbeat=0)
