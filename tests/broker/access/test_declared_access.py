"""What APIs ask of clients: each says it, and names places that its requests and responses have."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headwater.broker.access.declared_access import LEFT_OUT, Access, AccessCheck, on_cluster, on_group, on_topic
from headwater.broker.api import Api
from headwater.broker.dispatch import load_handlers
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import Struct, request_schema, response_schema

APIS = sorted((entry.api for entry in load_handlers().values()), key=lambda api: api.key)
BY_ID = {"name": "topic_id", "topic": "topic_id"}
"""In versions where a topic has no name, it has an id."""


def checks_of(api: Api) -> Iterator[AccessCheck]:
    for check in api.access.checks:
        yield check
        if check.or_else is not None:
            yield replace(check.or_else, versions=check.versions)


def has(struct: Struct, path: str) -> bool:
    """Whether messages have this place: names with dots between them, `[]` behind those of arrays."""
    name, _, rest = path.partition(".")
    is_array = name.endswith("[]")
    field = next((each for each in struct.fields if each.name == name.removesuffix("[]")), None)
    if field is None or field.is_array is not is_array:
        return False
    return not rest or (isinstance(field.type, Struct) and has(field.type, rest))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_places_of_names_and_errors_exist_in_every_version(api: Api) -> None:
    for check in checks_of(api):
        versions = [each for each in range(api.min_version, api.max_version + 1) if each in check.versions]
        assert versions, f"{check} is for no version"
        for version in versions:
            if check.named_at:
                head, dot, last = check.named_at.rpartition(".")
                paths = {check.named_at, f"{head}{dot}{BY_ID.get(last, last)}"}
                assert any(has(request_schema(api.key, version), path) for path in paths), (version, check)
            if check.refused_at != LEFT_OUT:
                assert has(response_schema(api.key, version), check.refused_at), (version, check)


def test_only_what_comes_before_a_login_and_the_list_of_nodes_is_open() -> None:
    open_apis = [api.key for api in APIS if api.access.open_because]
    assert open_apis == [
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_CLUSTER,
    ]


def test_an_api_that_says_nothing_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="access"):
        Api(key=ApiKey.HEARTBEAT, name="Heartbeat", min_version=0, max_version=4)  # type: ignore[call-arg]
    with pytest.raises(AssertionError, match="says why"):
        Access()


def test_what_the_dispatcher_checks_is_named_and_refused_at_the_top() -> None:
    for check in (
        on_topic(Operation.READ, "topics[].name", refused_at="error_code"),
        on_group(Operation.READ, refused_at="groups[].error_code"),
        on_cluster(Operation.ALTER, versions=range(3)),
        on_cluster(Operation.CREATE, or_else=on_topic(Operation.CREATE, "name", refused_at="error_code")),
        AccessCheck(operation=Operation.READ, resource_type=ResourceType.GROUP),
    ):
        with pytest.raises(AssertionError):
            Access.first(check)
