"""Webhooks at a steady pace: how many arrive a second, and how long after they were produced.

    python -m bench.push [--rate 1000] [--seconds 20]

A producer writes `rate` records a second, each with the time at which it was handed over; a receiver in this process
notes when the POST with it has arrived, and answers 204. Latency is from one to the other: produce, flush to disk,
share fetch, POST. Twice: with the gateway inside of `headwater serve`, as it comes, and as a process beside it.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop
from bench.headwater import headwater_program
from bench.process import BrokerProcess
from confluent_kafka import Producer

from headwater.transport.ports import free_port, free_ports

GOAL_PER_S, GOAL_P50_MS = 1_000, 20.0
PARTITIONS = 4
WARM_UP_S = 3.0
DRAIN_S = 30.0
SIZE_BYTES = 200


class Receiver(asyncio.Protocol):
    """As little HTTP as does: requests with a Content-Length, answered in order."""

    def __init__(self, arrived: list[tuple[float, float]]) -> None:
        self._arrived = arrived
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            self._arrived.append((float(body.partition(b" ")[0]), time.time()))
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")  # type: ignore[attr-defined]


@contextmanager
def receiving(port: int, arrived: list[tuple[float, float]]) -> Iterator[None]:
    loop = uvloop.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(loop.create_server(lambda: Receiver(arrived), "127.0.0.1", port))
        loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


@contextmanager
def cluster(is_apart: bool) -> Iterator[tuple[str, str]]:
    """The addresses of a broker and of its gateway."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    kafka, web = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = folder / "broker.toml"
    settings.write_text("http_private_webhooks = true\n")
    command = [
        headwater_program(),
        "serve",
        "--config",
        str(settings),
        "--data",
        str(folder / "data"),
        "--listen",
        kafka,
    ]
    command += ["--metrics", "off", "--log-level", "warning", "--http", "off" if is_apart else web]
    processes = [BrokerProcess(command, kafka, folder / "broker.log")]
    if is_apart:
        gateway = [headwater_program(), "gateway", "--bootstrap", kafka, "--http", web, "--private-webhooks"]
        processes.append(BrokerProcess(gateway, kafka, folder / "gateway.log"))
    try:
        for process in processes:
            process.start()
            process.wait_until_answering()
        _wait_for(f"http://{web}/readyz")
        yield kafka, f"http://{web}"
    finally:
        for process in reversed(processes):
            process.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(rate_per_s: int, seconds: float, is_apart: bool) -> dict[str, Any]:
    arrived: list[tuple[float, float]] = []
    port = free_port()
    with cluster(is_apart) as (kafka, web), receiving(port, arrived):
        _post(f"{web}/v1/topics", {"name": "pushed", "partitions": PARTITIONS})
        push = {"url": f"http://127.0.0.1:{port}/hook", "secret": "bench"}
        _post(f"{web}/v1/subscriptions", {"name": "bench", "topic": "pushed", "kind": "queue", "push": push})
        producer = Producer({"bootstrap.servers": kafka, "linger.ms": 0})
        sent = _produce(producer, rate_per_s, WARM_UP_S)
        began_s = time.time()
        sent += _produce(producer, rate_per_s, seconds)
        ended_s = time.time()
        producer.flush(30)
        until_s = time.monotonic() + DRAIN_S
        while len(arrived) < sent and time.monotonic() < until_s:
            time.sleep(0.05)
    measured = sorted((at - produced) * 1000 for produced, at in list(arrived) if began_s <= produced <= ended_s)
    within = sum(began_s <= at <= ended_s for _, at in arrived)
    return {
        "gateway": "beside the broker" if is_apart else "in the broker",
        "offered_per_s": rate_per_s,
        "delivered_per_s": round(within / (ended_s - began_s)),
        "missing": max(sent - len(arrived), 0),
        "again": max(len(arrived) - sent, 0),
        "p50_ms": round(measured[len(measured) // 2], 2),
        "p99_ms": round(measured[len(measured) * 99 // 100], 2),
        "max_ms": round(measured[-1], 2),
    }


def _produce(producer: Producer, rate_per_s: int, seconds: float) -> int:
    """A record each time one is due, for so long."""
    began_s, sent = time.monotonic(), 0
    padding = b" " * SIZE_BYTES
    while (passed_s := time.monotonic() - began_s) < seconds:
        for _ in range(int(passed_s * rate_per_s) - sent):
            producer.produce("pushed", key=str(sent % 100), value=f"{time.time():.6f}".encode() + padding)
            sent += 1
        producer.poll(0)
        time.sleep(0.001)
    return sent


def _post(url: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        assert answer.status == 201, answer.status


def _wait_for(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until_s = time.monotonic() + 30
    while True:
        try:
            with opener.open(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=GOAL_PER_S)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("in", "beside"), default=None)
    options = parser.parse_args()
    for is_apart in (False, True):
        if options.only not in (None, "beside" if is_apart else "in"):
            continue
        found = measure(options.rate, options.seconds, is_apart)
        print(json.dumps(found))
        is_met = found["delivered_per_s"] >= 0.99 * options.rate and found["p50_ms"] < GOAL_P50_MS
        print(f"goal ({GOAL_PER_S} deliveries a second, p50 < {GOAL_P50_MS:.0f} ms): {'met' if is_met else 'missed'}")


if __name__ == "__main__":
    main()
