"""A configuration is what its file and its overrides say, or a message that names what is wrong."""

import re
from pathlib import Path

import pytest

from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.broker.settings.topic_config import TopicConfig, candidates
from headwater.model.config_key import ConfigSource
from headwater.model.replica import Durability


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def load(file: Path, text: str) -> BrokerConfig:
    file.write_text(text)
    return BrokerConfig.load(file)


def test_without_a_file_everything_has_its_default() -> None:
    config = BrokerConfig.load(None)
    assert config == BrokerConfig()
    assert config.listen == ("127.0.0.1", 9092)
    assert config.metrics == ("127.0.0.1", 9644)
    assert config.durability is Durability.SYNC
    assert config.metadata_url == "sqlite:headwater-data/metadata.db"


def test_a_file_sets_what_it_names_and_leaves_the_rest(file: Path) -> None:
    config = load(
        file,
        """
        node_id = 7
        data_dir = "/var/lib/headwater"
        listen = "192.0.2.1:9092"
        insecure = true
        advertise = "[fe80::1]:19092"
        metrics = "off"
        durability = "os"
        auto_create_topics = false

        [limits]
        max_connections = 20
        idle_timeout_s = 5

        [groups]
        group_initial_rebalance_delay_ms = 3000

        [storage]
        tail_cache_bytes = 10_000_000_000
        """,
    )
    assert (config.node_id, config.max_connections, config.auto_create_topics) == (7, 20, False)
    assert config.data_dir == Path("/var/lib/headwater")
    assert str(config.advertise) == "[fe80::1]:19092"
    assert config.metrics is None
    assert config.idle_timeout_s == 5.0
    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.tail_cache_bytes == 10_000_000_000
    assert config.max_request_bytes == BrokerConfig().max_request_bytes
    assert config.topic_defaults.topic.durability is Durability.OS


def test_a_setting_may_stand_outside_its_table(file: Path) -> None:
    assert load(file, "max_connections = 3").max_connections == 3


def test_overrides_win_over_the_file_and_none_means_not_given(file: Path) -> None:
    file.write_text('listen = "127.0.0.1:1"\nnode_id = 2\n')
    config = BrokerConfig.load(file, listen="127.0.0.1:0", node_id=None, data_dir=file.parent)
    assert (config.listen.port, config.node_id, config.data_dir) == (0, 2, file.parent)


def test_topic_defaults_take_kafkas_names_quoted_dotted_or_as_the_brokers_synonym(file: Path) -> None:
    config = load(
        file,
        """
        [topic]
        "retention.ms" = 1000
        segment.bytes = 2048
        "log.cleanup.policy" = ["compact", "delete"]
        preallocate = true
        "min.cleanable.dirty.ratio" = 0.25
        "headwater.durability" = "os"
        """,
    )
    topic = config.topic_defaults.topic
    assert (topic.retention_ms, topic.segment_bytes, topic.preallocate) == (1000, 2048, True)
    assert topic.is_compacted and topic.is_deleted
    assert topic.min_cleanable_dirty_ratio == 0.25
    assert topic.durability is Durability.OS


def test_the_brokers_durability_is_a_default_that_a_topic_may_override() -> None:
    defaults = BrokerConfig.load(None, durability="os").topic_defaults
    assert TopicConfig.parse({}, defaults).durability is Durability.OS
    assert TopicConfig.parse({"durability": "sync"}, defaults).durability is Durability.SYNC
    assert candidates("headwater.durability", {}, defaults)[0].source == ConfigSource.STATIC_BROKER_CONFIG


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lisen = 'x:1'", "unknown key 'lisen'; did you mean 'listen'?"),
        ("[limit]\nx = 1", "unknown key 'limit'; did you mean 'limits'?"),
        ("[limits]\nmax_conections = 1", "[limits]: unknown key 'max_conections'; did you mean 'max_connections'?"),
        ("[limits]\ntail_cache_bytes = 1", "[limits]: key 'tail_cache_bytes' belongs to [storage]"),
        ("[limits]\nnode_id = 1", "[limits]: key 'node_id' belongs to the top of the file"),
        ("max_connections = 1\n[limits]\nmax_connections = 1", "key 'max_connections' is given twice"),
        ("limits = 3", "[limits] must be a table"),
        ("zzzzzz = 1", "unknown key 'zzzzzz'"),
        ("node_id = 'one'", "node_id = 'one': a whole number from 0 to 2147483647 is needed"),
        ("node_id = -1", "node_id = -1: a whole number from 0"),
        ("node_id = true", "node_id = True: a whole number"),
        ("node_id = 4294967296", "a whole number from 0 to 2147483647"),
        ("auto_create_topics = 1", "auto_create_topics = 1: true or false is needed"),
        ("idle_timeout_s = 0", "a number of seconds above 0 is needed"),
        ("idle_timeout_s = nan", "a number of seconds above 0 is needed"),
        ("data_dir = ''", "a path is needed"),
        ("listen = 9092", "HOST:PORT is needed"),
        ("listen = '9092'", "HOST:PORT is needed"),
        ("listen = '::1:9092'", "HOST:PORT is needed"),
        ("listen = 'a:99999'", "a port is at most 65535"),
        ("listen = 'a:-1'", "HOST:PORT is needed"),
        ("listen = 'off'", "HOST:PORT is needed"),
        ("advertise = 'a:0'", "advertise needs the port that clients connect to"),
        ("durability = 'fast'", '"sync" or "os" is needed'),
        ("group_min_session_timeout_ms = 2000000", "is above group_max_session_timeout_ms"),
        ("topic = 3", "a table of topic configs is needed"),
        ("[topic]\n'retention.m' = 3", "did you mean retention.ms?"),
        ("[topic]\n'retention.ms' = 'x'", "retention.ms: whole numbers from -1 up"),
        ("[topic]\n'retention.ms' = 1979-05-27", "must be a text, a number"),
        ("node_id = ", "is not TOML"),
        ("\x00", "is not TOML"),
    ],
)
def test_a_mistake_stops_the_start_and_is_named_with_its_file(file: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        load(file, text)
    assert str(file) in str(caught.value)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
        BrokerConfig.load(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        BrokerConfig.load(tmp_path)


def test_a_file_of_the_wrong_encoding_or_size_is_refused(file: Path) -> None:
    file.write_bytes(b'listen = "\xff\xfe"')
    with pytest.raises(ConfigError, match="is not TOML"):
        BrokerConfig.load(file)
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="at most"):
        BrokerConfig.load(file)


def test_an_unknown_override_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown key 'durabilty'; did you mean 'durability'"):
        BrokerConfig.load(None, durabilty="os")
