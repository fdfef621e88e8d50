"""The console in a browser, before a gateway that answers from memory."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.fake_gateway import FakeGateway
from tests.console.pages import expect, offsets
from tests.console.serving import AXE, served
from tests.support.effort import IS_LONG, in_long

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = {
    "overview": "#/",
    "topics": "#/topics",
    "messages": "#/topics/orders",
    "partitions": "#/topics/orders/partitions",
    "segments": "#/topics/orders/segments",
    "settings": "#/topics/orders/settings",
    "produce": "#/topics/orders/produce",
    "groups": "#/groups",
    "group": "#/groups/billing",
    "queue": "#/groups/shipping",
    "nodes": "#/nodes",
    "pipelines": "#/pipelines",
    "schemas": "#/schemas",
    "schema": "#/schemas/orders-value",
}
WIDEST = {"overview", "messages", "group", "nodes"}
IN_THE_DARK = ["overview", "messages", "queue", "schema"] if IS_LONG else ["overview"]
PHONE = {"width": 360, "height": 740}
OpenPage = Callable[..., "Page"]


def settled(page: "Page") -> "Page":
    """The view has its facts: a heading, and no figure or table still to come."""
    page.locator("main h1").wait_for()
    page.locator("main .panel").first.wait_for()
    page.wait_for_load_state("networkidle")
    return page


def opened(open_page: OpenPage, address: str, views: Iterable[str], **options: Any) -> "Iterator[tuple[str, Page]]":
    """Each view, loaded anew in one browser: another browser for each would cost more than what is looked at."""
    page = open_page(f"{address}/", **options)
    for view in views:
        page.goto(f"{address}/{VIEWS[view]}")
        page.reload()
        yield view, settled(page)


def test_the_overview_shows_rates_lag_and_what_needs_a_look(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/")
    rate = page.locator(".stat", has_text="Records in").locator(".figure")
    expect(rate).to_have_text(re.compile(r"[1-9][\d,.]*K? /s"))
    expect(page.locator(".stat", has_text="Under-replicated")).to_contain_text("1")
    expect(page.get_by_role("link", name="search-index")).to_be_visible()
    expect(page.locator(".spark .line").first).to_have_attribute("d", re.compile("^M"))
    expect(page.locator("#cluster")).to_have_text("k3yQx0v2RzmHbS9tZ1aWcA")


def test_a_node_that_is_gone_is_a_row_that_says_so(open_page: OpenPage) -> None:
    gateway = FakeGateway()
    gateway.lost_node_since_ms = 1_750_000_000_000
    with served(gateway.app()) as address:
        for view in ("#/", "#/nodes"):
            page = open_page(f"{address}/{view}")
            expect(page.locator(".stat", has_text="Nodes")).to_contain_text("2 of 3")
            row = page.locator("tr", has_text="node-3.shop.example")
            expect(row).to_contain_text(re.compile("Node 3 down since 2025-06-1"))


def test_an_empty_cluster_says_what_to_try(open_page: OpenPage) -> None:
    with served(FakeGateway(is_empty=True).app()) as address:
        page = open_page(f"{address}/")
        expect(page.get_by_text("No topics yet")).to_be_visible()
        expect(page.get_by_text("headwater topic create orders")).to_be_visible()
        page.goto(f"{address}/#/pipelines")
        expect(page.get_by_text("headwater pipeline run")).to_be_visible()
        page.goto(f"{address}/#/schemas")
        expect(page.get_by_text("No schemas yet")).to_be_visible()


def test_topics_are_found_made_changed_and_deleted(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    page = open_page(f"{address}/#/topics")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="__consumer_offsets")).to_have_count(0)
    page.get_by_label("Find a topic").fill("clic")
    expect(page.get_by_role("link", name="orders", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="clicks")).to_be_visible()

    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name").fill("invoices")
    page.get_by_label("Partitions").fill("4")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="invoices")).to_be_visible()
    assert len(gateway.topics["invoices"]["lanes"]) == 4

    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("Value").fill("3600000")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".stat", has_text="Kept for")).to_contain_text("1 h")
    assert gateway.topics["invoices"]["config"]["retention.ms"] == "3600000"
    page.get_by_role("button", name="Reset retention.ms").click()
    expect(page.locator(".stat", has_text="Kept for")).to_contain_text("7 d")

    page.get_by_role("button", name="Delete topic").click()
    really = page.get_by_role("dialog").get_by_role("button", name="Delete topic")
    expect(really).to_be_disabled()
    page.get_by_label("Type invoices").fill("invoices")
    really.click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    assert "invoices" not in gateway.topics


def test_a_setting_that_is_refused_says_why_and_stays(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    page = open_page(f"{address}/#/topics/orders/settings", expected=(400,))
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("Value").fill("a week")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is a number of milliseconds")).to_be_visible()
    assert gateway.topics["orders"]["config"]["retention.ms"] == "86400000"


def test_pages_of_messages_go_both_ways_and_miss_none(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/orders")
    expect(page.get_by_text("50 shown")).to_be_visible()
    seen = [offsets(page)]
    for _ in range(3):
        page.get_by_role("button", name="Older").click()
        expect(page.get_by_label(f"Record {seen[-1][0][0]}/{seen[-1][0][1]}", exact=True)).to_have_count(0)
        seen.append(offsets(page))
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    everything = [place for shown in seen for place in shown]
    assert sorted(everything) == [(partition, offset) for partition in range(3) for offset in range(60)]
    assert len(set(everything)) == len(everything)
    page.get_by_role("button", name="Newer").click()
    expect(page.get_by_label(f"Record {seen[-1][0][0]}/{seen[-1][0][1]}", exact=True)).to_have_count(0)
    assert len(offsets(page)) == 50 and set(offsets(page)) <= set(everything) - set(seen[-1])


def test_pages_step_over_what_compaction_removed(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    for number in range(4000):
        record = gateway.write("payments", 1, "k", f"value {number}")
        record["compacted"] = 100 < number < 3990
    page = open_page(f"{address}/#/topics/payments")
    page.get_by_label("Partition").select_option("1")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("50 shown")).to_be_visible()
    assert [offset for _, offset in offsets(page)] == [*range(4000, 3990, -1), *range(101, 61, -1)]


def test_pages_are_whole_when_answers_are_small(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    gateway.at_most = 3
    page = open_page(f"{address}/#/topics/orders")
    page.get_by_label("At once").select_option("25")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("25 shown")).to_be_visible()
    newest = sorted(offsets(page), key=lambda place: (place[1], place[0]), reverse=True)
    assert newest == offsets(page) and offsets(page)[0] == (2, 59)


def test_what_was_asked_for_last_is_shown_whatever_arrives_last(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/")
    held: list[Any] = []
    page.route(re.compile("/records"), lambda route: held.append(route) if len(held) < 1 else route.continue_())
    page.goto(f"{address}/#/topics/orders")
    while not held:  # the page's own request: the next one takes its place, and it may be gone before it is seen
        page.wait_for_timeout(20)
    page.get_by_label("At once").select_option("25")
    with page.expect_request(re.compile("/records")):
        page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("25 shown")).to_be_visible()
    with page.expect_response(re.compile("/records")):
        held[0].continue_()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_text("25 shown")).to_be_visible()
    assert len(offsets(page)) == 25


def test_differences_numbers_and_sizes_are_exact(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/")
    diff = page.evaluate("import('/console/views/diff.js').then((m) => m.lineDiff('a\\nb\\nc', 'a\\nx\\nc\\nd'))")
    kinds = [(line["kind"], line["text"]) for line in diff]
    assert kinds == [("same", "a"), ("removed", "b"), ("added", "x"), ("same", "c"), ("added", "d")]
    shown = """import('/console/format.js').then((m) => [m.pretty('{"n": 12345678901234567890}'), m.pretty('{"n":1}'),
        m.bytes(1536), m.duration(7200000), m.count(null)])"""
    assert page.evaluate(shown) == ['{"n": 12345678901234567890}', '{\n  "n": 1\n}', "1.5 KiB", "2 h", "\u2013"]


def test_messages_are_found_by_offset_time_and_key(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/orders")
    page.get_by_label("Partition").select_option("1")
    page.get_by_label("Start at").select_option("Offset")
    page.get_by_label("Offset", exact=True).fill("40")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("20 shown")).to_be_visible()
    assert offsets(page) == [(1, offset) for offset in reversed(range(40, 60))]

    page.get_by_label("Partition").select_option("All")
    page.get_by_label("Start at").select_option("Oldest")
    page.get_by_label("Key").fill("customer-3")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("11 shown")).to_be_visible()

    page.get_by_label("Key").fill("nobody")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("No record has this key")).to_be_visible()

    page.get_by_label("Key").fill("")
    page.get_by_label("Start at").select_option("Time")
    page.get_by_label("Since").fill("2099-01-01T00:00:00")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("Nothing from here on")).to_be_visible()


def test_a_message_opens_with_its_headers_and_its_schema(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/clicks")
    page.locator(".messages .open").first.click()
    expect(page.get_by_text("AVRO · clicks-value v2 · id 12")).to_be_visible()
    expect(page.locator("pre.body")).to_contain_text('"page": "/product/29"')
    page.goto(f"{address}/#/topics/orders")
    page.locator(".messages .open").first.click()
    expect(page.locator(".detail .facts")).to_contain_text("trace")


def test_a_row_opens_and_closes_with_a_click_anywhere_on_it(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/orders")
    row = page.locator(".messages tbody tr.openable").first
    row.locator("td.value").click()
    expect(page.locator("pre.body")).to_be_visible()
    expect(row.locator(".open")).to_have_attribute("aria-expanded", "true")
    page.locator("pre.body").click()
    expect(page.locator("pre.body")).to_be_visible()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.messages td.value'))")
    row.locator("td.key").dispatch_event("click")
    expect(row.locator(".open")).to_have_attribute("aria-expanded", "true")
    page.evaluate("getSelection().removeAllRanges()")
    row.locator("td.key").click()
    expect(row.locator(".open")).to_have_attribute("aria-expanded", "false")
    page.goto(f"{address}/#/groups/shipping")
    page.get_by_label("Dead letters").locator("tr.openable td.value").first.click()
    expect(page.locator("pre.body")).to_be_visible()


def test_a_dialog_goes_with_its_page(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    page = open_page(f"{address}/#/topics")
    page.goto(f"{address}/#/topics/orders/settings")
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label("Type orders").fill("orders")
    page.go_back()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    expect(page.locator("dialog")).to_have_count(0)
    page.get_by_role("button", name="New topic").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_forward()
    expect(page.get_by_role("heading", name="orders", exact=True)).to_be_visible()
    expect(page.locator("dialog")).to_have_count(0)
    assert "orders" in gateway.topics


def test_settings_without_a_limit_are_words(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    gateway.topics["orders"]["config"] |= {"retention.ms": str(2**63 - 1), "segment.bytes": str(2**63 - 1)}
    page = open_page(f"{address}/#/topics/orders/settings")
    for name, words in (
        ("flush.ms", "never"),
        ("flush.messages", "never"),
        ("max.compaction.lag.ms", "no limit"),
        ("retention.ms", "for ever"),
        ("retention.bytes", "no limit"),
        ("segment.bytes", "no limit"),
        ("max.message.bytes", "1.0 MiB"),
    ):
        row = page.get_by_role("row", name=re.compile(f"^{re.escape(name)} "))
        expect(row.locator("td").nth(1)).to_have_text(re.compile(f" · {re.escape(words)}$"))
    expect(page.locator(".stat", has_text="Kept for")).to_contain_text("for ever")
    expect(page.locator(".stat", has_text="Kept up to")).to_contain_text("no limit")
    assert not re.search(r"\d d\b", page.locator("main").inner_text()), "nothing lasts so many days"


def test_a_record_can_be_copied(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/orders", permissions=["clipboard-read", "clipboard-write"])
    page.locator(".messages .open").first.click()
    page.get_by_role("button", name="Copy record as JSON").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert '"offset": 59' in page.evaluate("navigator.clipboard.readText()")


def test_new_messages_appear_while_one_watches(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    page = open_page(f"{address}/#/topics/orders")
    expect(page.get_by_text("50 shown")).to_be_visible()
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")
    gateway.write("orders", 2, "late", "just arrived")
    expect(page.get_by_text("just arrived")).to_be_visible()
    assert offsets(page)[0] == (2, 60)


def test_a_test_message_is_written_and_shown(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    page = open_page(f"{address}/#/topics/payments/produce")
    page.get_by_label("Key").fill("k")
    page.get_by_label("Partition").select_option("1")
    page.get_by_label("Value is").select_option("JSON")
    page.get_by_label("Value", exact=True).fill('{"amount": 12345678901234567890}')
    page.get_by_label("Headers").fill("origin: console")
    page.get_by_label("Headers").press("Control+Enter")
    page.get_by_role("link", name="Show it").click()
    expect(page.get_by_text("12345678901234567890").first).to_be_visible()
    written = gateway.topics["payments"]["lanes"][1][-1]
    assert written["headers"] == [{"name": "origin", "value": "console"}] and written["key"] == "k"

    page.goto(f"{address}/#/topics/payments/produce")
    page.get_by_label("Value is").select_option("JSON")
    page.get_by_label("Value", exact=True).fill("{nonsense")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("The value is not JSON")).to_be_visible()


def test_hostile_records_and_names_stay_text(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/payments", expected=(404,))
    expect(page.get_by_text("onerror").first).to_be_visible()
    for opener in page.locator(".messages .open").all():
        opener.click()
    expect(page.locator("pre.body").nth(2)).to_contain_text("<script>")
    page.goto(f"{address}/#/groups/search-index")
    expect(page.get_by_text("onerror").first).to_be_visible()
    page.goto(f"{address}/#/topics/%3Cimg%20src%3Dx%20onerror%3D1%3E")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


def test_a_topic_that_is_not_there_is_told_as_missing(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/nosuch", expected=(404,))
    expect(page.get_by_text("There is no topic nosuch")).to_be_visible()


def test_a_group_shows_its_lag_its_members_and_who_left(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/groups")
    page.get_by_role("link", name="billing").click()
    expect(page.locator(".stat", has_text="Lag")).to_contain_text("36")
    expect(page.get_by_text("billing-worker-1")).to_be_visible()
    expect(page.get_by_text("session expired")).to_be_visible()


def test_dead_letters_of_a_queue_are_redriven(open_page: OpenPage, address: str, gateway: FakeGateway) -> None:
    page = open_page(f"{address}/#/groups/shipping")
    expect(page.locator(".stat", has_text="In flight")).to_contain_text("12")
    expect(page.get_by_text("delivered 5 times").first).to_be_visible()
    page.get_by_role("button", name="Redrive").click()
    page.get_by_label("At most").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("3 records are on the way again")).to_be_visible()
    assert gateway.redriven == [{"limit": 2}]


def test_versions_of_a_schema_are_compared(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/schemas")
    page.get_by_role("link", name="orders-value").click()
    page.get_by_label("Compare with").select_option("Version 1")
    expect(page.locator(".diff .added").filter(has_text="currency")).to_be_visible()
    assert page.locator(".diff .removed").count() <= 1


def test_a_gateway_without_a_broker_says_what_to_do_and_recovers(
    open_page: OpenPage, address: str, gateway: FakeGateway
) -> None:
    gateway.is_broken = True
    page = open_page(f"{address}/#/groups", expected=(503,))
    expect(page.get_by_role("alert")).to_contain_text("headwater serve")
    gateway.is_broken = False
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("link", name="billing")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("view", ["#/", in_long("#/nodes"), in_long("#/groups/billing")])
def test_figures_are_grey_while_the_broker_is_gone(
    open_page: OpenPage, address: str, gateway: FakeGateway, view: str
) -> None:
    page = open_page(f"{address}/{view}", expected=(503,))
    figure = page.locator(".stat .figure").first
    expect(figure).to_have_text(re.compile(r"\d"))
    colour = "element => getComputedStyle(element).color"
    fresh = figure.evaluate(colour)
    gateway.is_broken = True
    expect(page.locator("#connection")).to_have_text(re.compile(r"As of \d\d:\d\d:\d\d"))
    expect(page.get_by_role("alert")).to_contain_text("headwater serve")
    page.wait_for_timeout(5000)  # two parts of the overview ask, each in its time
    expect(page.get_by_role("alert")).to_have_count(1)
    assert figure.evaluate(colour) != fresh
    expect(figure).to_have_text(re.compile(r"\d"))
    gateway.is_broken = False
    expect(page.locator("#connection")).to_have_text("")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert figure.evaluate(colour) == fresh
    gateway.is_broken = True
    expect(page.locator("#connection")).to_have_text(re.compile("As of"))
    page.goto(f"{address}/#/topics/orders/produce")
    expect(page.locator("#connection")).to_have_text("")


def test_a_phone_reaches_every_page(open_page: OpenPage, address: str) -> None:
    page = settled(open_page(f"{address}/", viewport=PHONE))
    links = page.locator("#nav a")
    assert links.count() == 6
    page.goto(f"{address}/#/topics/orders")
    tabs = page.locator(".tabs a")
    expect(tabs).to_have_count(5)
    for link in [*links.all(), *tabs.all()]:
        box = link.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"], link.inner_text()


def test_nodes_lead_what_the_page_lists(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/nodes")
    leads = page.get_by_role("row", name=re.compile("^Node 1 ")).locator("td").nth(3)
    expect(leads).to_have_text("5 + 2 internal")
    led = page.get_by_label("Leaders", exact=True).get_by_text(re.compile("→ 1$"))
    expect(led).to_have_count(5)


def test_a_token_is_asked_for_once(open_page: OpenPage) -> None:
    with served(FakeGateway(token="a-long-enough-token").app()) as address:
        page = open_page(f"{address}/#/topics", expected=(401,))
        page.get_by_label("Token", exact=True).fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("That is not the gateway's token")).to_be_visible()
        page.get_by_label("Token", exact=True).fill("a-long-enough-token")
        page.get_by_label("Token", exact=True).press("Enter")
        expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
        page.reload()
        expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()


def test_no_view_is_wider_than_a_phone(open_page: OpenPage, address: str) -> None:
    views = VIEWS.keys() if IS_LONG else WIDEST
    widths = {
        view: page.evaluate("document.documentElement.scrollWidth")
        for view, page in opened(open_page, address, views, viewport=PHONE)
    }
    assert {view: width for view, width in widths.items() if width > PHONE["width"]} == {}


@pytest.mark.parametrize(("scheme", "views"), [("light", list(VIEWS)), ("dark", IN_THE_DARK)], ids=["light", "dark"])
def test_axe_finds_nothing_wrong(open_page: OpenPage, address: str, scheme: str, views: list[str]) -> None:
    wrong = {}
    for view, page in opened(open_page, address, views, color_scheme=scheme):
        # Playwright evaluates it, which the page's own policy would not allow.
        page.evaluate(AXE.read_text())
        findings = page.evaluate("axe.run()")
        assert len(findings["passes"]) > 10, view
        if findings["violations"]:
            wrong[view] = [
                (each["id"], [node["html"] for node in each["nodes"]][:3]) for each in findings["violations"]
            ]
    assert wrong == {}


def test_the_theme_follows_the_system_until_it_is_chosen(open_page: OpenPage, address: str) -> None:
    page = settled(open_page(f"{address}/", color_scheme="dark"))
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    assert dark != light
    for _ in range(2):
        page.get_by_role("button", name="Colours").click()
    assert page.evaluate(ground) == dark
    page.reload()
    assert page.evaluate(ground) == dark


def test_everything_is_reached_by_keyboard_with_visible_focus(open_page: OpenPage, address: str) -> None:
    page = settled(open_page(f"{address}/#/topics"))
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Find a topic")).to_be_focused()
    page.keyboard.type("orders")
    names = []
    for _ in range(12):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        names.append(page.evaluate("document.activeElement.textContent.trim()"))
        assert outline == "solid", f"no outline around {names[-1]}"
        if names[-1] == "orders":
            break
    assert names[-1] == "orders"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders", exact=True)).to_be_visible()
    expect(page.get_by_text("50 shown")).to_be_visible()
    for _ in range(40):
        page.keyboard.press("Tab")
        if (page.evaluate("document.activeElement.className") or "") == "open":
            break
    page.keyboard.press("Enter")
    expect(page.locator("pre.body")).to_be_visible()
    page.goto(f"{address}/#/topics/orders/settings")
    page.get_by_role("button", name="Delete topic").press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
