"""What somebody does in the pages happens, and what somebody else did shows in them."""

import json
from contextlib import closing

import pytest

from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_site
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.console_pages import Page, opened
from tests.support.consoles import make_call, serving
from tests.support.mcp_servers import McpPlace

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.loopback]


def append(place: McpPlace, name: LedgerName, entries: list[Entry]) -> None:
    site = find_site(place.project, read_environment(place.variables), None)
    with closing(PlaneLedger(site.layout, site.environment, name).open()) as ledger:
        ledger.append(entries)


def test_a_link_opens_one_window_and_leaves_no_trace_in_its_address(place: McpPlace) -> None:
    with serving(place, is_exchanged=False) as server, opened(place) as other:
        link = f"{server.origin}/#code={server.code}"
        other.tab.go(link)
        other.tab.sees("1 question waits for you")
        shown = "[location.pathname, location.hash, document.cookie]"
        assert other.tab.run(shown) == ["/now", "", ""]
        other.tab.run("sessionStorage.clear()")
        other.tab.go(link)
        other.tab.sees("This link is no longer valid")
        other.tab.sees("paddock web")


def test_a_question_is_approved_and_carried_out_and_a_second_window_sees_it(page: Page) -> None:
    tab = page.open("/inbox")
    with page.another("/inbox") as other:
        other.sees("main wants to create asked/guide.md", ".detail")
        tab.sees("# Guide", ".detail")
        tab.click("Approve and run it now")
        tab.sees("It ran.", ".detail")
        tab.sees("Nothing waits for you")
        other.sees("Nothing waits for you")
        assert other.problems == []
    assert (page.place.project / "asked" / "guide.md").read_text() == "# Guide\n"
    assert tab.problems == []


def test_a_question_is_refused_with_a_reason_that_the_agent_is_told(page: Page) -> None:
    tab = page.open("/inbox")
    tab.click("Refuse …")
    tab.until("document.activeElement.id === 'reason'")
    tab.write("use <b>docs/</b> instead")
    tab.click("Refuse", "button.danger")
    tab.sees("Refused.", ".detail")
    again = make_call(page.place, "create_file", path="asked/guide.md", content="# Guide\n")
    assert again["code"] == "approval.refused"
    assert "use <b>docs/</b> instead" in json.dumps(again)


ASKED_OTHERWISE = """
[profiles.standard]
allow = ["tool:file:view", "tool:search:*"]
otherwise = { "tool:file:create" = "ask" }
"""


def test_a_rule_for_good_is_shown_with_its_effect_before_it_is_saved(page: Page) -> None:
    file = page.place.project / "paddock.toml"
    page.place.govern(ASKED_OTHERWISE)
    make_call(page.place, "create_file", path="asked/guide.md", content="# Guide\n")
    before = file.read_text()
    tab = page.open("/inbox")
    tab.click("Always allow …")
    tab.sees("Its effect on past calls", ".detail")
    tab.sees("tool:file:create asked/guide.md", ".review")
    assert file.read_text() == before
    tab.click("Save and trust this rule")
    tab.sees("Saved and trusted.", ".detail")
    assert "tool:file:create asked/guide.md" in file.read_text().removeprefix(before)
    again = make_call(page.place, "create_file", path="asked/guide.md", content="# Guide\n")
    assert again["status"] == "ok"


def test_what_was_answered_elsewhere_first_is_said_and_not_answered_twice(page: Page) -> None:
    tab = page.open("/inbox")
    tab.click("Refuse …")
    [waiting] = page.place.waiting()
    page.place.run("approvals", "refuse", waiting["id"], "--note", "no")
    tab.click("Refuse", "button.danger")
    tab.sees("answered elsewhere", ".detail")


def test_an_asked_call_stays_in_sight_with_what_became_of_it(page: Page) -> None:
    tab = page.open("/timeline")
    row = ".row:has(.target)"
    asked = f"[...document.querySelectorAll('{row}')].find((each) => /asked.guide/.test(each.innerText))"
    tab.until(f"{asked}?.innerText.includes('waits for you')")
    [waiting] = page.place.waiting()
    page.place.run("approvals", "grant", waiting["id"])
    tab.until(f"{asked}?.innerText.includes('approved')")
    tab.click("Refused", ".chip")
    tab.sees(".git/hooks/pre-commit", ".rows")
    tab.until(f"{asked} === undefined")
    tab = page.open("/now")
    tab.sees("approved", "ul.calls")
    assert "asked" not in tab.run("document.querySelector('ul.refusals').innerText")
    tab.sees("4 recent calls", "ul.agents")
    tab.sees("1 refused", "ul.agents")
    assert tab.problems == []


