"""All shapes of requests."""

from typing import Final

from tests.broker.access.matrix.case import Case
from tests.broker.access.matrix.cases import (
    cluster,
    groups,
    quotas,
    records,
    settings,
    share_groups,
    topics,
    transactions,
)

CASES: Final[tuple[Case, ...]] = (
    *records.CASES,
    *topics.CASES,
    *settings.CASES,
    *groups.CASES,
    *share_groups.CASES,
    *transactions.CASES,
    *cluster.CASES,
    *quotas.CASES,
)
