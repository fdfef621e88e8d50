"""A cluster of real processes under faults of every kind, and what clients of three libraries saw of it. 500 faults of
the same, each as long as it should be: `make chaos`."""

from pathlib import Path

import pytest

from headwater.testing.chaos.campaign import Options, run
from headwater.testing.processes.etcd_process import find_etcd
from tests.support.effort import IS_LONG, amount

SEED = 20261116
FAULTS = amount(30, 6)
PACE = 0.2


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed")
def test_faults_of_every_kind_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    report = run(Options(tmp_path, FAULTS, SEED, PACE))
    print(report, *report.rows(), *report.skipped, *report.deaths, *report.troubles, sep="\n")
    print(f"logs, faults and history are in {tmp_path}")
    assert report.violations == [], f"seed {SEED}, logs in {tmp_path}"
    assert len(report.faults) == FAULTS
    assert report.acknowledged > 10 * FAULTS, "a cluster in which nothing works shows nothing"
    assert report.replicas.replicas > report.replicas.segments > 0
    if not IS_LONG:
        return  # a few faults are not of every kind
    kinds = {fault.kind for fault in report.faults}
    expected = {"stop", "kill etcd", "pause etcd", "kill all"}
    if not report.skipped:
        expected |= {"cut off", "cut one way", "flapping links", "cut from etcd", "full disk"}
    assert expected <= kinds
    assert {"kill", "pause"} <= {kind.split()[0] for kind in kinds if not kind.endswith(("etcd", "all"))}
