"""What `check` says about pipeline files: every mistake with its line, before Spark is there."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.pipelines.spec.check import load
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.mistakes import BadPipeline
from headwater.pipelines.templates.catalog import pipeline_template, pipeline_templates

Write = Callable[[str], Path]
GOOD = '''\
[source.orders]
kind = "topic"
topic = "orders"

[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = "id string not null, at timestamp, amount double"
dead_letters = "orders.bad"

[step.per_minute]
kind = "window"
input = "valid"
time = "at"
size = "1 minute"
watermark = "10m"
aggregates = { orders = "count(*)", revenue = "sum(amount)" }

[step.large]
kind = "sql"
sql = """
select window_start, revenue
from per_minute
where revenue > 1000
"""

[sink.out]
kind = "topic"
input = "large"
topic = "large-minutes"
key = "window_start"
'''


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        file = tmp_path / "shop.toml"
        file.write_text(text)
        return file

    return write_file


def mistakes(file: Path) -> list[tuple[int, str]]:
    with pytest.raises(BadPipeline) as caught:
        load(file)
    assert all(mistake.location.file == str(file) for mistake in caught.value.mistakes)
    return [(mistake.location.line, mistake.what) for mistake in caught.value.mistakes]


def only_mistake(file: Path) -> tuple[int, str]:
    (mistake,) = mistakes(file)
    return mistake


def test_a_good_file_becomes_a_graph(write: Write) -> None:
    graph = load(write(GOOD))
    assert graph.pipeline.name == "shop"
    assert [step.name for step in graph.steps_in_order] == ["valid", "per_minute", "large"]
    assert graph.needed_by(graph.pipeline.sinks[0]) == {"orders", "valid", "per_minute", "large"}
    assert graph.is_stream == {"orders": True, "valid": True, "per_minute": True, "large": True}
    assert graph.unused == ()


def test_the_order_in_the_file_does_not_matter(write: Write) -> None:
    parts = GOOD.split("\n\n")
    graph = load(write("\n\n".join(reversed(parts))))
    assert [step.name for step in graph.steps_in_order] == ["valid", "per_minute", "large"]


@pytest.mark.parametrize(
    ("good", "bad", "where", "says"),
    [
        ('topic = "orders"', 'topc = "orders"', "topc", "source orders has no key topc. Did you mean topic?"),
        ('topic = "orders"', "", "[source.orders]", "source orders lacks topic: the topic to read."),
        ('topic = "orders"', 'topic = "or ders"', "or ders", "source orders: topic needs the name of a topic"),
        ('topic = "orders"', "topic = 3", "topic = 3", "source orders: topic needs the name of a topic"),
        ('size = "1 minute"', 'size = "a minute"', "a minute", "step per_minute: size needs a length of time"),
        ('kind = "window"', 'kind = "windwo"', "windwo", "There is no kind 'windwo' of step. Did you mean window?"),
        ('kind = "window"', "", "[step.per_minute]", "step per_minute lacks kind: one of deduplicate, join"),
        ("from per_minute", "from a, b", "from a, b", "step large reads a, which is no source or step. There is:"),
        ("from per_minute", "from per_minuet", "from per_minuet", "step large reads per_minuet, which is no source"),
        ('input = "large"', 'input = "orderss"', "orderss", "sink out reads orderss, which is no source or step. Did"),
        (
            'format = "json"',
            'format = "yaml"',
            "yaml",
            "step valid: format needs one of: json, csv, text, avro, protobuf.",
        ),
        ("[step.large]", "[step.ORDERS]", "ORDERS", "step ORDERS has the name of source orders in line 1."),
        ("[step.large]", '[step."so large"]', "so large", "step so large needs a name of letters"),
        ('watermark = "10m"', 'gap = "10m"', "size =", "step per_minute: give either size (windows of one length)"),
        ('watermark = "10m"', "", "[step.per_minute]", "step per_minute needs a watermark"),
        ("revenue =", '"a b" =', "aggregates", "step per_minute: aggregates needs a name of letters"),
        ("revenue =", "orders =", "aggregates", "This is no TOML: "),
        ('kind = "sql"', 'kind = "sql', 'kind = "sql', "This is no TOML: "),
    ],
)
def test_a_mistake_is_found_in_its_line(write: Write, good: str, bad: str, where: str, says: str) -> None:
    assert good in GOOD
    text = GOOD.replace(good, bad, 1)
    (line,) = [line for line, what in mistakes(write(text)) if what.startswith(says)]
    assert line == text[: text.index(where)].count("\n") + 1


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    text = '[source.a]\nkind = "topic"\nx = 1\ny = 2\n[sink.b]\nkind = "console"\nrows = 0\n'
    assert [line for line, _ in mistakes(write(text))] == [1, 3, 4, 5, 7]


BAD = """\
triger = "1s"
[source.orders]
kind = "topic"
topic = "or ders"
[source.customers]
kind = "files"
format = "csv"
path = "customers.csv"
schema = "id strng, name string"
stream = false
[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = '''order_id strng,
    at timestamp, amount doubl, items array<struct<product: strin>>'''
[step.good]
kind = "parse"
input = "orders"
format = "json"
schema = "id string, at timestamp, amount double"
[step.chosen]
kind = "sql"
sql = "selct * from valid"
[step.large]
kind = "sql"
sql = '''
select id, amuont
from good
where uper(id) = cast(amount as strng)'''
[step.minutes]
kind = "window"
input = "good"
time = "att"
size = "1m"
watermark = "1m"
by = ["product"]
[step.minutes.aggregates]
revenue = "sum(amount"
most = "max(amont)"
[step.other]
kind = "sql"
colour = "blue"
sql = "select from valid"
[step.pair]
kind = "join"
left = "good"
right = "customers"
on = "left.idd = right.id"
[sink.out]
kind = "topic"
input = "minuts"
topic = "out"
[sink.files]
kind = "parquet"
input = "good"
path = "files"
partition_by = ["day"]
[sink.keyed]
kind = "topic"
input = "good"
topic = "keyed"
key = "order_id"
headers = { big = "amount >" }
[sink.rows]
kind = "table"
input = "good"
url = "sqlite:x.db"
table = "rows"
key = ["idd"]
delete_when = "status = 'gone'"
"""


def test_every_mistake_of_a_file_is_found_in_one_pass_each_in_its_line(write: Write) -> None:
    """Of keys, names, schemas, queries, expressions, types, functions and columns: none keeps another from being
    found, and a part that cannot be read is not a part that does not exist."""
    found = mistakes(write(BAD))
    wanted = {
        'triger = "1s"': "has no key triger",
        'topic = "or ders"': "topic needs the name of a topic",
        'schema = "id strng, name': "source customers, schema: there is no type strng. Did you mean string?",
        "schema = '''order_id": "step valid, schema: there is no type strng.",
        "    at timestamp, amount doubl,": "step valid, schema: there is no type doubl. Did you mean double?",
        'sql = "selct': "step chosen: it is no SQL that Spark reads: look at “selct * from”.",
        "select id, amuont": "step large: there is no column amuont. Did you mean amount?",
        "where uper": "step large: there is no type strng.",
        'time = "att"': "step minutes, time: there is no column att. Did you mean at?",
        'by = ["product"]': "step minutes, by: there is no column product.",
        "revenue =": "step minutes, aggregates.revenue: it is no SQL that Spark reads",
        "most =": "step minutes, aggregates.most: there is no column amont. Did you mean amount?",
        'colour = "blue"': "step other has no key colour",
        'sql = "select from': "step other: it selects nothing",
        'on = "left.idd': "step pair, on: left has no column idd. Did you mean id?",
        'input = "minuts"': "sink out reads minuts, which is no source or step. Did you mean minutes?",
        "partition_by": "sink files, partition_by: there is no column day.",
        'key = "order_id"': "sink keyed, key: there is no column order_id.",
        "headers = ": "sink keyed, headers.big: it is no SQL that Spark reads",
        'key = ["idd"]': "sink rows, key: there is no column idd. Did you mean id?",
        "delete_when": "sink rows, delete_when: there is no column status.",
    }
    for where, says in wanted.items():
        line = BAD[: BAD.index(where)].count("\n") + 1
        assert [what for at, what in found if at == line and says in what], (where, says, found)
    assert len(found) == len(wanted) + 1, found  # one line has two types that do not exist


def test_a_function_is_unknown_only_where_no_other_than_those_of_spark_can_be(write: Write, tmp_path: Path) -> None:
    text = GOOD.replace("where revenue > 1000", "where geo_hash(revenue) > 1000")
    assert only_mistake(write(text))[1] == "step large: there is no function geo_hash. Did you mean hash?"
    assert isinstance(load(write(text + '\n[spark]\n"spark.sql.extensions" = "org.example.Geo"\n')), Graph)
    (tmp_path / "geo.py").write_text("def register(orders): ...\n")
    step = '\n[step.g]\nkind = "python"\nfunction = "geo:register"\ninputs = ["orders"]\n'
    assert isinstance(load(write(text + step)), Graph)


def test_a_mistake_that_only_spark_is_sure_of_does_not_keep_a_run_from_asking_spark(write: Write) -> None:
    unsure = write(GOOD.replace("where revenue > 1000", "where geo_hash(revenue) > 1000"))
    assert isinstance(load(unsure, is_spark_next=True), Graph)
    with pytest.raises(BadPipeline, match="there is no column revenu"):
        load(write(GOOD.replace("where revenue > 1000", "where revenu > 1000")), is_spark_next=True)


@pytest.mark.parametrize("name", [each.name for each in pipeline_templates()])
def test_the_pipelines_that_are_ready_are_fine(tmp_path: Path, name: str) -> None:
    """Together with their columns: a name that is wrong is found, so the others are right."""
    pipeline_template(name).copy_to(tmp_path)
    assert load(tmp_path / f"{name}.toml").unused == ()


def test_columns_that_only_spark_knows_are_not_missed(write: Write) -> None:
    for part in (
        'kind = "files"\nformat = "parquet"\npath = "orders/"\nschema = "id string"',  # day=2026-01-31 in its paths
        'kind = "files"\nformat = "csv"\nstream = false\npath = "orders.csv"',
        'kind = "jdbc"\nurl = "jdbc:x"\ntable = "t"',
    ):
        step = '[step.s]\nkind = "sql"\nsql = "select id, day from a, b"\n[sink.x]\nkind = "console"\ninput = "s"\n'
        assert isinstance(load(write(f'[source.a]\n{part}\n[source.b]\nkind = "topic"\ntopic = "b"\n{step}')), Graph)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id string, ID int", "its schema has twice ID."),
        ("offset long", "keep and schema both name offset."),
        ("id varchar(3)", "id is of type varchar, which is for tables of a catalog: take string."),
    ],
)
def test_a_schema_fits_the_step_that_has_it(write: Write, schema: str, says: str) -> None:
    step = f'[step.p]\nkind = "parse"\ninput = "a"\nformat = "json"\nkeep = ["offset"]\nschema = "{schema}"\n'
    text = f'[source.a]\nkind = "topic"\ntopic = "a"\n{step}[sink.x]\nkind = "console"\ninput = "p"\n'
    assert only_mistake(write(text)) == (9, f"step p: {says}")


def test_a_circle_is_drawn(write: Write) -> None:
    text = (
        '[source.s]\nkind = "topic"\ntopic = "s"\n'
        '[step.a]\nkind = "sql"\nsql = "select * from b join s"\n'
        '[step.b]\nkind = "sql"\nsql = "select * from c"\n'
        '[step.c]\nkind = "sql"\nsql = "select * from a"\n'
        '[sink.x]\nkind = "console"\ninput = "a"\n'
    )
    assert only_mistake(write(text)) == (4, "These steps read each other in a circle: a → b → c → a.")


def test_a_query_that_only_spark_can_parse_still_has_its_place_in_the_order(write: Write) -> None:
    query = "from per_minute |> set revenue = revenue / 100 |> where large > 1 and revenue in (1, missing)"
    text = GOOD.replace("select window_start, revenue\nfrom per_minute\nwhere revenue > 1000", query)
    assert load(write(text)).reads["large"] == ("per_minute",)


def test_without_sqlglot_the_parts_still_find_each_other(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    monkeypatch.delitem(sys.modules, "headwater.pipelines.spec.sql_grammar", raising=False)
    assert load(write(GOOD)).reads["large"] == ("per_minute",)


def test_a_file_without_source_or_sink_says_what_to_write(write: Write) -> None:
    assert [what.partition(":")[0] for _, what in mistakes(write(""))] == ["There is no sink", "There is no source"]


def test_what_nothing_reads_is_no_mistake_but_known(write: Write) -> None:
    text = GOOD + '\n[source.idle]\nkind = "topic"\ntopic = "idle"\n'
    assert load(write(text)).unused == ("idle",)


def test_unknown_keys_at_the_top_are_found(write: Write) -> None:
    assert only_mistake(write('triger = "1s"\n' + GOOD)) == (1, "the pipeline has no key triger. Did you mean trigger?")


def test_a_table_that_is_none_is_explained(write: Write) -> None:
    assert "Write [sink.NAME]" in only_mistake(write('sink = 3\n[source.a]\nkind = "topic"\ntopic = "a"\n'))[1]
    assert "is no table" in mistakes(write("sink.a = 3\n"))[1][1]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ('minPartition = "3"', "source orders: Option minpartition is unknown. Did you mean minPartitions?"),
        ('minPartitions = "few"', "minPartitions"),
        ("kafka.nope = 1", "kafka.nope is unknown"),
        ('endingOffsets = "latest"', "is for batch queries"),
    ],
)
def test_options_of_the_source_are_judged_before_spark_starts(write: Write, option: str, says: str) -> None:
    line, what = only_mistake(write(GOOD.replace('topic = "orders"', f'topic = "orders"\noptions = {{ {option} }}', 1)))
    assert says in what and line > 1


def test_options_of_the_sink_are_judged_before_spark_starts(write: Write) -> None:
    sink = '[sink.more]\nkind = "topic"\ninput = "orders"\ntopic = "more"\noptions = { compresion = "lz4" }\n'
    _, what = only_mistake(write(GOOD + sink))
    assert what == "sink more: Option compresion is unknown. Did you mean compression?"


def test_passwords_come_from_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '[source.s]\nkind = "topic"\ntopic = "s"\n'
        '[sink.t]\nkind = "table"\ninput = "s"\nurl = "postgresql://u:${SHOP_PASSWORD}@h/d"\ntable = "t"\n'
    )
    assert only_mistake(write(text)) == (
        7,
        "sink t: url needs the environment variable SHOP_PASSWORD, which is not set.",
    )
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    assert "u:secret@h" in load(write(text)).pipeline.sinks[0].does.url  # type: ignore[union-attr]


def test_a_password_for_a_topic_is_not_in_the_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(password: str) -> str:
        login = f'"kafka.sasl.mechanism" = "PLAIN", "kafka.sasl.username" = "u", kafka.sasl.password = "{password}"'
        options = f'options = {{ "kafka.security.protocol" = "SASL_SSL", {login} }}\n'
        return f'[source.s]\nkind = "topic"\ntopic = "s"\n{options}[sink.t]\nkind = "console"\ninput = "s"\n'

    _, what = only_mistake(write(text("hush")))
    assert 'options needs kafka.sasl.password from the environment, as "${NAME}": a file holds no passwords' in what
    assert "hush" not in what
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    (source,) = load(write(text("${SHOP_PASSWORD}"))).pipeline.sources
    assert source.does.options["kafka.sasl.password"] == "secret"  # type: ignore[union-attr]


def _joined(write: Write, right: str, join: str) -> Path:
    return write(
        '[source.a]\nkind = "topic"\ntopic = "a"\n'
        f"[source.b]\n{right}\n"
        f'[step.j]\nkind = "join"\nleft = "a"\nright = "b"\n{join}\n'
        '[sink.x]\nkind = "console"\ninput = "j"\n'
    )


TABLE = 'kind = "files"\npath = "b.csv"\nformat = "csv"\nstream = false'
STREAM = 'kind = "topic"\ntopic = "b"'
TIMES = 'left_time = "timestamp"\nright_time = "timestamp"\nwithin = "1m"\nwatermark = "1m"'


def test_joins_of_streams_need_a_time(write: Write) -> None:
    assert "how far matching rows lie apart" in only_mistake(_joined(write, STREAM, 'using = ["key"]'))[1]
    assert isinstance(load(_joined(write, STREAM, f'using = ["key"]\n{TIMES}')), Graph)
    assert isinstance(load(_joined(write, TABLE, 'using = ["key"]')), Graph)


def test_a_second_watermark_is_refused(write: Write) -> None:
    late = '[step.late]\nkind = "watermark"\ninput = "valid"\ntime = "at"\ndelay = "1h"\n'
    text = GOOD.replace('input = "valid"', 'input = "late"') + late
    line, what = only_mistake(write(text))
    assert (line, "the watermark of step late already" in what) == (17, True)
    assert isinstance(load(write(text.replace('watermark = "10m"\n', ""))), Graph)


def test_a_stream_and_a_table_have_no_full_join(write: Write) -> None:
    line, what = only_mistake(_joined(write, TABLE, 'using = ["key"]\nhow = "full"'))
    assert (line, "no full join, but: inner, left, left_semi, left_anti" in what) == (14, True)


def test_a_join_has_one_condition(write: Write) -> None:
    for join in ("", 'on = "left.key = right.key"\nusing = ["key"]'):
        assert "give either on" in only_mistake(_joined(write, TABLE, join))[1]


def test_tables_alone_make_no_stream(write: Write) -> None:
    text = f'[source.b]\n{TABLE}\n[sink.x]\nkind = "console"\ninput = "b"\n'
    assert "rests on tables alone" in only_mistake(write(text))[1]


def test_python_functions_are_looked_for_without_running_them(write: Write, tmp_path: Path) -> None:
    (tmp_path / "enrich.py").write_text("raise SystemExit('not to be run')\ndef add_country(df): ...\n")

    def file(function: str) -> Path:
        step = f'[step.e]\nkind = "python"\nfunction = "{function}"\ninputs = ["a"]\n'
        return write(f'[source.a]\nkind = "topic"\ntopic = "a"\n{step}[sink.x]\nkind = "console"\ninput = "e"\n')

    assert isinstance(load(file("enrich:add_country")), Graph)
    assert "enrich.py has no add_contry. Did you mean add_country?" in only_mistake(file("enrich:add_contry"))[1]
    assert "no module nowhere" in only_mistake(file("nowhere:f"))[1]
    assert "module:function" in only_mistake(file("enrich.add_country"))[1]
    (tmp_path / "enrich.py").write_text("def (:\n")
    assert only_mistake(file("enrich:f")) == (6, "step e: enrich.py does not parse in line 1: invalid syntax.")


def test_files_that_cannot_be_read_are_mistakes_too(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in mistakes(tmp_path / "none.toml")[0][1]
    assert "is a .toml file or a .py module" in mistakes(tmp_path / "shop.yml")[0][1]
    (tmp_path / "bytes.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    assert mistakes(tmp_path / "bytes.toml") == [(2, "This is no UTF-8.")]
    (tmp_path / "large.toml").write_bytes(b"#" * (1024 * 1024 + 1))
    assert "larger than" in mistakes(tmp_path / "large.toml")[0][1]
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    assert len(mistakes(tmp_path / "deep.toml")) == 1


def test_many_joins_of_joins_are_judged_at_once(write: Write) -> None:
    text = '[source.j0]\nkind = "topic"\ntopic = "a"\n[sink.x]\nkind = "console"\ninput = "j100"\n'
    for number in range(100):
        sides = f'left = "j{number}"\nright = "j{number}"\n'
        text += f'[step.j{number + 1}]\nkind = "join"\n{sides}using = ["key"]\n{TIMES}\n'
    assert len(load(write(text)).steps_in_order) == 100
