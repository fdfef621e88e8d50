"""A real Apache Kafka, one node or several with KRaft, to judge Headwater by.

The jars come from Maven Central; heap, collector and broker settings are those of Kafka's own start script and
`server.properties`, so the comparison is with what people run. The data directory is made fresh and removed."""

import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from bench import maven
from bench.process import BrokerProcess, MeasuredServer

from headwater.transport.ports import free_ports

JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.bootstrap.servers={controllers}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor={replicas}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={min_insync}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={min_insync}
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""


class KafkaServer(MeasuredServer):
    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        try:
            process = new_nodes(folder, [1])[1]
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        super().__init__("kafka", process, folder)


def new_nodes(folder: Path, numbers: Sequence[int], more_properties: str = "") -> dict[int, BrokerProcess]:
    """Nodes that are broker and controller each, with formatted storage, not started yet. Of three or more, topics of
    Kafka's own have three replicas, and need two. Of a property that is given twice, the last holds;
    `more_properties` are formatted as `PROPERTIES` are."""
    class_path = maven.class_path("broker", maven.KAFKA_BROKER)
    ports = free_ports(2 * len(numbers))
    brokers, controllers = ports[: len(numbers)], ports[len(numbers) :]
    ids = {number: urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_") for number in numbers}
    quorum = ",".join(
        f"{number}@127.0.0.1:{port}:{ids[number]}" for number, port in zip(numbers, controllers, strict=True)
    )
    nodes = {}
    for number, port, controller_port in zip(numbers, brokers, controllers, strict=True):
        home = folder / f"node-{number}"
        home.mkdir(parents=True)
        properties = home / "server.properties"
        properties.write_text(
            (PROPERTIES + more_properties).format(
                node=number,
                port=port,
                controller_port=controller_port,
                controllers=",".join(f"127.0.0.1:{each}" for each in controllers),
                data=home / "data",
                replicas=min(3, len(numbers)),
                min_insync=min(2, len(numbers)),
            )
        )
        _format(class_path, properties, quorum)
        command = ["java", *JVM_OPTIONS, "-cp", class_path, "kafka.Kafka", str(properties)]
        nodes[number] = BrokerProcess(command, f"127.0.0.1:{port}", home / "output.log")
    return nodes


def _format(class_path: str, properties: Path, quorum: str) -> None:
    """Write the cluster id and the KRaft quorum's first snapshot, as `kafka-storage.sh format` does."""
    command = ["java", "-cp", class_path, "kafka.tools.StorageTool", "format", "--initial-controllers", quorum]
    command += ["--cluster-id", "aGVhZHdhdGVyLWJlbmNoMQ", "--config", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka's storage could not be formatted: {done.stdout}{done.stderr}")


def main() -> None:
    """Run Kafka until interrupted and say where: a broker to point the client suite at."""
    for asked in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores the first unless told otherwise
        signal.signal(asked, lambda number, frame: sys.exit(0))
    with KafkaServer() as kafka:
        print(kafka.bootstrap, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
