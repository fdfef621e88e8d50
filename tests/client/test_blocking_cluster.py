"""The cluster whose calls block, against a scripted broker."""

from contextlib import closing

import pytest

from headwater.client.admin.groups import delete_group
from headwater.client.blocking_cluster import BlockingCluster, retried
from headwater.client.errors import BrokerRefused
from headwater.client.settings import ConnectionSettings
from headwater.model.errors import ErrorCode
from headwater.wire.api_keys import ApiKey
from headwater.wire.messages import RequestHeader
from headwater.wire.typed.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headwater.wire.typed.find_coordinator import Coordinator, FindCoordinatorResponse
from tests.client.scripted_broker import TIMEOUT_S, after_handshake, response, scripted_broker

SERVED = [(ApiKey.API_VERSIONS, 0, 4), (ApiKey.FIND_COORDINATOR, 0, 4), (ApiKey.DELETE_GROUPS, 0, 2)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.NON_EMPTY_GROUP])
def test_the_coordinator_is_looked_up_again_after_it_refused(code: ErrorCode) -> None:
    asked: list[int] = []
    port = 0

    def answer(header: RequestHeader) -> bytes:
        asked.append(header.api_key)
        if header.api_key == ApiKey.FIND_COORDINATOR:
            return response(
                header, FindCoordinatorResponse(coordinators=[Coordinator(key="g", host="127.0.0.1", port=port)])
            )
        refusal = code if asked.count(ApiKey.DELETE_GROUPS) == 1 else ErrorCode.NONE
        return response(header, DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=refusal)]))

    with (
        scripted_broker(after_handshake(answer, SERVED)) as address,
        closing(BlockingCluster([address], ConnectionSettings(client_id="test"))) as cluster,
    ):
        port = address.port
        with pytest.raises(BrokerRefused):
            cluster.answer(delete_group("g"))
        retried(lambda: cluster.answer(delete_group("g")), patience_s=TIMEOUT_S)
        cluster.answer(delete_group("g"))
    assert asked == 2 * [ApiKey.FIND_COORDINATOR, ApiKey.DELETE_GROUPS] + [ApiKey.DELETE_GROUPS]
