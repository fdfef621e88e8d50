"""ElectLeaders (43), versions 0 to 2: a better leader for some partitions, or for all (null), at once.

The controller alone elects; every other node answers NOT_CONTROLLER, and clients go to the one that Metadata names.
The preferred leader is the one that a reassignment names first; without a reassignment it is a broker that leads
fewer. A leader is never one that lost what was acknowledged, so an unclean election is the same as the other.
Where all partitions are meant, those without need of one are left out. A node that is alone leads all it has.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ELECT_LEADERS,
    name="ElectLeaders",
    access=Access.by_handler(
        on_cluster(
            Operation.ALTER, refused_at="replica_election_results[].partition_result[].error_code", versions=range(1)
        ),
        on_cluster(Operation.ALTER, versions=range(1, 100)),
    ),
    min_version=0,
    max_version=2,
)

PREFERRED, UNCLEAN = 0, 1
WITH_ERROR = 1
"""The first version whose response has an error of its own."""


async def handle(broker: "Broker", request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    try:
        context.access.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        return await _elect_asked(broker, request)
    except RequestError as error:
        if context.api_version >= WITH_ERROR:
            raise
        return _refused(request, error)


async def _elect_asked(broker: "Broker", request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Election type {request.election_type} is unknown.")
    means_all = request.topic_partitions is None
    if request.topic_partitions is None:
        wanted = {topic.name: list(range(topic.partition_count)) for topic in broker.catalog}
    else:
        wanted = {asked.topic: list(dict.fromkeys(asked.partitions)) for asked in request.topic_partitions}
    found: dict[tuple[str, int], PartitionId | RequestError] = {
        (topic, index): _find(broker, topic, index) for topic, indexes in wanted.items() for index in indexes
    }
    elected = await _elect(broker, [each for each in found.values() if isinstance(each, PartitionId)])
    results = []
    for topic, indexes in wanted.items():
        answers = [_answer(index, found[topic, index], elected) for index in indexes]
        if means_all:
            answers = [answer for answer in answers if answer.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if answers:
            results.append(ReplicaElectionResult(topic=topic, partition_result=answers))
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results)


def _refused(request: ElectLeadersRequest, error: RequestError) -> ElectLeadersResponse:
    """In every partition: the response has no error of its own."""
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
    )


def _find(broker: "Broker", topic: str, index: int) -> PartitionId | RequestError:
    try:
        return broker.catalog.topic(topic).partition_id(index)
    except RequestError as error:
        return error


async def _elect(broker: "Broker", partitions: Sequence[PartitionId]) -> Mapping[PartitionId, bool]:
    if broker.member is None:
        return {}
    try:
        return await broker.member.controlling().elect_leaders(partitions)
    except (Unavailable, Unknown) as error:
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store does not answer: {error}") from error


def _answer(index: int, found: PartitionId | RequestError, elected: Mapping[PartitionId, bool]) -> PartitionResult:
    if isinstance(found, RequestError):
        return PartitionResult(partition_id=index, error_code=found.code, error_message=found.message)
    if elected.get(found):
        return PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
    return PartitionResult(
        partition_id=index, error_code=ErrorCode.ELECTION_NOT_NEEDED, error_message="The leader is the preferred one."
    )
