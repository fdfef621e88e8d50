"""`make bench-http`: writing over HTTP, one record a request and many, with a gateway that has one core.

The broker, the gateway (`headwater gateway`, a process of its own, pinned to a core) and the load (wrk, which is C
and takes a fraction of the gateway's time) run on this machine. After each measure the topic must hold exactly the
records that were answered, and every answer must be 200, or there is no figure."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.headwater import HeadwaterServer, headwater_program
from bench.process import BrokerProcess
from rich.console import Console
from rich.table import Table

from headwater.transport.ports import free_port

OUT = Path(__file__).parent / "out"
TOPIC = "bench-http"
PARTITIONS = 4
CONNECTIONS = 128
BATCH_CONNECTIONS = 8
BATCH_RECORDS = 1_000
VALUE_BYTES = 100
GOALS = {"one record a request": 5_000, "1,000 records a request": 100_000}
"""Records a second on one core."""
GREETING = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"

SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
done = function(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        "RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True, slots=True)
class Measure:
    requests_per_s: float
    records_per_s: float
    p50_ms: float
    p99_ms: float
    gateway_cores: float
    """CPU seconds a second, of all of its threads: below one where others compete for its core."""
    broker_cores: float

    @property
    def records_per_cpu_s(self) -> float:
        """What a core does that is the gateway's alone."""
        return self.records_per_s / self.gateway_cores


def main() -> None:
    arguments = argparse.ArgumentParser(prog="bench.http_gateway", description=__doc__)
    arguments.add_argument("--seconds", type=int, default=10)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: apt-get install wrk")
    console = Console()
    measured: dict[str, list[Measure]] = {name: [] for name in GOALS}
    for number in range(given.rounds):
        console.print(f"round {number + 1} of {given.rounds}")
        for name, records, connections in (
            ("one record a request", 1, CONNECTIONS),
            ("1,000 records a request", BATCH_RECORDS, BATCH_CONNECTIONS),
        ):
            measured[name].append(measure(records, connections, given.seconds))
    report(console, measured)
    OUT.mkdir(exist_ok=True)
    figures = {name: [asdict(each) for each in rounds] for name, rounds in measured.items()}
    (OUT / "http.json").write_text(json.dumps(figures, indent=2))


def measure(records: int, connections: int, seconds: int) -> Measure:
    with HeadwaterServer("os") as broker, gateway(broker.bootstrap) as process:
        http = f"http://{process.bootstrap}"
        ask(f"{http}/v1/topics", {"name": TOPIC, "partitions": PARTITIONS})
        with tempfile.TemporaryDirectory() as folder:
            load(http, records, connections, 2, Path(folder))  # connections, caches, batches that have grown
            before = written(http)
            cpu_s, broker_cpu_s, began_s = process.cpu_seconds(), broker.process.cpu_seconds(), time.monotonic()
            requests, duration_s, p50_ms, p99_ms = load(http, records, connections, seconds, Path(folder))
            took_s = time.monotonic() - began_s
            cpu_s = process.cpu_seconds() - cpu_s
            broker_cpu_s = broker.process.cpu_seconds() - broker_cpu_s
        found = written(http) - before
        # wrk closes its connections when the time is over: what it had asked for last may have been written unanswered.
        if not requests * records <= found <= (requests + connections) * records:
            sys.exit(f"{requests} requests of {records} were answered, and {found} records are there")
    return Measure(
        requests / duration_s, requests * records / duration_s, p50_ms, p99_ms, cpu_s / took_s, broker_cpu_s / took_s
    )


@contextmanager
def gateway(bootstrap: str) -> Iterator[BrokerProcess]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-http-"))
    address = f"127.0.0.1:{free_port()}"
    command = ["taskset", "-c", "0", headwater_program(), "gateway", "--bootstrap", bootstrap, "--http", address]
    process = BrokerProcess([*command, "--log-level", "warning"], address, folder / "output.log", GREETING)
    try:
        process.start()
        process.wait_until_answering()
        yield process
    finally:
        process.stop()
        shutil.rmtree(folder, ignore_errors=True)


def load(http: str, records: int, connections: int, seconds: int, folder: Path) -> tuple[int, float, float, float]:
    """Requests that were answered, seconds, and the latency in ms: median and 99th percentile."""
    value = "x" * VALUE_BYTES
    body = {"value": value} if records == 1 else {"records": [{"value": value}] * records}
    (folder / "body.json").write_text(json.dumps(body))
    (folder / "post.lua").write_text(SCRIPT.format(body=folder / "body.json"))
    others = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)) if core != 0) or "0"
    command = [
        "taskset",
        "-c",
        others,
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "10s",
        "--latency",
    ]
    command += ["-s", str(folder / "post.lua"), f"{http}/v1/topics/{TOPIC}/records"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    if found is None:
        sys.exit(f"wrk said nothing of use:\n{output}")
    requests, duration_us, refused, broken, p50_us, p99_us = map(int, found.groups())
    if refused or broken:
        sys.exit(f"{refused} requests were refused and {broken} broken:\n{output}")
    return requests, duration_us / 1e6, p50_us / 1000, p99_us / 1000


def written(http: str) -> int:
    partitions = ask(f"{http}/v1/topics/{TOPIC}")["partitions"]
    return sum(partition["end_offset"] for partition in partitions)


def ask(url: str, body: object = None) -> dict[str, list[dict[str, int]]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        found: dict[str, list[dict[str, int]]] = json.load(answer)
        return found


def report(console: Console, measured: dict[str, list[Measure]]) -> None:
    table = Table(
        "", "requests/s", "records/s", "goal", "per CPU second", "p50 ms", "p99 ms", "gateway cores", "broker cores"
    )
    for name, rounds in measured.items():

        def median(field: str, rounds: list[Measure] = rounds) -> float:
            return statistics.median(getattr(each, field) for each in rounds)

        reached = "reached" if median("records_per_s") >= GOALS[name] else "missed"
        table.add_row(
            name,
            f"{median('requests_per_s'):,.0f}",
            f"{median('records_per_s'):,.0f}",
            f"{GOALS[name]:,} {reached}",
            f"{median('records_per_cpu_s'):,.0f}",
            f"{median('p50_ms'):.1f}",
            f"{median('p99_ms'):.1f}",
            f"{median('gateway_cores'):.2f}",
            f"{median('broker_cores'):.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