def test_a_change_is_taken_back_where_it_is_seen(page: Page) -> None:
    notes = page.place.project / "notes.md"
    tab = page.open("/files?path=notes.md")
    tab.sees("notes.md", "h2.title")
    tab.sees("+2", ".detail")
    tab.click("Undo this call")
    tab.sees("Undone.", ".detail")
    assert not tab.run("document.querySelector('.detail').textContent.includes('Undo this call')")
    assert notes.read_text() == "one\ntwo\nthree\n"
    notes.write_text("somebody's own\n")
    tab = page.open("/files?path=notes.md")
    tab.sees("no undo: changed since", ".detail")
    assert tab.problems == []


def test_what_an_undo_frees_can_be_taken_back_next_and_the_rest_of_the_record_found(
    page: Page,
) -> None:
    notes = page.place.project / "notes.md"
    tab = page.open("/files?path=notes.md")
    tab.sees("no undo: changed since; undo the newer changes of it first", ".change:last-child")
    tab.click("Undo this call", ".change button")
    tab.sees("Undone.", ".change")
    tab.click("Undo this call", ".change:last-child button")
    tab.sees("Undone.", ".change:last-child")
    assert not notes.exists()
    tab.click("why it was allowed", ".change a")
    tab.sees("Only one call is listed.", ".head")
    assert tab.until("document.querySelectorAll('.rows .row').length") == 1
    tab.click("Show all")
    tab.until("document.querySelectorAll('.rows .row').length > 4")
    assert tab.problems == []


def test_older_changes_of_a_file_are_shown_when_asked_for(page: Page) -> None:
    made = {"path": "many.md", "kind": "created", "before": None, "after": None}
    facts = {"tool": "create_file", "status": "ok", "effects": [made]}
    about = {"session_id": "SES-0", "agent": "main", "metadata": facts}
    append(page.place, LedgerName.HO1M, [Entry("TOOL_RESULT", **about)] * 25)
    tab = page.open("/files?path=many.md")
    tab.until("document.querySelectorAll('.change').length === 20")
    tab.click("Show older changes")
    tab.sees("These are all.", ".detail")
    assert tab.run("document.querySelectorAll('.change').length") == 25
    assert tab.problems == []


def test_changes_far_back_in_the_record_are_read_when_asked_for(page: Page) -> None:
    for _ in range(3):
        append(page.place, LedgerName.HO1M, [Entry("X", session_id="SES-0")] * 700)
    tab = page.open("/files")
    tab.sees("0 files, 0 calls, among the newest entries")
    tab.click("Read older entries, too")
    tab.click("notes.md", ".row")
    tab.sees("+2", ".detail")
    tab = page.open("/files?path=notes.md")
    tab.sees("+2", ".detail")
    assert tab.problems == []


def test_back_leads_from_one_item_to_its_list_on_a_phone(place: McpPlace) -> None:
    with opened(place, width=360) as page:
        tab = page.open("/files")
        tab.click("notes.md", ".row")
        tab.sees("Undo this call", ".detail")
        tab.run("history.back()")
        tab.until("location.search === '' && document.querySelector('.rows').checkVisibility()")
        tab.run("history.forward()")
        tab.sees("Undo this call", ".detail")
        assert tab.problems == []


def test_a_saved_policy_is_said_to_be_where_a_phone_shows_it(place: McpPlace) -> None:
    with opened(place, width=360) as page:
        tab = page.open("/policy")
        tab.until("globalThis.policy?.value")
        tab.run("policy.value += '# more\\n'; policy.dispatchEvent(new Event('input'))")
        seen = (
            "((box) => box.top < innerHeight && box.bottom > 0)(SELECTED.getBoundingClientRect())"
        )
        tab.click("What changes")
        tab.until(seen.replace("SELECTED", "document.querySelector('.panel')"))
        tab.click("Review and save …")
        tab.click("Save and trust exactly this text")
        tab.sees("Saved and trusted.", ".head")
        tab.until(seen.replace("SELECTED", "document.querySelector('.head .good')"))
        assert tab.problems == []


def test_calls_are_shown_however_much_was_said_since(page: Page) -> None:
    append(page.place, LedgerName.HO2M, [Entry("TURN_RECORDED", session_id="SES-0")] * 300)
    tab = page.open("/now")
    tab.sees("notes.md", "ul.calls")


