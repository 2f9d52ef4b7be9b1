"""Every page at three widths, light and dark, by keyboard alone, with hostile words in it."""

import json
from contextlib import closing

import pytest

from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_site
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.console_pages import Page, opened
from tests.support.consoles import make_call
from tests.support.host import AXE
from tests.support.mcp_servers import McpPlace
from tests.unit.apps.web.test_hostile import hostile

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.loopback]

PAGES = {
    "/now": "1 question waits for you",
    "/inbox": "main wants to create asked/guide.md",
    "/timeline": "What happened",
    "/files?path=notes.md": "Undo this call",
    "/policy": "Trusted and in force.",
    "/sessions": "what files are there?",
    "/ledgers": "messages and answers, turn by turn",
}
MARKUP = "<img src=x onerror=document.title='owned'>"
FOUND = """axe.run().then((found) =>
  found.violations.map((each) => [each.id, each.nodes.map((node) => node.html).slice(0, 3)]))"""


@pytest.mark.needs("axe")
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_and_nothing_runs_over_the_edge(place: McpPlace, path: str) -> None:
    place.run("run", "what files are there?")
    with opened(place) as page:
        for width in (1440, 1024, 360):
            for scheme in ("light", "dark"):
                page.tab.look(width, scheme)
                tab = page.open(path)
                tab.sees(PAGES[path])
                tab.run(AXE.read_text())
                assert tab.run(FOUND) == []
                assert tab.run("document.documentElement.scrollWidth") <= width
                assert tab.problems == []


STATES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "a no with its reason": ("/inbox", ("main wants", "Refuse …"), "Reason for the agent"),
    "a rule for good": ("/inbox", ("main wants", "Always allow …"), "This would be added to"),
    "an answered question": ("/inbox", ("main wants", "Approve and run it now"), "It ran."),
    "a call": ("/timeline?path=notes.md", ("",), "Proved"),
    "a filter": ("/timeline", ("Filter",), "Session"),
    "an undone call": ("/files?path=notes.md", ("Undo this call",), "Undone."),
    "built-in rules": ("/policy", ("29 built-in rules",), "read or change .env"),
    "findings": ("/policy", ("Findings",), "the built-in one"),
    "an action": ("/policy", ("Try an action",), "What would change it"),
    "what changes": ("/policy", ("What changes",), "Nothing is edited."),
    "a review": ("/policy", ("EDIT", "Review and save …"), "Its effect on past calls"),
    "a session's new turn": ("/sessions", ("what files", "WRITE", "Send"), "Turn 2"),
    "a verified record": ("/ledgers", ("Verify all",), "since they were written"),
}
TYPED = {
    "EDIT": "policy.value += '# more\\n'; policy.dispatchEvent(new Event('input'))",
    "WRITE": "task.value = 'what is in notes.md?'",
}


@pytest.mark.needs("axe")
@pytest.mark.parametrize("name", STATES)
def test_axe_finds_nothing_in_what_an_act_shows(place: McpPlace, name: str) -> None:
    path, steps, said = STATES[name]
    place.run("run", "what files are there?")
    if name == "a rule for good":
        place.govern('[profiles.standard]\notherwise = { "tool:file:create" = "ask" }\n')
        make_call(place, "create_file", path="asked/guide.md", content="# Guide\n")
    with opened(place, width=360) as page:
        tab = page.open(path)
        for step in steps:
            if script := TYPED.get(step):
                tab.until("globalThis.policy?.value || globalThis.task")
                tab.run(script)
            else:
                tab.click(step, "button, summary, .row") if step else tab.click("", ".row")
        tab.sees(said)
        tab.run(AXE.read_text())
        for width in (360, 1024, 1440):
            for scheme in ("light", "dark"):
                tab.look(width, scheme)
                assert tab.run(FOUND) == []
                assert tab.run("document.documentElement.scrollWidth") <= width
        assert tab.problems == []


