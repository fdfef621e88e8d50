"""What a server does with every request of the matrix: the errors and where they stand, and which names it shows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, alternatives
from tests.broker.access.matrix.places import error_codes, leaves
from tests.broker.access.matrix.runs import Run, allowed_runs, does_something, mixed_checks, mixed_run, refused_runs
from tests.broker.access.matrix.scene import Scene
from tests.broker.access.matrix.world import World
from tests.support.eventually import until
from tests.support.user_client import Exchange

PASSING: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""Errors after which a client asks again."""
NAMED: Final = {ResourceType.TOPIC: "topic", ResourceType.GROUP: "group", ResourceType.TRANSACTIONAL_ID: "id"}


@dataclass(frozen=True, slots=True, order=True)
class Trial:
    request: str
    version: int
    bindings: str
    """In words."""


Seen: TypeAlias = frozenset[str]
Observations: TypeAlias = dict[Trial, Seen]


async def observe(
    world: World, cases: Iterable[Case], versions: Callable[[ApiKey], range], tell: Callable[[str], None]
) -> Observations:
    """`versions` are those that the server has in common with the one that it is compared with."""
    seen: Observations = {}
    for case in cases:
        for version in [each for each in case.served if each in versions(case.api_key)]:
            seen |= await _of_request(world, case, version)
        tell(case.name)
    await world.bind(())
    return seen


async def _of_request(world: World, case: Case, version: int) -> Observations:
    seen: Observations = {}

    async def see(run: Run, scene: Scene, fields: Mapping[str, object]) -> None:
        await world.bind(run.bindings)
        seen[Trial(case.name, version, run.title)] = await _seen(world, case, version, run, scene, dict(fields))

    scene = Scene(world)
    fields = await case.build(scene, version)
    for number, run in enumerate(list(refused_runs(case, version, scene, shapes=False))):
        if does_something(case, run):
            scene = Scene(world)
            fields = await case.build(scene, version)
            run = list(refused_runs(case, version, scene, shapes=False))[number]
        await see(run, scene, fields)
    for number, run in enumerate(list(allowed_runs(case, version, scene, shapes=False))):
        if case.spoils:
            scene = Scene(world)
            fields = await case.build(scene, version)
            run = list(allowed_runs(case, version, scene, shapes=False))[number]
        await see(run, scene, fields)
    for check in mixed_checks(case, version):
        scene = Scene(world, alternatives(check)[-1].resource_type)
        fields = await case.build(scene, version)
        await see(mixed_run(case, version, check, scene), scene, fields)
    return seen


async def _seen(world: World, case: Case, version: int, run: Run, scene: Scene, fields: dict[str, object]) -> Seen:
    last: list[Exchange] = []

    async def is_settled() -> bool:
        last[:] = [await world.send(run.user, case.api_key, version, fields)]
        return not {leaf.value for leaf in error_codes(last[0].message)} & PASSING

    await until(is_settled, f"{case.name} {version} is answered")
    (exchange,) = last
    if exchange.is_closed:
        return frozenset(("connection closed",))
    codes = {f"{leaf.path}={ErrorCode(leaf.value).name}" for leaf in error_codes(exchange.message)}
    named = {leaf.value for leaf in leaves(exchange.message) if not leaf.path.endswith("error_message")}
    shown = {
        f"shows {word} {index}"
        for resource_type, word in NAMED.items()
        for index, each in enumerate(scene.names(resource_type))
        if each.name in named and each.name.encode() not in exchange.request
    }
    return frozenset(codes | shown)