def test_a_call_shows_as_it_happens_without_a_reload(page: Page) -> None:
    tab = page.open("/now")
    tab.sees("notes.md", "ul.calls")
    assert "README.md" not in tab.run("document.querySelector('ul.calls').innerText")
    make_call(page.place, "view", path="README.md")
    tab.sees("README.md", "ul.calls")
    make_call(page.place, "create_file", path="asked/more.md", content="more\n")
    tab.sees("2 questions wait for you")
    tab.until("document.title === '(2) Now · Paddock'")
    assert tab.problems == []


def test_a_new_question_is_told_by_the_browser_to_whoever_wants_it(page: Page) -> None:
    tab = page.open("/timeline")
    tab.sees("Live", "#live")
    tab.until("document.querySelector('#waiting').innerText.startsWith('1')")
    tab.run(
        "globalThis.shown = []; globalThis.Notification = class {"
        "static permission = 'granted'; constructor(title, {body}) { shown.push([title, body]); }}"
    )
    make_call(page.place, "create_file", path="asked/\u202emore.md", content="more\n")
    found = tab.until("shown.length && shown")
    assert found == [["1 question waits", "main wants to create asked/\\u202emore.md"]]


def test_policy_is_tried_as_it_is_typed_and_saved_after_its_effect_was_shown(page: Page) -> None:
    file = page.place.project / "paddock.toml"
    before = file.read_text()
    tab = page.open("/policy?action=tool:file:view+notes.md")
    tab.sees("Allowed", ".panel")
    tab.sees("Trusted and in force.", ".head")
    changed = before.replace('deny = ["', 'deny = ["tool:file:view notes.md", "')
    tab.run(
        f"policy.value = {json.dumps(changed)};"
        "policy.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    tab.sees("Refused", ".panel")
    tab.sees("Edited here, not saved yet.", ".head")
    tab.click("Review and save …")
    tab.sees("Its effect on past calls", ".review")
    tab.sees("tool:file:view notes.md", ".review")
    assert file.read_text() == before
    tab.click("Save and trust exactly this text")
    tab.sees("Saved and trusted.", ".head")
    assert file.read_text() == changed
    assert make_call(page.place, "view", path="notes.md")["code"] == "policy.denied"
    tab.click("What changes")
    tab.sees("Nothing is edited.", ".panel")
    assert tab.problems == []


def test_each_rule_is_told_in_words_with_who_and_the_line_that_it_leads_to(page: Page) -> None:
    page.place.govern(
        '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:delete docs/**"]\n'
        'deny = ["tool:net:connect evil.example"]\notherwise = { "tool:shell:*" = "ask" }\n'
        '[paths]\nsecret = ["*.key"]\n'
    )
    tab = page.open("/policy")
    tab.sees("main", ".panel h3")
    found = tab.run(
        "[...document.querySelectorAll('.panel h3, .panel > div > .rules .rule')]"
        ".map((each) => each.innerText.replaceAll('\\n', ' '))"
    )
    lines = (page.place.project / "paddock.toml").read_text().splitlines()
    at = {word: number for number, row in enumerate(lines, 1) for word in row.split(" = ")[:1]}
    assert found == [
        "main",
        f"Allowed read or change any file Line {at['allow']}",
        f"Asked delete docs/** Line {at['ask']}",
        f"Refused connect evil.example Line {at['deny']}",
        f"Asked run any command if no other rule matches Line {at['otherwise']}",
        "Every agent, above all other rules",
        f"Refused read or change *.key Line {at['secret']}",
    ]
    tab.click(f"Line {at['ask']}")
    chosen = "policy.value.slice(policy.selectionStart, policy.selectionEnd)"
    assert tab.run(chosen) == 'ask = ["tool:file:delete docs/**"]'
    assert tab.problems == []


def test_examples_of_rules_are_tried_in_a_tab_of_their_own(page: Page) -> None:
    tab = page.open("/policy")
    tab.until("globalThis.policy?.value")
    tab.click("Examples")
    tab.sees("A rule may have examples", ".panel")
    rule = 'action = "tool:file:view notes.md"\noutcome = "deny"\nmatch = ["tool:file:view notes.md"]\n'
    tab.run(
        f"policy.value += {json.dumps(f'[[profiles.standard.rules]]{chr(10)}{rule}')};"
        "policy.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    tab.sees("Passed: tool:file:view notes.md matches tool:file:view notes.md", ".panel")
    assert tab.problems == []


def test_policy_that_does_not_load_is_told_with_its_line_and_cannot_be_saved(page: Page) -> None:
    file = page.place.project / "paddock.toml"
    before = file.read_text()
    tab = page.open("/policy")
    tab.until("globalThis.policy?.value")
    tab.run(
        "policy.value += 'allow = [\"tool:nothing:*\"]\\n[profiles';"
        "policy.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    tab.sees("paddock.toml", ".panel")
    tab.click("Review and save …")
    tab.until("document.querySelector('.head .bad')")
    assert (file.read_text(), tab.run("document.querySelector('.review')")) == (before, None)


def test_policy_that_was_changed_meanwhile_is_not_overwritten(page: Page) -> None:
    file = page.place.project / "paddock.toml"
    tab = page.open("/policy")
    tab.until("globalThis.policy?.value")
    file.write_text(file.read_text() + "# somebody else\n")
    theirs = file.read_text()
    tab.run("policy.value += '# mine\\n'; policy.dispatchEvent(new Event('input'))")
    tab.click("Review and save …")
    tab.until("document.querySelector('.head .bad, .review .bad')")
    assert file.read_text() == theirs


def test_a_session_is_read_and_gone_on_with(place: McpPlace) -> None:
    place.run("run", "what files are there?")
    with opened(place) as page:
        tab = page.open("/sessions")
        tab.sees("what files are there?", ".detail")
        tab.sees("list", ".detail ul.calls")
        tab.run("task.focus()")
        tab.write("what is in notes.md?")
        tab.click("Send")
        tab.sees("Turn 2", ".detail")
        tab.sees("what is in notes.md?", ".turn:nth-child(2)")
        tab.until("task.value === '' && !document.querySelector('.resume [role=status] *')")
        assert tab.problems == []
    found = json.loads(place.run("session", "list", "--json").stdout)
    assert [each["turns"] for each in found] == [2]


def test_the_page_itself_proves_an_entry_and_says_where_the_server_lies(page: Page) -> None:
    tab = page.open("/timeline")
    tab.click("", ".row:nth-child(2)")
    tab.sees("Proved: checked in this browser", ".detail")
    tab.click("The entry as it is stored")
    tab.sees('"event_type"', ".detail details")
    lie = """
      const honest = fetch;
      globalThis.fetch = async (path, options) => {
        const answer = await honest(path, options);
        if (!path.startsWith("/api/proof")) return answer;
        const proof = await answer.json();
        LIE;
        return new Response(JSON.stringify(proof), {headers: {"Content-Type": "application/json"}});
      }"""
    for each in (
        "proof.line = btoa(atob(proof.line).replace('main', 'mian'))",
        "proof.path = proof.path.slice(1)",
        "proof.note = proof.note.replace(/\\n.{20}/, (it) => it.toLowerCase())",
        "proof.note = proof.note.replace(/.{12}\\n$/, 'AAAAAAAAAAA=\\n')",
    ):
        tab = page.open("/now")
        tab.until("document.querySelector('ul.calls a')")
        tab.run(lie.replace("LIE", each))
        tab.click("", "ul.calls a")
        tab.sees("BROKEN: checked in this browser", ".detail")


def test_the_record_is_verified_and_damage_is_said_on_every_page(place: McpPlace) -> None:
    with opened(place) as page:
        tab = page.open("/ledgers")
        tab.click("Verify all")
        tab.sees("Whole", ".ledger.ho1m")
        assert tab.problems == []
    ledger = next(place.base.rglob("ho1m.jsonl"))
    lines = ledger.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"notes.md", b"votes.md")
    ledger.write_bytes(b"\n".join(lines))
    with opened(place) as page:
        tab = page.open("/ledgers")
        tab.click("Verify", ".ledger.ho1m button")
        tab.sees("DAMAGED", ".ledger.ho1m")
        tab.sees("line 3", ".ledger.ho1m")


def test_a_window_whose_server_was_started_again_says_what_to_do(place: McpPlace) -> None:
    with opened(place) as page:
        port = page.server.port
        tab = page.open("/now")
        tab.sees("Live", "#live")
        page.server.process.kill()
        page.server.process.wait()
        tab.sees("No connection, trying again", "#live")
        with serving(place, "--port", str(port)):
            tab.sees("has ended", "#alerts")


def test_a_token_that_only_reads_is_offered_nothing_to_do(place: McpPlace) -> None:
    with serving(place, "--read-only", is_exchanged=False) as server, opened(place) as page:
        tab = page.tab
        tab.go(f"{server.origin}/#code={server.code}")
        tab.sees("read only", "#project")
        tab.click("Inbox")
        tab.sees("main wants to create asked/guide.md", ".detail")
        assert not tab.run("document.querySelector('.answer')")
        tab.click("Files")
        tab.click("notes.md")
        tab.sees("+2", ".detail")
        assert "Undo" not in tab.run("document.body.innerText")
        tab.click("Policy")
        assert tab.until("globalThis.policy?.readOnly") is True


def test_damage_that_is_met_while_one_looks_is_said_on_whatever_page_is_open(page: Page) -> None:
    tab = page.open("/files")
    tab.sees("Live", "#live")
    ledger = next(page.place.base.rglob("ho1m.jsonl"))
    with ledger.open("ab") as file:
        file.write(b"no entry\n")
    tab.sees("The ledger ho1m is damaged", "#alerts")
    tab.click("Show the ledgers")
    tab.sees("The record", "main")


def test_a_ledger_is_saved_as_lines_and_as_a_page_that_verifies_itself(page: Page) -> None:
    tab = page.open("/ledgers")
    tab.until("document.querySelector('.ledger button')")
    # What is saved goes to the disk of whoever looks; here it is caught on its way.
    tab.run(
        "URL.createObjectURL = (blob) => (blob.text().then((text) => (globalThis.saved = text)),"
        " 'data:,'); HTMLAnchorElement.prototype.click = () => {};"
    )
    ledger = next(page.place.base.rglob("ho1m.jsonl"))
    for label, begins in (
        ("Save as JSONL", ledger.read_text()[:60]),
        ("Save as page", "<!DOCTYPE"),
    ):
        tab.run("globalThis.saved = ''")
        tab.click(label, ".ledger.ho1m button")
        assert tab.until("saved").startswith(begins)
    assert tab.problems == []


def test_a_question_about_a_replacement_shows_every_line_of_it(page: Page) -> None:
    page.place.govern('[profiles.standard]\nask = ["tool:file:str_replace **"]\n')
    new = "++ b/2\n-- a/2\n@@ -1 +1 @@\n[ 2\n\\ 2\n2"
    make_call(page.place, "str_replace", path="notes.md", old_str="-- 2\n2", new_str=new)
    tab = page.open("/inbox")
    tab.click("main wants to edit notes.md", ".row")
    tab.sees("main wants to edit notes.md", "h2.title")
    rows = "[...document.querySelector('.diff').rows].map((row) => row.innerText.trim())"
    assert tab.run(rows) == [
        *("−\\x2d- 2", "−2", "+\\x2b+ b/2", "+\\x2d- a/2", "+@@ -1 +1 @@", "+[ 2", "+\\ 2", "+2")
    ]


SHELL = """
[profiles.standard]
allow = ["tool:file:*", "tool:net:connect files.example.org", "tool:shell:run ls"]
ask = ["tool:file:create asked/**", "tool:net:connect mail.example.org"]
otherwise = { "tool:shell:*" = "ask" }
[shell]
approve = "diff"
"""


def test_a_change_that_a_person_approved_leads_back_to_the_call_that_asked(page: Page) -> None:
    page.place.govern(SHELL)
    make_call(page.place, "run_shell", command="echo four >> notes.md")
    tab = page.open("/inbox")
    tab.click("main wants to run", ".row")
    tab.sees("none is in the project yet", ".detail")
    tab.sees("reach files.example.org, mail.example.org (after approval)", ".detail")
    tab.click("Approve these changes")
    tab.sees("The changes are in the project.", ".detail")
    assert "none is in the project yet" not in tab.run(
        "document.querySelector('.detail').innerText"
    )
    tab = page.open("/files?path=notes.md")
    tab.sees("a person: apply", ".detail")
    tab.click("main, in CALL-", "a")
    tab.sees("main: run echo four >> notes.md", "h2.title")
    tab = page.open("/now")
    tab.sees("rules let commands reach files.example.org", "ul.walls")
    assert tab.problems == []


def test_a_call_that_ran_by_a_yes_leads_back_to_the_one_that_asked(page: Page) -> None:
    tab = page.open("/inbox")
    tab.click("Approve and run it now")
    tab.sees("It ran.", ".detail")
    tab = page.open("/files?path=asked/guide.md")
    tab.click("main, in CALL-", "a")
    tab.sees("approval.unavailable", ".detail")


def test_a_rule_that_decided_leads_to_its_line_in_the_policy(page: Page) -> None:
    make_call(page.place, "delete_file", path="notes.md")
    tab = page.open("/timeline?tool=delete_file")
    tab.click("", ".row")
    tab.click("paddock.toml, line", ".detail a")
    chosen = "globalThis.policy && policy.value.slice(policy.selectionStart, policy.selectionEnd)"
    assert tab.until(chosen) == 'deny = ["tool:file:delete"]'