KEYED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "answers a question": ("/now", ("Inbox", "Approve and run it now"), "It ran."),
    "says no": ("/inbox", ("Refuse …", "Reason for the agent=no", "Refuse"), "Refused."),
    "allows for good": ("/inbox", ("Always allow …", "Save and trust this rule"), "Saved and tr"),
    "opens a call": (
        "/timeline",
        ("What happened, newest", "The entry as it is stored"),
        '"event_type"',
    ),
    "searches": ("/timeline", ("Filter", "Path=no/where", "Search"), "Nothing matches."),
    "filters": ("/timeline", ("Failed",), "Nothing matches."),
    "takes a change back": ("/files", ("Files that were", "Undo this call"), "Undone."),
    "looks at changes by call": ("/files", ("By call", "Calls that changed"), "why it was allowed"),
    "turns a difference": ("/files", ("Files that were", "Side by side"), "One column"),
    "saves a policy": (
        "/policy",
        ("Policy, as text=# mine\n", "Review and save …", "Save and trust exactly"),
        "Saved and trusted.",
    ),
    "tries an action": (
        "/policy",
        ("Try an action", "Action to try=tool:file:delete x"),
        "Refused",
    ),
    "looks at findings": ("/policy", ("Findings",), "the built-in one"),
    "goes on with a session": ("/sessions", ("Continue this session=go on", "Send"), "Turn 2"),
    "verifies the record": ("/ledgers", ("Verify: Calls",), "since they were written"),
}
LABEL = """((at) => (at.getAttribute("aria-label") ?? at.labels?.[0]?.innerText ?? at.innerText ?? "")
  .trim())"""


@pytest.mark.parametrize("name", KEYED)
def test_somebody_without_a_mouse(place: McpPlace, name: str) -> None:
    path, steps, said = KEYED[name]
    place.run("run", "what files are there?")
    if name == "allows for good":
        place.govern('[profiles.standard]\notherwise = { "tool:file:create" = "ask" }\n')
        make_call(place, "create_file", path="asked/guide.md", content="# Guide\n")
    with opened(place) as page:
        tab = page.open(path)
        for step in steps:
            wanted, _, typed = step.partition("=")
            is_it = f"{LABEL}(each).startsWith({json.dumps(wanted)}) && !each.disabled"
            shown = "a, button, summary, textarea, input, [role=listbox]"
            tab.until(f"[...document.querySelectorAll('{shown}')].some((each) => {is_it})")
            for _ in range(80):
                if tab.run(f"[document.activeElement].some((each) => {is_it})"):
                    break
                tab.press("Tab")
            assert tab.run(f"{LABEL}(document.activeElement)").startswith(wanted)
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert tab.run(outline) == "solid"
            if typed:
                tab.write(typed)
            elif tab.run("document.activeElement.role === 'listbox'"):
                tab.press("ArrowDown", "Enter")
            else:
                tab.press("Enter")
        tab.sees(said)
        assert tab.problems == []


def test_what_an_agent_can_write_is_text_and_what_hides_in_it_is_shown(place: McpPlace) -> None:
    names = [MARKUP, "a\u202egnp.md", "c\u200b\u00ad.md", "d\u3164.md"]
    for name in names:
        make_call(place, "create_file", path=f"x/{name}", content=f"{name}\n")
        make_call(place, "create_file", path=f"asked/{name}", content=f"{name}\n")
    place.run("run", f"say {MARKUP} \u202e \x1b[31mred")
    shown = ["a\\u202egnp.md", "c\\u200b\\xad.md", "d\\u3164.md"]
    with opened(place) as page:
        for path in ("/now", "/inbox", "/timeline", "/files", "/sessions"):
            tab = page.open(path)
            tab.sees(MARKUP, "main")
            if path != "/sessions":
                for name in shown:
                    tab.sees(name, "main")
            tab.until("document.querySelector('.escape')")
            assert tab.run("document.querySelector('main img')") is None
            hidden = "/[\\u202e\\u200b\\u00ad\\u3164\\u001b]/.test(document.body.innerText)"
            assert tab.run(hidden) is False
            assert (tab.run("document.title.includes('owned')"), tab.problems) == (False, [])


