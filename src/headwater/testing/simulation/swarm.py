"""What differs from seed to seed: the size of the cluster, the rules, the times, and which faults there are.

Each seed leaves most faults out: some errors show only where one kind of fault is dense and others are absent, and two
of the mutants were invisible until the intervals of garbage collection and repair were varied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from headwater.replication.effects import Rules
from headwater.testing.simulation.network import NetworkConditions

Choices: TypeAlias = tuple[Any, ...]

FAULTS = (
    "store killed",
    "store power cut",
    "all stores power cut",
    "broker killed",
    "node power cut",
    "blackout",
    "one-way cut",
    "mute store",
    "isolated node",
    "zombie leader",
    "metadata outage",
    "disk lost",
    "tail damaged",
    "sealed replica damaged",
    "disk full",
    "all disks full",
    "store drained",
    "leader moved",
)


@dataclass(frozen=True, slots=True)
class Theme:
    """Faults that go together, and what makes them meet."""

    faults: tuple[str, ...]
    choices: Mapping[str, Choices] = field(default_factory=dict)


THEMES = {
    "repair": Theme(
        ("store killed", "store power cut", "mute store", "disk lost", "sealed replica damaged", "store drained"),
        {"plan_every_s": (0.02,), "dead_store_s": (0.0, 0.02), "move_every_s": (2.0,), "buggify": (0.1, 0.4)},
    ),
    "takeover": Theme(
        ("all stores power cut", "blackout", "node power cut", "tail damaged", "leader moved", "zombie leader"),
    ),
    "publication": Theme(
        ("metadata outage", "zombie leader", "leader moved", "broker killed", "mute store"),
        {
            "segment_batches": (4,),
            "deaf": (0.9,),
            "move_every_s": (0.1, 0.3),
            "lost_answers": (0.1, 0.3),
            "buggify": (0.1, 0.4),
            "fault_every_s": (0.4, 0.8),
        },
    ),
    "compaction": Theme(
        ("zombie leader", "leader moved", "mute store", "one-way cut"),
        {
            "segment_batches": (4,),
            "collect_every_s": (0.03,),
            "compact_every_s": (0.03, 0.1),
            "deaf": (0.9,),
            "move_every_s": (0.1, 0.3),
            "fault_every_s": (0.4, 0.8),
        },
    ),
    "disks": Theme(("disk full", "all disks full", "disk lost", "tail damaged", "store power cut")),
    "network": Theme(("one-way cut", "mute store", "isolated node", "zombie leader", "leader moved")),
}
"""Half of the seeds have a theme, and draw from its faults only."""

CHOICES: Mapping[str, Choices] = {
    "fault_every_s": (0.08, 0.2, 0.4),
    "faulty_s": (1.5, 2.5),
    "sync_s": (0.0002, 0.001, 0.004),
    "watch_every_s": (0.1, 0.3),
    "deaf": (0.0, 0.5, 0.9),
    "segment_batches": (4, 15, 1000),
    "collect_every_s": (0.03, 0.1, 0.4, 2.0),
    "plan_every_s": (0.03, 0.1, 0.3),
    "dead_store_s": (0.02, 0.2, 1.0),
    "move_every_s": (0.1, 0.3, 1.0),
    "retain_every_s": (0.0, 0.3),
    "compact_every_s": (0.0, 0.2),
    "producers": (2, 4),
    "in_flight": (1, 3),
    "produce_every_s": (0.01, 0.03),
    "read_every_s": (0.03, 0.1),
    "torn_lists": (False, True),
    "lost_answers": (0.0, 0.02, 0.1),
    "buggify": (0.0, 0.02, 0.1, 0.3),
}
"""What a swarm has, where its theme does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Swarm:
    stores: int
    brokers: int
    rules: Rules
    conditions: NetworkConditions
    faults: tuple[str, ...]
    fault_every_s: float
    faulty_s: float
    sync_s: float
    watch_every_s: float
    deaf: float
    """How often a leader does not hear that there is another."""
    segment_batches: int
    collect_every_s: float
    plan_every_s: float
    dead_store_s: float
    """So long after it was last seen a store's replicas are replaced."""
    move_every_s: float
    retain_every_s: float
    """0 for never."""
    compact_every_s: float
    producers: int
    in_flight: int
    produce_every_s: float
    read_every_s: float
    torn_lists: bool
    lost_answers: float
    """How often the metadata store applies a transaction and cannot say so."""
    buggify: float
    """How often a rare branch is taken where the code has one."""


def draw(random: Random, theme: str | None = None) -> Swarm:
    """`theme` for the seeds that look for one kind of error; otherwise it is drawn, too."""
    stores = random.choice((3, 3, 4, 5))
    factor, min_insync = random.choice(((3, 2), (3, 2), (3, 1), (2, 1), (2, 2), (1, 1)))
    timeout_s = random.choice((0.06, 0.15, 0.3))
    rules = Rules(
        replication_factor=factor,
        min_insync=min_insync,
        replica_timeout_s=timeout_s,
        plant_timeout_s=2 * timeout_s,
        heartbeat_s=random.choice((0.02, 0.1)),
        retry_s=random.choice((0.03, 0.1)),
        grace_s=random.choice((0.0, 0.005, 0.05)),
        bad_store_s=random.choice((0.1, 0.5)),
        window_bytes=random.choice((60, 300, 100_000)),
    )
    conditions = NetworkConditions(
        latency_s=random.choice((0.0005, 0.002, 0.008)),
        loss=random.choice((0.0, 0.0, 0.01, 0.04)),
        duplication=random.choice((0.0, 0.02)),
        spike=random.choice((0.0, 0.01, 0.03)),
        reset=random.choice((0.0, 0.5, 1.0)),
        late_answers=random.random() < 0.3,
    )
    drawn = random.choice((None,) * len(THEMES) + tuple(THEMES))
    chosen = THEMES.get(theme or drawn or "")
    likelihood = random.choice((0.25, 0.5, 0.9)) if chosen is None else 0.7
    possible = FAULTS if chosen is None else chosen.faults
    faults = tuple(fault for fault in possible if random.random() < likelihood)
    choices = CHOICES if chosen is None else {**CHOICES, **chosen.choices}
    return Swarm(
        stores=stores,
        brokers=random.choice((2, 2, 3)),
        rules=rules,
        conditions=conditions,
        faults=faults or possible[:1],
        **{name: random.choice(values) for name, values in choices.items()},
    )
