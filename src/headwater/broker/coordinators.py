"""The coordinators of a broker: groups, share groups and transactions, and what stands between them and the partitions.

They are built in the order in which they use each other, and read their internal topics in the background.
"""

from dataclasses import dataclass

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.groups.group_positions import GroupPositions
from headwater.broker.housekeeping.consumed_positions import ConsumedPositions
from headwater.broker.lifetime import Lifetime
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.queues.share_admin import ShareAdmin
from headwater.broker.queues.share_coordinator import ShareCoordinator
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.group_configs import GroupConfigs
from headwater.broker.topics.catalog import Catalog
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.broker.transactions.transaction_admission import TransactionAdmission
from headwater.broker.transactions.transaction_coordinator import TransactionCoordinator
from headwater.broker.transactions.transaction_gate import TransactionGate
from headwater.broker.validation.schema_follower import SchemaFollower
from headwater.broker.validation.schema_gate import SchemaGate
from headwater.metadata.store import MetaStore
from headwater.model.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    group_configs: GroupConfigs
    groups: GroupCoordinator
    shares: ShareCoordinator
    share_admin: ShareAdmin
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    admissions: TransactionAdmission
    transaction_gate: TransactionGate
    schema_gate: SchemaGate
    subscriptions: ConsumedPositions

    def configure(self, config: BrokerConfig) -> None:
        """Settings of the broker were altered."""
        self.group_configs.configure(config)
        self.groups.configure(config)
        self.shares.configure(config)
        self.transactions.configure(config)


def start_coordinators(
    catalog: Catalog,
    group_configs: GroupConfigs,
    nodes: NodeClient,
    metadata: MetaStore,
    config: BrokerConfig,
    clock: Clock,
    lifetime: Lifetime,
) -> Coordinators:
    spawn = lifetime.spawn
    groups = GroupCoordinator(
        catalog,
        config,
        clock,
        spawn,
        is_durable=lambda group_id: group_configs.subscription(group_id).is_explicit,
        own_times=group_configs.consumer_times,
    )
    groups.start()
    shares = ShareCoordinator(catalog, groups, group_configs, config, clock, spawn, nodes)
    shares.start()
    producer_ids = ProducerIds(metadata)
    transactions = TransactionCoordinator(catalog, groups, producer_ids, config, clock, spawn, nodes)
    transactions.start()
    admissions = TransactionAdmission(transactions, groups, nodes)
    return Coordinators(
        group_configs=group_configs,
        groups=groups,
        shares=shares,
        share_admin=ShareAdmin(catalog, shares, nodes),
        producer_ids=producer_ids,
        transactions=transactions,
        admissions=admissions,
        transaction_gate=TransactionGate(admissions),
        schema_gate=SchemaGate(SchemaFollower(catalog, nodes, clock, spawn)),
        subscriptions=ConsumedPositions(
            catalog, group_configs, [shares.positions], GroupPositions(groups, nodes).collect
        ),
    )
