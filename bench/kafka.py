"""A real Apache Kafka, single node with KRaft, to judge Headwater by.

The jars come from Maven Central; heap, collector and broker settings are those of Kafka's own start script and
`server.properties`, so the comparison is with what people run. The data directory is made fresh and removed."""

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import maven
from bench.process import BrokerProcess, free_port

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
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
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
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""


class KafkaServer:
    """A running Kafka; `process` is its broker, for CPU and memory figures."""

    name = "kafka"

    def __init__(self) -> None:
        self._class_path = maven.class_path("broker", maven.KAFKA_BROKER)
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._port = free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._properties = self._folder / "server.properties"
        controller_port = free_port()
        data = self._folder / "data"
        self._properties.write_text(PROPERTIES.format(port=self._port, controller_port=controller_port, data=data))
        self._format()
        command = ["java", *JVM_OPTIONS, "-cp", self._class_path, "kafka.Kafka", str(self._properties)]
        self.process = BrokerProcess(command, self.bootstrap, self._folder / "output.log")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        try:
            self.process.start()
            self.process.wait_until_answering()
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _format(self) -> None:
        """Write the cluster id and the KRaft quorum's first snapshot, as `kafka-storage.sh format` does."""
        command = ["java", "-cp", self._class_path, "kafka.tools.StorageTool", "format", "--standalone"]
        command += ["--cluster-id", "aGVhZHdhdGVyLWJlbmNoMQ", "--config", str(self._properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            shutil.rmtree(self._folder, ignore_errors=True)
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
