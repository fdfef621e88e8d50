"""One run of the demo: everything is started, watched, and gone afterwards."""

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headwater.demo.analytics import Analytics
from headwater.demo.figures import Figures, look
from headwater.demo.packers import DEAD_LETTERS, QUEUE, Packers
from headwater.demo.shop import CLICKS, ORDERS
from headwater.demo.traffic import ShopTraffic
from headwater.demo.view import Show
from headwater.testing import Broker

LOOK_EVERY_S = 1.0
STALL_TIMEOUT_S = 120.0
"""For Spark and the workers to get a little further after the last event: a slow machine may still start Spark."""
WORK_OFF_AT_MOST_S = 1_200.0
STOP_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class DemoPlan:
    seconds: float
    """Of traffic; then everything that was sent is worked off."""
    sessions_per_s: float = 40.0
    workers: int = 3
    seed: int = 2026


class Started(Protocol):
    """What a run starts, watches and stops."""

    def start(self) -> None: ...
    def stop(self, timeout_s: float) -> None: ...
    def raise_failure(self) -> None:
        """Why it ended by itself, if it did."""


@contextmanager
def demo_broker() -> Iterator[Broker]:
    """`headwater serve` as it comes, on a free port. A Ctrl-C of the terminal is for the demo, which stops it last."""
    broker = Broker(subprocess=True, durability="sync")
    interrupts = {signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupts)  # a child inherits what is blocked
    try:
        broker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts)
    try:
        yield broker
    finally:
        broker.close()


def prepare(bootstrap: str) -> None:
    """Topics, and a queue on the orders that is there before the first worker."""
    from confluent_kafka.admin import NewTopic

    from headwater.cli.brokers import Brokers
    from headwater.cli.client import clients
    from headwater.cli.group_requests import KIND, TOPIC, alter_group_config, start_share_group
    from headwater.cli.subscription import GROUP_ENABLE, QUEUE_KEYS
    from headwater.cli.subscription_status import QUEUE as A_QUEUE

    topics = [NewTopic(name, PARTITIONS) for name in (CLICKS, ORDERS)]
    topics += [NewTopic(f"{name}.bad", 1) for name in (CLICKS, ORDERS)]
    topics.append(NewTopic(DEAD_LETTERS, 1, config={GROUP_ENABLE: "true"}))
    settings = {TOPIC: ORDERS, KIND: A_QUEUE, QUEUE_KEYS["dead-letter"]: DEAD_LETTERS}
    with clients(Brokers(bootstrap)) as both:
        for created in both.admin.create_topics(topics).values():
            created.result(REQUEST_TIMEOUT_S)
        alter_group_config(both.cluster, QUEUE, set=settings)
        start_share_group(both.cluster, QUEUE, ORDERS, dict.fromkeys(range(PARTITIONS), 0))


def run_demo(broker: Broker, plan: DemoPlan, stop_requested: threading.Event, show: Show) -> list[Figures]:
    """The figures of the run, at least one. Everything but the broker has stopped when this returns or raises."""
    from headwater.cli.brokers import Brokers
    from headwater.cli.client import clients

    bootstrap = broker.bootstrap
    show("preparing topics and the queue", [])
    prepare(bootstrap)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-demo-")))
        traffic = ShopTraffic(bootstrap, plan.seed, plan.sessions_per_s)
        packers = Packers(bootstrap, plan.workers, plan.seed)
        analytics = Analytics(bootstrap, directory)
        started: list[Started] = [analytics, *packers.backgrounds, traffic.background]
        for each in started:
            stack.callback(each.stop, STOP_TIMEOUT_S)
        both = stack.enter_context(clients(Brokers(bootstrap)))
        history: list[Figures] = []
        start_s = time.monotonic()

        def watch(phase: str) -> Figures:
            for each in started:
                each.raise_failure()
            history.append(look(time.monotonic() - start_s, traffic, packers, analytics, both))
            show(phase, history)
            return history[-1]

        for each in started:
            each.start()
        while time.monotonic() - start_s < plan.seconds and not stop_requested.wait(LOOK_EVERY_S):
            watch(f"live traffic for {plan.seconds:.0f} s")
        traffic.background.stop(STOP_TIMEOUT_S)
        ended_s = moved_s = time.monotonic()
        before = history[-1].progress if history else ()
        while not (now := watch("working off what was sent")).is_worked_off:
            if now.progress != before:
                before, moved_s = now.progress, time.monotonic()
            is_over = time.monotonic() > min(moved_s + STALL_TIMEOUT_S, ended_s + WORK_OFF_AT_MOST_S)
            if is_over or stop_requested.wait(LOOK_EVERY_S):
                break
        show("stopping", history)
    return history
