"""`make bench-cluster`: three nodes of Headwater and three of Apache Kafka on this machine, in this run, taking turns.

Each round starts every cluster afresh, one at a time, in an order that rotates. Parts: `load` is throughput and latency
of replicated records, `faults` how long writes stand still when a node is killed, paused or stopped, `growth` what
partitions cost. `--quick` is a shorter run of the same; `--only kafka` checks the bench itself."""

import argparse
import sys
from dataclasses import asdict, replace
from functools import partial

from bench import bars, cluster_growth, cluster_measures, cluster_report, load, maven
from bench.cluster_measures import Volume
from bench.clusters import CLUSTERS, Cluster
from bench.measures import Figures
from bench.report import KAFKA, OS, SYNC
from bench.turns import Say, taking_turns
from rich.console import Console

PARTS = ("load", "faults", "growth")
FULL = Volume(
    rounds=5,
    warm_up_messages=300_000,
    messages={100: 2_000_000, 1024: 400_000},
    latency_messages=2_000,
    steady_s=10.0,
    observed_s=15.0,
    kills=2,
    growth={KAFKA: (100, 1_000), OS: (100, 1_000, 10_000)},
)
QUICK = replace(
    FULL,
    rounds=2,
    warm_up_messages=150_000,
    messages={100: 500_000, 1024: 100_000},
    latency_messages=500,
    steady_s=4.0,
    observed_s=12.0,
    kills=1,
    growth={KAFKA: (100, 300), OS: (100, 1_000)},
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="smaller volumes and fewer rounds")
    options.add_argument("--rounds", type=int, help="instead of the default number of rounds")
    options.add_argument("--only", choices=CLUSTERS, action="append", help="these clusters alone (may be repeated)")
    options.add_argument("--part", choices=PARTS, action="append", help="these parts alone (may be repeated)")
    options.add_argument("--partitions", type=int, action="append", help="of `growth`, for all; may be repeated")
    chosen = options.parse_args()
    volume = QUICK if chosen.quick else FULL
    if chosen.rounds:
        volume = replace(volume, rounds=chosen.rounds)
    if chosen.partitions:
        volume = replace(volume, growth=dict.fromkeys((KAFKA, OS, SYNC), tuple(sorted(chosen.partitions))))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(f"building the load generator, resolving Apache Kafka {maven.KAFKA_VERSION}")
    load.build()
    maven.class_path("broker", maven.KAFKA_BROKER)
    results = run(volume, chosen.only or list(CLUSTERS), chosen.part or list(PARTS), console)
    cluster_report.show(results, console)
    path = cluster_report.save(results, asdict(volume))
    console.print(f"wrote {path}")
    found = cluster_report.compared(results)
    if found is not None:
        console.print(f"wrote {bars.draw([found], path)}")


def run(volume: Volume, names: list[str], parts: list[str], console: Console) -> cluster_report.Results:
    results, makers = cluster_report.Results(), {name: CLUSTERS[name] for name in names}
    growths = {name: volume.growth.get(name, ()) if "growth" in parts else () for name in names}
    in_rounds = volume.rounds * len(names) * sum(part in parts for part in ("load", "faults"))
    with taking_turns(in_rounds + sum(map(len, growths.values())), console) as turns:
        if "load" in parts:
            results.load = turns.rounds("load", volume.rounds, makers, partial(loaded, volume))
        if "faults" in parts:
            results.stalls = turns.rounds("faults", volume.rounds, makers, partial(struck, volume))
        for name, counts in growths.items():
            for count in counts:
                measured = turns.take(name, "growth", makers[name], partial(grown, count))
                results.growth.setdefault(name, {})[count] = measured
    return results


def loaded(volume: Volume, cluster: Cluster, say: Say) -> Figures:
    cluster_measures.start(cluster)
    say("warming up")
    cluster_measures.warm_up(cluster, volume)
    return cluster_measures.latency(cluster, volume, say) | cluster_measures.throughput(cluster, volume, say)


def struck(volume: Volume, cluster: Cluster, say: Say) -> dict[str, list[float]]:
    cluster_measures.start(cluster)
    return cluster_measures.stalls(cluster, volume, say)


def grown(count: int, cluster: Cluster, say: Say) -> Figures:
    return cluster_growth.grown(cluster, count, say)


if __name__ == "__main__":
    main()
