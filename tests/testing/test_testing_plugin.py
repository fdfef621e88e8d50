"""The pytest plugin, as a project that installed the package sees it."""

import subprocess
import sys

import pytest

pytest_plugins = "pytester"

SUITE = """
    import os
    import pytest
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    def topics(broker):
        return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics)

    def create(broker, name):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, 1)])[name].result(60)

    @pytest.mark.parametrize("turn", [1, 2])
    def test_each_test_has_a_broker_of_its_own(headwater, turn):
        assert topics(headwater) == set()
        create(headwater, "mine")

    def test_the_run_shares_one(headwater_session):
        create(headwater_session, "shared")

    def test_the_run_shares_one_indeed(headwater_session):
        assert "shared" in topics(headwater_session)

    def test_a_process_can_be_killed(headwater_subprocess):
        assert headwater_subprocess.pid != os.getpid()
        create(headwater_subprocess, "kept")
        headwater_subprocess.kill()
        headwater_subprocess.start()
        assert "kept" in topics(headwater_subprocess)

    @pytest.mark.headwater(node_id=7)
    def test_a_mark_configures_the_broker(headwater):
        admin = AdminClient({"bootstrap.servers": headwater.bootstrap})
        assert list(admin.list_topics(timeout=60).brokers) == [7]

    @pytest.mark.headwater(users=["alice"])
    def test_a_secure_one_lets_its_users_in_and_nobody_else(headwater_secure):
        for user in ("admin", "alice"):
            AdminClient(headwater_secure.client_config(user)).list_topics(timeout=60)
        wrong = headwater_secure.client_config("alice") | {"sasl.password": "wrong"}
        refusals = []
        client = AdminClient(wrong | {"error_cb": refusals.append})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=5)
        while not refusals:  # the client calls back when it is polled, and not before
            client.poll(1)
        assert "invalid credentials" in str(refusals[0])
        with pytest.raises(ValueError, match="mallory is no user of this broker"):
            headwater_secure.client_config("mallory")
"""


def test_the_fixtures_give_running_brokers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    pytester.runpytest("-p", "no:cacheprovider", "--strict-markers").assert_outcomes(passed=7)


@pytest.mark.parametrize("how", ["option", "ini"])
def test_the_mode_can_be_a_process(pytester: pytest.Pytester, how: str) -> None:
    pytester.makepyfile("import os\ndef test_mode(headwater): assert headwater.pid != os.getpid()")
    if how == "ini":
        pytester.makeini("[pytest]\nheadwater_mode = process")
    pytester.runpytest(*(["--headwater-mode", "process"] if how == "option" else [])).assert_outcomes(passed=1)


def test_an_unknown_mode_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mode(headwater): pass")
    pytester.makeini("[pytest]\nheadwater_mode = container")
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(["*headwater_mode is 'container'; it must be one of: thread, process*"])


def test_a_project_that_does_not_use_the_fixtures_does_not_load_the_broker() -> None:
    code = (
        "import sys, headwater.testing.plugin; "
        "print([n for n in ('headwater.broker', 'asyncio', 'kio', 'confluent_kafka', 'typer') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
