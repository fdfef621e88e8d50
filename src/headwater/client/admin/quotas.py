"""Quotas of clients: which entities have some, and setting and removing them."""

from collections.abc import Mapping, Sequence

from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.quota_entities import MatchType, QuotaEntity
from headwater.wire.typed.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from headwater.wire.typed.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EntityQuotas = tuple[QuotaEntity, dict[str, float]]
"""Limits by Kafka's keys, also by those that this version does not know."""


def describe_quotas(entity: QuotaEntity | None = None) -> Question[list[EntityQuotas]]:
    """Of all entities, or of one."""

    def read(response: DescribeClientQuotasResponse) -> list[EntityQuotas]:
        check(response.error_code, response.error_message, "The list of quotas")
        return [
            (
                _entity([(each.entity_type, each.entity_name) for each in entry.entity]),
                {each.key: each.value for each in entry.values},
            )
            for entry in response.entries or ()
        ]

    return question(DescribeClientQuotasRequest(components=_components(entity), strict=entity is not None), read)


def alter_quotas(
    entity: QuotaEntity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> Question[None]:
    """None removes a limit. The code is INVALID_REQUEST for one that the entity cannot have."""

    def read(response: AlterClientQuotasResponse) -> None:
        for entry in response.entries:
            check(entry.error_code, entry.error_message, f"The quotas of {entity}")

    changes = [
        OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in values.items()
    ]
    parts = [EntityData(entity_type=kind.value, entity_name=name) for kind, name in entity.parts]
    return question(
        AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=changes)], validate_only=validate_only), read
    )


def _components(entity: QuotaEntity | None) -> Sequence[ComponentData]:
    if entity is None:
        return ()
    return [
        ComponentData(
            entity_type=kind.value, match_type=MatchType.DEFAULT if name is None else MatchType.EXACT, match=name
        )
        for kind, name in entity.parts
    ]


def _entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    try:
        return QuotaEntity.of(parts)
    except RequestError as error:
        check(ErrorCode.UNKNOWN_SERVER_ERROR, error.message, "An entity that the broker has")
        raise
