"""A cluster of real processes under faults of every kind, and what clients of three libraries saw of it. 500 faults of
the same, each as long as it should be: `make chaos`."""

from collections import Counter
from pathlib import Path

import pytest

from headwater.testing.chaos.campaign import Options, run
from headwater.testing.etcd_process import find_etcd

SEED = 20261116
FAULTS = 30
PACE = 0.3


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed")
def test_thirty_faults_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    report = run(Options(tmp_path, FAULTS, SEED, PACE))
    print(report, *report.rows(), *report.skipped, *report.deaths, *report.troubles, sep="\n")
    print(f"logs, faults and history are in {tmp_path}")
    assert report.violations == [], f"seed {SEED}, logs in {tmp_path}"
    assert len(report.faults) == FAULTS
    kinds = Counter(fault.kind.split()[0] for fault in report.faults)
    assert {"kill", "pause"} <= set(kinds), "the usual faults were among them"
    assert report.skipped or kinds["cut"] > 0, "links were cut where that can be done"
    assert report.acknowledged > 10 * FAULTS, "a cluster in which nothing works shows nothing"
    assert report.replicas.replicas > report.replicas.segments > 0
