"""What differs from seed to seed: the size of the cluster, the rules, the times, and which faults there are.

Each seed leaves most faults out: some errors show only where one kind of fault is dense and others are absent, and two
of the mutants were invisible until the intervals of garbage collection and repair were varied.
"""

from dataclasses import dataclass
from random import Random

from headwater.replication.effects import Rules
from headwater.testing.simulation.network import Conditions

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


THEMES = {
    "repair": ("store killed", "store power cut", "mute store", "disk lost", "sealed replica damaged", "store drained"),
    "takeover": ("all stores power cut", "blackout", "node power cut", "tail damaged", "leader moved", "zombie leader"),
    "metadata": ("metadata outage", "zombie leader", "leader moved", "broker killed", "mute store"),
    "disks": ("disk full", "all disks full", "disk lost", "tail damaged", "store power cut"),
    "network": ("one-way cut", "mute store", "isolated node", "zombie leader", "leader moved"),
}
"""Faults that go together. Half of the seeds have a theme and draw from its faults only."""


@dataclass(frozen=True, slots=True)
class Swarm:
    stores: int
    brokers: int
    rules: Rules
    conditions: Conditions
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
        heartbeat_s=random.choice((0.02, 0.1)),
        retry_s=random.choice((0.03, 0.1)),
        grace_s=random.choice((0.0, 0.005, 0.05)),
        bad_store_s=random.choice((0.1, 0.5)),
        window_bytes=random.choice((60, 300, 100_000)),
    )
    conditions = Conditions(
        latency_s=random.choice((0.0005, 0.002, 0.008)),
        loss=random.choice((0.0, 0.0, 0.01, 0.04)),
        duplication=random.choice((0.0, 0.02)),
        spike=random.choice((0.0, 0.01, 0.03)),
        reset=random.choice((0.0, 0.5, 1.0)),
        late_answers=random.random() < 0.3,
    )
    drawn = random.choice((None,) * len(THEMES) + tuple(THEMES))
    theme = theme or drawn
    likelihood = random.choice((0.25, 0.5, 0.9)) if theme is None else 0.7
    faults = tuple(fault for fault in THEMES.get(theme or "", FAULTS) if random.random() < likelihood)
    is_repair = theme == "repair"
    return Swarm(
        stores=stores,
        brokers=random.choice((2, 2, 3)),
        rules=rules,
        conditions=conditions,
        faults=faults or ("store power cut",),
        fault_every_s=random.choice((0.08, 0.2, 0.4)),
        faulty_s=random.choice((1.5, 2.5)),
        sync_s=random.choice((0.0002, 0.001, 0.004)),
        watch_every_s=random.choice((0.1, 0.3)),
        deaf=random.choice((0.0, 0.5, 0.9)),
        segment_batches=random.choice((4, 15, 1000)),
        collect_every_s=random.choice((0.03, 0.1, 0.4, 2.0)),
        plan_every_s=random.choice((0.02,) if is_repair else (0.03, 0.1, 0.3)),
        dead_store_s=random.choice((0.0, 0.02) if is_repair else (0.02, 0.2, 1.0)),
        move_every_s=random.choice((2.0,) if is_repair else (0.1, 0.3, 1.0)),
        retain_every_s=random.choice((0.0, 0.3)),
        compact_every_s=random.choice((0.0, 0.2)),
        producers=random.choice((2, 4)),
        in_flight=random.choice((1, 3)),
        produce_every_s=random.choice((0.01, 0.03)),
        read_every_s=random.choice((0.03, 0.1)),
        torn_lists=random.random() < 0.5,
        lost_answers=random.choice((0.0, 0.02, 0.1)),
        buggify=random.choice((0.1, 0.4) if is_repair else (0.0, 0.02, 0.1, 0.3)),
    )
