"""The live page: it shows what the API says, every control does what it says, and anybody can use it."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from concur_proxy.admin.ui import page as document
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.ports import free_port
from tests.ui.conftest import DESKTOP, NARROW, PHONE, api, running, turn, until, waiting

REACHABLE = """[...document.querySelectorAll('main button, main input, main select, main [tabindex="0"]')]
    .filter(one => one.checkVisibility() && !one.disabled && !(one.type === 'radio' && !one.checked))
    .map(one => one.dataset.number = Math.random().toString())"""
FOCUSED = """() => {
    const one = document.activeElement;
    const shown = one.type === 'radio' ? one.nextElementSibling : one;
    return [one.closest('main') ? one.dataset.number : '', getComputedStyle(shown).outlineStyle !== 'none'];
}"""
INTRUDER = """() => {
    const script = document.createElement('script');
    script.textContent = 'window.broken = 1';
    document.head.append(script);
}"""
REFUSED = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED"
HOSTILE = "<img src=x onerror=alert(1)>"


def cells(page, table):
    return [[cell.strip() for cell in row] for row in page.locator(f"#{table} tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.innerText))")]  # fmt: skip


def test_it_shows_what_the_api_says(proxy, open_page):
    turn(proxy, "idle-one", words=50)
    with ExitStack() as stack:
        stack.enter_context(running(proxy, "runs"))
        page = open_page(proxy.url)
        expect(page.locator("#tile-active .value")).to_have_text("2 of 2")
        stack.enter_context(waiting(proxy, "first", "second"))
        expect(page.locator("#tile-held .value")).to_have_text("2")
        expect(page).to_have_title("(2) concur-proxy")
        status = api(proxy, "status")
        (backend,) = status["backends"]
        assert backend["reason"] == "fixed at 2 sessions"
        expect(page.locator("#why .sentence")).to_have_text(backend["reason"])
        expect(page.locator("#about")).to_contain_text("law fixed")
        ((name, state, active, held, kv, *_),) = cells(page, "backends")
        assert name.split() == [backend["name"], "vllm"]
        assert (state, active, held) == ("up", "2 of 2", "2")
        assert kv.split(" of ")[1] == f"{backend['capacity_tokens'] / 1000:.1f}k"
        assert [row[:2] for row in cells(page, "queue")] == [["first", "new"], ["second", "new"]]
        assert re.fullmatch(r"[8-9] min \d+ s", cells(page, "queue")[0][3])
        until(lambda: len(cells(page, "sessions")) == 4)
        shown = {row[0].split()[0]: row for row in cells(page, "sessions")}
        for session in api(proxy, "sessions")["sessions"]:
            id_, state, context, turns, *_ = shown[session["id"]]
            assert id_.endswith(f"by {session['rule']}")
            assert (state, float(context), int(turns)) == (
                session["state"],
                session["footprint_tokens"],
                session["turns"],
            )
        assert shown["idle-one"][4].endswith(" s")
        expect(page.locator("#plot-sessions")).to_have_attribute(
            "aria-label", re.compile(r"Sessions, sessions and turns, now: active 2, window 2, turns waiting 2\.")
        )
        for session in ("first", "second"):
            api(proxy, f"sessions/{session}", method="DELETE")
        api(proxy, "config", method="PATCH", json={"fixed": {"window": 8}})
    expect(page.locator("#queue-empty")).to_be_visible()


def test_history_is_drawn_and_read_with_the_keyboard(proxy, open_page):
    turn(proxy, "one")
    page = open_page(proxy.url)
    until(lambda: api(proxy, "history")["at"])
    plot = page.locator("#plot-sessions")
    page.locator("#span label", has_text="15 min").click()
    until(lambda: page.locator("#plot-sessions [data-line=active]").get_attribute("d").count("L") > 0)
    told = api(proxy, "history?span_s=900")
    plot.focus()
    page.keyboard.press("Home")
    expect(plot).to_have_attribute("aria-label", re.compile(rf" at .+: active {told['series']['active'][0]:.0f},"))
    assert page.locator(".cross").count() == 4
    page.keyboard.press("Escape")
    assert page.locator(".cross").count() == 0


def test_it_finds_itself_again_after_a_restart_of_the_proxy(engine, open_page):
    port = str(free_port())
    with ProxyProcess([engine], flags=["--port", port, "--law", "aimd"]) as first:
        page = open_page(first.url, may_fail=REFUSED)
        expect(page.locator("#about")).to_contain_text("law aimd")
    expect(page.locator("#link")).to_have_text("Reconnecting")
    with ProxyProcess([engine], flags=["--port", port, "--window", "3"]) as second:
        expect(page.locator("#link")).to_have_text("Live")
        expect(page.locator("#about")).to_contain_text("law fixed")
        turn(second, "after")
        expect(page.locator("#sessions")).to_contain_text("after")
        expect(page.locator("#law")).to_have_value("fixed")


def test_a_session_is_ended(proxy, open_page):
    turn(proxy, "stays")
    turn(proxy, "a/b?c")
    page = open_page(proxy.url)
    end = page.get_by_role("button", name="End session a/b?c")
    end.click()
    page.get_by_role("button", name="Cancel").click()
    assert api(proxy, "sessions")["total"] == 2
    end.click()
    expect(page.locator("#ask")).to_contain_text("End session a/b?c?")
    page.get_by_role("button", name="End it").click()
    expect(end).to_have_count(0)
    assert [one["id"] for one in api(proxy, "sessions")["sessions"]] == ["stays"]


def test_law_and_bounds_are_changed_with_the_keyboard_alone(proxy, open_page):
    page = open_page(proxy.url)
    expect(page.locator("#law")).to_have_value("fixed")
    page.locator("#law").focus()
    page.keyboard.press("a")
    expect(page.locator("#law")).to_have_value("aimd")
    for key in ("Tab", "5", "Tab", "4", "0", "Tab", "Tab", "Enter"):  # smallest, largest, mode, Apply
        if key == "5":
            page.keyboard.press("ControlOrMeta+a")
        page.keyboard.press(key)
    expect(page.locator("#control-said")).to_have_text("In force: law, window_min, window_max.")
    config = api(proxy, "config")
    assert (config["law"], config["window_min"], config["window_max"]) == ("aimd", 5, 40)
    expect(page.locator("#why .who")).to_contain_text("bounds 5 to 40")


def test_a_share_no_bound_and_a_mistake(proxy, open_page):
    page = open_page(proxy.url)
    expect(page.locator("#fixed")).to_have_value("2")
    largest, said = page.locator("#window_max"), page.locator("#control-said")
    apply = page.get_by_role("button", name="Apply")
    page.locator("#fixed").fill("8")
    apply.click()
    expect(page.locator("#tile-active .value")).to_have_text("0 of 8")
    largest.fill("50%")
    apply.click()
    expect(largest).to_have_value("4")
    largest.fill("")
    apply.click()
    expect(said).to_have_text("In force: window_max.")
    until(lambda: api(proxy, "status")["backends"][0]["window_max"] is None)
    apply.click()
    expect(said).to_have_text("Nothing is changed.")


def test_a_mistake_is_said_in_the_proxys_own_words(proxy, open_page):
    page = open_page(proxy.url, may_fail="status of 400")
    expect(page.locator("#law")).to_have_value("fixed")
    page.locator("#window_max").fill("many")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#control-said")).to_contain_text("window_max")
    assert api(proxy, "config")["window_max"] is None
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#window_max")).to_have_value("")


def test_a_backend_is_drained_resumed_and_removed(engine, engine_beside, open_page):
    with ProxyProcess([engine, engine_beside], flags=["--window", "4"]) as proxy:
        page = open_page(proxy.url, may_fail=REFUSED)
        name = engine_beside.removeprefix("http://")
        expect(page.locator("#backends tr")).to_have_count(2)

        def state():
            return next((one["state"] for one in api(proxy, "status")["backends"] if one["name"] == name), None)

        page.get_by_role("button", name=f"Drain {name}").click()
        page.get_by_role("button", name="Drain it").click()
        expect(page.locator("#backends")).to_contain_text("draining")
        assert state() == "draining"
        page.get_by_role("button", name=f"Resume {name}").click()
        until(lambda: state() == "up")
        expect(page.get_by_role("button", name=f"Drain {name}")).to_be_visible()
        page.locator("#backend").select_option(name)
        expect(page.locator("#why .who")).to_contain_text(name)
        expect(page.locator("#why .sentence")).to_have_count(1)
        page.get_by_role("button", name=f"Remove {name}").click()
        page.get_by_role("button", name="Remove it").click()
        expect(page.locator("#backends tr")).to_have_count(1)
        assert state() is None


def test_of_many_backends_those_in_trouble_are_shown_first(engine, open_page):
    nobody = [f"http://127.0.0.1:{port}" for port in range(1, 15)]
    with ProxyProcess([engine, *nobody], flags=["--window", "4"]) as proxy:
        page = open_page(proxy.url, may_fail=REFUSED)
        rows, answers = page.locator("#backends tr"), engine.removeprefix("http://")
        expect(page.locator("#trouble")).to_contain_text("14 of 15 backends take no turns: 127.0.0.1:1 is lost (")
        expect(page.locator("#trouble")).to_contain_text("and 11 more.")
        expect(page.locator("#tile-active")).to_contain_text("0 of 4")  # not of 60: nobody can go to the lost ones
        expect(rows).to_have_count(12)
        expect(page.locator("#backends")).not_to_contain_text(answers)
        page.get_by_role("button", name="Show all 15").click()
        expect(rows).to_have_count(15)
        expect(page.locator("#backends")).to_contain_text(answers)
        page.get_by_role("button", name="Show fewer").click()
        expect(rows).to_have_count(12)


def test_that_nothing_works_is_said_above_everything(open_page):
    port = free_port()
    options = EngineOptions(port=port, model="alpha", speed=4.0)
    with EngineServer(options) as engine, ProxyProcess([engine.url], flags=["--window", "4"]) as proxy:
        page = open_page(proxy.url, may_fail=REFUSED)
        expect(page.locator("#sessions-empty")).to_have_text("No sessions yet: point agents at this proxy.")
        expect(page.locator("#trouble")).to_be_hidden()
        engine.close()
        said = f"No backend takes turns: 127.0.0.1:{port} is lost (cannot connect to the engine: connection refused)."
        expect(page.locator("#trouble")).to_have_text(said)
        with EngineServer(options):
            expect(page.locator("#trouble")).to_be_hidden()


def test_sessions_are_searched_sorted_and_paged(proxy, open_page):
    api(proxy, "config", method="PATCH", json={"fixed": {"window": 50}})
    for number in range(20):
        turn(proxy, f"agent-{number:02}", words=number + 1)
    page = open_page(proxy.url)
    rows = page.locator("#sessions tr")
    expect(rows).to_have_count(15)
    expect(page.locator("#sessions-count")).to_have_text("20")
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(5)
    expect(page.locator("#page")).to_have_text("16 to 20 of 20")
    page.get_by_role("button", name="Context").click()
    expect(rows).to_have_count(15)
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Context")
    largest = api(proxy, "sessions?sort=footprint&limit=1")["sessions"][0]["id"]
    expect(rows.first).to_contain_text(largest)
    page.get_by_role("button", name="Context").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Context")
    expect(rows.first).not_to_contain_text(largest)
    page.get_by_placeholder("Search by id").fill("ENT-07")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("agent-07")
    page.get_by_placeholder("Search by id").fill("nobody")
    expect(page.locator("#sessions-empty")).to_have_text("No session matches.")
    page.get_by_placeholder("Search by id").fill("")
    page.locator("#state").select_option("running")
    expect(page.locator("#sessions-empty")).to_be_visible()


def test_a_token_is_asked_for_and_stays_in_this_tab(engine, open_page):
    with ProxyProcess([engine], env={"CONCUR_SERVER__ADMIN_TOKEN": "open-sesame"}) as proxy:
        page = open_page(proxy.url, may_fail=f"status of 401|{REFUSED}", live=False)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        expect(page.locator("#token-dialog")).to_be_visible()
        expect(page.locator("#link")).to_have_text("No access")
        assert page.locator("#backends tr").count() == 0
        for word, condition in (("wrong", "No access"), ("open-sesame", "Live")):
            page.get_by_label("Token", exact=True).fill(word)
            page.keyboard.press("Enter")
            expect(page.locator("#link")).to_have_text(condition)
            expect(page.locator("#token-dialog")).to_be_visible(visible=condition != "Live")
        expect(page.locator("#backends tr")).to_have_count(1)
        page.reload()
        expect(page.locator("#link")).to_have_text("Live")
        assert not [url for url in asked if "sesame" in url]
        page.get_by_role("button", name="Admin token").click()
        page.get_by_role("button", name="Forget it").click()
        assert page.evaluate("sessionStorage.length") == 0


def test_names_that_clients_choose_are_text(proxy, open_page):
    turn(proxy, HOSTILE)
    page = open_page(proxy.url)
    expect(page.locator("#sessions")).to_contain_text(HOSTILE)
    page.get_by_role("button", name="End session <img").click()
    expect(page.locator("#ask-title")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_anybody_can_use_it(proxy, open_page, size, colours):
    """Labels, roles, contrast: what axe can find out."""
    turn(proxy, "idle")
    with running(proxy, "runs"), waiting(proxy, "waits"):
        page = open_page(proxy.url, size=size, colours=colours)
        expect(page.locator("#queue tr")).to_have_count(1)
        until(lambda: page.locator("#sessions tr").count() == 3)
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert not found, json.dumps([(one["id"], [node["html"] for node in one["nodes"]]) for one in found], indent=1)
        api(proxy, "config", method="PATCH", json={"fixed": {"window": 8}})


@pytest.mark.parametrize("size", [PHONE, NARROW, DESKTOP], ids=["phone", "narrow", "desktop"])
def test_nothing_is_wider_than_the_screen(proxy, open_page, size):
    turn(proxy, "a-name-that-is-long-" * 10)
    page = open_page(proxy.url, size=size)
    until(lambda: page.locator("#sessions tr").count() == 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_the_keyboard_reaches_everything(proxy, open_page):
    turn(proxy, "one")
    page = open_page(proxy.url)
    until(lambda: page.locator("#sessions tr").count() == 1)
    expect(page.locator("#law")).to_have_value("fixed")
    wanted = set(page.evaluate(REACHABLE))
    page.locator("#token-button").focus()
    seen = set()
    for _ in range(len(wanted) + 8):
        page.keyboard.press("Tab")
        name, outlined = page.evaluate(FOCUSED)
        if name:
            assert outlined
            seen.add(name)
    assert seen >= wanted


def test_colours_are_chosen_and_remembered(proxy, open_page):
    page = open_page(proxy.url)
    light = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    page.locator("#theme").select_option("dark")
    dark = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert dark != light
    page.reload()
    assert page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor") == dark


def test_only_its_own_script_runs(proxy, open_page):
    page = open_page(proxy.url, may_fail="Content Security Policy")
    page.evaluate(INTRUDER)
    assert page.evaluate("window.broken") is None
    answer = httpx.get(f"{proxy.url}/concur/ui")
    assert answer.content == document().content
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_hidden_page_takes_no_seat(proxy, open_page):
    """Of two tabs, only the one that is seen listens."""
    page = open_page(proxy.url)
    page.evaluate("""() => { Object.defineProperty(document, 'hidden', { get: () => window.away, configurable: true });
        window.away = true; document.dispatchEvent(new Event('visibilitychange')); }""")
    expect(page.locator("#link")).to_have_text("Reconnecting")
    page.evaluate("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')); }")
    expect(page.locator("#link")).to_have_text("Live")
