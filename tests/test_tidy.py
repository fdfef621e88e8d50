"""What can be tested of the style: sizes, names, and words. By text and syntax tree alone; nothing is imported.

Each rule has a table of exceptions, with a reason each. An exception that is not needed any more fails, too.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src/headwater"
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
"""Of code: without the docstring, comments and blank lines."""

LARGE_FILES = {
    "broker/settings/broker_config.py": "one table: every setting of a broker",
}
LONG_FUNCTIONS = {
    "records/record.py:layouts": "measured: a call for each varint took thrice as long",
}
SHARED_CLASS_NAMES = {
    "Broker": "the server, and its face in tests: both are public",
    "ClusterView": "what a client knows of a cluster, and what the machines of replication are given of it",
    "Node": "the record in the metadata, and the HTTP body of the same name in the OpenAPI document",
    "Operation": "what may be allowed, under Kafka's name, and an operation of the OpenAPI document, under its name",
    "Request": "of Kafka's clients, and of nodes among each other: two protocols, which know nothing of one another",
    "Topic": "the broker's, and the HTTP body of the same name in the OpenAPI document",
    "TopicPartition": "a pair as in every Kafka client: the checkers import no client, the client no checkers",
}

VAGUE_CLASS = re.compile(r"(Manager|Helper|Utils?|Impl|Mixin|Base)$")
VAGUE_FILES = {"utils.py", "common.py", "misc.py", "helpers.py"}
RIDDLE = re.compile(r"\b(whoever|nobody|somebody)\b", re.IGNORECASE)
GENERATED = re.compile(r"_pb2\.py$|^wire/typed/")
"""With the names and the sizes of what they were made from."""
UNFINISHED = re.compile(r"\bhasattr\(self\b")


@cache
def files() -> dict[str, str]:
    """The text of each module. Read by the tests and not with this one: every worker of the suite imports it."""
    paths = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: path.read_text() for name, path in paths.items() if not GENERATED.search(name)}


@cache
def nodes() -> list[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Call]]:
    return [
        (name, node)
        for name, text in files().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Call)
    ]


def test_files_are_small() -> None:
    large = {name for name, text in files().items() if text.count("\n") > MAX_FILE_LINES}
    excepted(large, LARGE_FILES)


def test_functions_are_short() -> None:
    long = {
        f"{name}:{node.name}"
        for name, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of_code(node, files()[name]) > MAX_FUNCTION_LINES
    }
    excepted(long, LONG_FUNCTIONS)


def test_a_class_says_what_it_is() -> None:
    assert [f"{name}:{each}" for name, each in classes() if VAGUE_CLASS.search(each)] == []


def test_a_file_says_what_it_is() -> None:
    assert [name for name in files() if Path(name).name in VAGUE_FILES] == []


def test_a_public_class_name_has_one_meaning() -> None:
    homes = defaultdict(list)
    for name, each in classes():
        if not each.startswith("_"):
            homes[each].append(name)
    excepted({each for each, files in homes.items() if len(files) > 1}, SHARED_CLASS_NAMES)


def test_objects_are_finished_when_they_are_made() -> None:
    assert [name for name, text in files().items() if UNFINISHED.search(text)] == []


def test_docstrings_and_comments_name_their_subject() -> None:
    candidates = {name: text for name, text in files().items() if RIDDLE.search(text)}
    riddled = [name for name, text in candidates.items() if any(RIDDLE.search(each) for each in prose(text))]
    assert riddled == []


def test_pauses_have_names() -> None:
    """A pause with a bare number hides why it is that long. Those of the harness for tests are left alone."""
    unnamed = [
        f"{name}:{node.lineno}"
        for name, node in nodes()
        if isinstance(node, ast.Call) and is_pause(node) and not name.startswith("testing/")
    ]
    assert unnamed == []


def excepted(found: Iterable[str], exceptions: Mapping[str, str]) -> None:
    violations = set(found)
    assert violations - exceptions.keys() == set(), "against the rule, and no exception"
    assert exceptions.keys() - violations == set(), "exceptions that are not needed any more"


def classes() -> Iterator[tuple[str, str]]:
    for name, node in nodes():
        if isinstance(node, ast.ClassDef):
            yield name, node.name


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> int:
    if (function.end_lineno or 0) - function.lineno < MAX_FUNCTION_LINES:
        return 0
    lines = text.splitlines()[function.lineno - 1 : function.end_lineno]
    code = sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)
    docstring = ast.get_docstring(function, clean=False)
    return code if docstring is None else code - sum(bool(line.strip()) for line in docstring.splitlines())


def prose(text: str) -> Iterator[str]:
    """Comments, and strings in triple quotes: docstrings of modules, classes, functions and fields."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string[:4]):
            yield token.string


def is_pause(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "sleep"
        and ast.unparse(call.func) in ("time.sleep", "asyncio.sleep")
        and bool(call.args)
        and isinstance(seconds := call.args[0], ast.Constant)
        and isinstance(seconds.value, int | float)
        and seconds.value > 0
    )