def test_ten_thousand_rows_scroll_and_few_stand_in_the_document(page: Page) -> None:
    tab = page.open("/timeline")
    tab.until("document.querySelector('.rows .row')")
    tab.run(
        """(async () => {
          const { Rows } = await import("/static/list.js");
          const draw = (item) => [document.createTextNode(item.key)];
          const choose = ({ key }) => (list.pick(key), (globalThis.chosen = key));
          globalThis.list = new Rows({ label: "many", draw, choose });
          document.querySelector(".split").replaceChildren(list.place);
          list.set(Array.from({ length: 10_000 }, (_, at) => ({ key: `row ${at}` })));
          list.place.focus();
        })()"""
    )
    tab.press("End", "Enter")
    assert tab.until("globalThis.chosen") == "row 9999"
    assert tab.run("list.place.querySelectorAll('.row').length") < 100
    tab.press("ArrowUp", "Enter")
    assert tab.until("globalThis.chosen !== 'row 9999' && chosen") == "row 9998"
    # What arrives above what is looked at does not move it.
    top = "list.place.querySelector('[aria-selected=true]').getBoundingClientRect().top"
    before = tab.run(top)
    tab.run("list.set([{ key: 'new' }, ...list.items])")
    assert tab.run(top) == pytest.approx(before, abs=1)
    tab.press("Home", "Enter")
    assert tab.until("chosen === 'new' && chosen") == "new"


def test_a_difference_is_shown_in_one_column_or_side_by_side(page: Page) -> None:
    tab = page.open("/files?path=notes.md")
    tab.sees("Side by side", ".detail")
    rows = "[...document.querySelector('.diff').rows].map((row) => row.innerText.split('\\t'))"
    assert tab.run(rows) == [
        ["@@ -1,3 +1,3 @@"],
        ["1", "1", " one"],
        ["2", "", "−two"],
        ["", "2", "+2"],
        ["3", "3", " three"],
    ]
    tab.click("Side by side")
    assert tab.run(rows) == [
        ["@@ -1,3 +1,3 @@"],
        ["1", " one", "1", " one"],
        ["2", "−two", "2", "+2"],
        ["3", " three", "3", " three"],
    ]


ATTRIBUTES = {"href": "javascript:document.title='owned'", "onclick": "x", "class": "good"}


def test_no_page_and_no_entry_ends_at_what_no_tool_of_ours_writes(page: Page) -> None:
    given = {"tool": ATTRIBUTES, "arguments": {"path": ATTRIBUTES}, "host": ATTRIBUTES}
    entries = [*hostile(), *(Entry(each, "s", metadata=given) for each in ("TOOL_DENIED", "X"))]
    site = find_site(page.place.project, read_environment(page.place.variables), None)
    ledger = PlaneLedger(site.layout, site.environment, LedgerName.HO1M).open()
    with closing(ledger):
        for begin in range(0, len(entries), 500):
            ledger.append(entries[begin : begin + 500])
    for path in ("/now", "/timeline?all=yes", "/files", "/sessions", "/ledgers"):
        tab = page.open(path)
        tab.until("document.querySelector('main h1')")
        assert "did not work" not in tab.run("document.querySelector('main').innerText")
        assert (
            tab.run("document.querySelector('main :is([onclick], [href^=\"javascript\"], img)')")
            is None
        )
        assert tab.problems == []
    shown = tab.run(
        """(async () => {
          const { show } = await import("/static/entry.js");
          const texts = [];
          for (let seq = 10; seq < SIZE; seq += 17) {
            const made = await show("ho1m", seq).catch((problem) => ({ textContent: String(problem) }));
            texts.push(`${seq} ${made.textContent}`);
          }
          return texts;
        })()""".replace("SIZE", str(len(entries)))
    )
    assert [text for text in shown if "TypeError: " in text] == []
