"""Every API in every version: refused without each of its grants, in the declared place, with nothing shown and nothing
changed; allowed with them and no others.

The short run has the oldest and the newest version of each API, and all forms of a binding with the newest.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from headwater.broker.access.declared_access import AccessCheck
from headwater.broker.server import Broker
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix import judge
from tests.broker.access.matrix.case import APIS, Case, alternatives
from tests.broker.access.matrix.cases.table import CASES
from tests.broker.access.matrix.own_broker import own_world
from tests.broker.access.matrix.places import error_codes, values_at
from tests.broker.access.matrix.runs import (
    BESIDE_A_SUCCESS,
    Run,
    allowed_runs,
    does_something,
    mixed_checks,
    mixed_run,
    refused_runs,
)
from tests.broker.access.matrix.scene import Scene
from tests.broker.access.matrix.state import state_of
from tests.broker.access.matrix.world import ADMIN, STRANGER, World
from tests.support.effort import IS_LONG
from tests.support.eventually import tasks_run

METADATA = 3


class Matrix:
    """A broker, and the event loop that it shares with the test."""

    def __init__(self, runner: asyncio.Runner, broker: Broker, world: World) -> None:
        self._runner = runner
        self.broker = broker
        self.world = world

    def run(self, trial: Coroutine[Any, Any, None]) -> None:
        self._runner.run(trial)

    def refusals(self) -> int:
        """That were recorded."""
        return sum(self.broker.metrics.authorization_refusals.values())


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with asyncio.Runner() as runner:
        entering = own_world(tmp_path_factory.mktemp("matrix"))
        broker, world = runner.run(entering.__aenter__())
        try:
            yield Matrix(runner, broker, world)
        finally:
            runner.run(entering.__aexit__(None, None, None))


def versions(case: Case) -> list[int]:
    served = case.served
    return served if IS_LONG else sorted({served[0], served[-1]})


ALL = [(case, version) for case in CASES for version in versions(case)]
EVERY = [pytest.param(case, version, id=f"{case.name} {version}") for case, version in ALL]
RESTRICTED = [pytest.param(case, version, id=f"{case.name} {version}") for case, version in ALL if case.checks(version)]
MIXED = [
    pytest.param(case, version, check, is_last, id=f"{case.name} {version} {check.resource_type.name} {order}")
    for case, version in ALL
    for check in mixed_checks(case, version)
    for is_last, order in ((False, "first"), (True, "last"))
]


def test_every_api_is_here_in_every_version_with_every_check() -> None:
    """A new API fails this, until `cases` has its requests."""
    shown: dict[ApiKey, set[tuple[int, AccessCheck | None]]] = {key: set() for key in APIS}
    for case in CASES:
        for version in case.served:
            shown[case.api_key].add((version, None))
            shown[case.api_key] |= {(version, check) for check in case.checks(version)}
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            expected = {(version, None), *((version, each) for each in api.access.checks if version in each.versions)}
            assert expected <= shown[key], (api.name, version, expected - shown[key])


def test_the_titles_of_the_shapes_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def test_a_request_that_is_known_to_be_forbidden_is_refused(matrix: Matrix) -> None:
    """Without it, a matrix that ran with authorization off would say that all is allowed that should be."""

    async def trial() -> None:
        scene = Scene(matrix.world)
        (topic,) = await scene.topics()
        await matrix.world.bind([])
        topics = [{"name": topic.name}]
        answer = await matrix.world.send(STRANGER, METADATA, 9, {"topics": topics, "allow_auto_topic_creation": False})
        assert [each.error_code for each in answer.message.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert matrix.refusals() > 0

    matrix.run(trial())


@pytest.mark.parametrize(("case", "version"), EVERY)
def test_a_request_names_what_is_declared(matrix: Matrix, case: Case, version: int) -> None:
    """Of every check that is of something in the request, and nothing of it is of another place."""

    async def trial() -> None:
        scene = Scene(matrix.world)
        sent = judge.built(case, await case.build(scene, version))
        for check in case.checks(version):
            for form in alternatives(check):
                if form.named_at and case.place(form):
                    (named,) = scene.names(form.resource_type)
                    head, dot, _ = form.named_at.rpartition(".")
                    there = values_at(sent, form.named_at) + values_at(sent, f"{head}{dot}topic_id")
                    assert any(str(each) in str(value) for value in there for each in (named.name, named.id)), form

    matrix.run(trial())


@pytest.mark.parametrize(("case", "version"), RESTRICTED)
def test_without_one_of_its_grants_a_request_is_refused(matrix: Matrix, case: Case, version: int) -> None:
    async def trial() -> None:
        scene = Scene(matrix.world)
        fields = await case.build(scene, version)
        shapes = IS_LONG or version == case.served[-1]
        await tasks_run()
        before = await state_of(matrix.broker, scene)
        problems: list[str] = []
        apart: list[int] = []
        for number, run in enumerate(refused_runs(case, version, scene, shapes=shapes)):
            if does_something(case, run):
                apart.append(number)
            else:
                problems += await refused(matrix, case, version, run, fields)
        after = await state_of(matrix.broker, scene)
        problems += changed(before, after)
        for number in apart:
            scene = Scene(matrix.world)
            fields = await case.build(scene, version)
            run = list(refused_runs(case, version, scene, shapes=shapes))[number]
            problems += await refused(matrix, case, version, run, fields)
        assert not problems, "\n".join(problems)

    matrix.run(trial())


@pytest.mark.parametrize(("case", "version"), EVERY)
def test_with_its_grants_and_no_others_a_request_is_allowed(matrix: Matrix, case: Case, version: int) -> None:
    async def trial() -> None:
        shapes = IS_LONG or version == case.served[-1]
        scene = Scene(matrix.world)
        fields = await case.build(scene, version)
        problems: list[str] = []
        for number, run in enumerate(list(allowed_runs(case, version, scene, shapes=shapes))):
            if case.spoils and number:
                scene = Scene(matrix.world)
                fields = await case.build(scene, version)
                run = list(allowed_runs(case, version, scene, shapes=shapes))[number]
            await matrix.world.bind(run.bindings)
            exchange = await matrix.world.send(run.user, case.api_key, version, fields)
            problems += [f"{run.title}: {each}" for each in judge.of_allowed(case, version, run, scene, exchange)]
        assert not problems, "\n".join(problems)

    matrix.run(trial())


@pytest.mark.parametrize(("case", "version"), RESTRICTED)
def test_the_answer_to_an_allowed_request_is_taken_for_no_refusal(matrix: Matrix, case: Case, version: int) -> None:
    """A handler that forgets any one of its checks answers like that."""

    async def trial() -> None:
        scene = Scene(matrix.world)
        fields = await case.build(scene, version)
        before = await state_of(matrix.broker, scene)
        exchange = await matrix.world.send(ADMIN, case.api_key, version, fields)
        is_done = not {leaf.value for leaf in error_codes(exchange.message)} & case.also
        if case.spoils and is_done:
            assert changed(before, await state_of(matrix.broker, scene)), "what was done is noticed, too"
        for check in case.checks(version):
            run = Run(title="forgotten", refused=check)
            assert judge.of_refused(case, run, matrix.world, fields, exchange), check

    matrix.run(trial())


@pytest.mark.parametrize(("case", "version", "check", "is_last"), MIXED)
def test_of_two_names_only_the_one_without_a_grant_is_refused(
    matrix: Matrix, case: Case, version: int, check: AccessCheck, is_last: bool
) -> None:
    async def trial() -> None:
        scene = Scene(matrix.world, alternatives(check)[-1].resource_type, is_reversed=is_last)
        fields = await case.build(scene, version)
        run = mixed_run(case, version, check, scene)
        await matrix.world.bind(run.bindings)
        before = await state_of(matrix.broker, scene)
        exchange = await matrix.world.send(STRANGER, case.api_key, version, fields)
        problems = judge.of_mixed(case, run, scene, exchange)
        if ErrorCode.OPERATION_NOT_ATTEMPTED in {leaf.value for leaf in error_codes(exchange.message)}:
            problems += changed(before, await state_of(matrix.broker, scene))
        assert not problems, "\n".join(problems)

    matrix.run(trial())


async def refused(matrix: Matrix, case: Case, version: int, run: Run, fields: dict[str, Any]) -> list[str]:
    world = matrix.world
    await world.bind(run.bindings)
    recorded = matrix.refusals()
    exchange = await world.send(STRANGER, case.api_key, version, fields)
    recorded = matrix.refusals() - recorded
    problems = judge.of_refused(case, run, world, fields, exchange)
    assert run.refused is not None, "something is refused"
    if recorded != is_recorded(case, run.refused):
        problems.append(f"the refusal was recorded {recorded} times")
    return [f"{run.title}: {each}" for each in problems]


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    keys = sorted(before.keys() | after.keys())
    return [
        f"{key} was {before.get(key)!r}, and is {after.get(key)!r}" for key in keys if before.get(key) != after.get(key)
    ]


def is_recorded(case: Case, check: AccessCheck) -> bool:
    """A refusal is, and what is left out of a list is not."""
    if case.place(check):
        return not check.refused_at.endswith(BESIDE_A_SUCCESS)
    return alternatives(check)[-1].resource_type is ResourceType.CLUSTER
