"""Java's client for the cluster that a test module starts as its fixture `cluster`."""

from collections.abc import Iterator

import pytest
from bench import maven

from headwater.testing.processes.cluster import ProcessCluster
from tests.clients.with_java import JavaClient, judge_class_path


@pytest.fixture(scope="module")
def java(cluster: ProcessCluster) -> Iterator[JavaClient]:
    try:
        class_path = judge_class_path()
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Java's client is not judged: {reason}")
    client = JavaClient(cluster.bootstrap, class_path)
    yield client
    client.close()
