"""The commands of the shell: what begins with a slash."""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from paddock.agent.recorded import RecordedSession, list_sessions
from paddock.apps.admin.desk import Desk, examine
from paddock.apps.admin.plain import Vocabulary
from paddock.apps.admin.show import (
    Row,
    ShownTable,
    TextLook,
    TextSpan,
    line,
    lines,
    pairs,
    row,
    spoken,
)
from paddock.assembly.auditing import audit_ledger
from paddock.assembly.project import report_of
from paddock.assembly.sessions import require_session, sessions_of
from paddock.errors import UnknownToolError, UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter
from paddock.ledger.verify import Verification
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.policy.questions.explain import explain
from paddock.policy.rules import parse_action
from paddock.providers.builtin import parse_call
from paddock.providers.structured import as_map
from paddock.sandbox.backends import probe_host
from paddock.sandbox.values import Enforcement
from paddock.text.json import parse_object
from paddock.text.show import quote, show_name
from paddock.values.calls import Json
from paddock.values.decisions import RuleMatch
from paddock.values.models import ToolSchema

LEDGERS: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M, LedgerName.PACKAGES)
SHOWN: Final = ("frameworks", "packages", "config")
_LAST: Final = 10
_DIGITS_MAX: Final = 9
"""Python converts no integer of very many digits."""
_TIME_CHARS: Final = 19
_CALL_USAGE: Final = "/call TOOL [NAME=VALUE ...]"
_INSTALLED: Final = "list_packages"
_CLASSIFY: Final = {
    True: "on: the model is first asked what kind of message came; a greeting gets no tools",
    False: "off: every message is offered all tools",
}


def _show(rest: str, desk: Desk) -> None:
    what = rest.strip()
    if what not in SHOWN:
        raise UsageError(
            f"{quote(what)} cannot be shown", where="/show", hint=f"one of: {', '.join(SHOWN)}"
        )
    if what == "config":
        _show_config(desk)
        return
    if _INSTALLED not in {tool.name for tool in desk.runtime.tools.list_all()}:
        raise UsageError(
            f"{what} cannot be listed: this agent has no tool {_INSTALLED}",
            where="/show",
            hint="/tools lists what it has",
        )
    desk.call_in_full(_INSTALLED, {})


def _show_config(desk: Desk) -> None:
    project = desk.project
    report = report_of(project)
    facts: list[tuple[str, str | TextSpan]] = [
        ("root", str(report.root)),
        ("plane", str(report.plane)),
    ]
    policies = [str(path) for path in project.files.paths()] or ["built-in defaults"]
    facts += [("policy", each) for each in policies]
    facts += [(f"ledger {name}", str(path)) for name, path in report.ledgers.items()]
    config = project.admin
    if config is not None:
        budget, allowed = config.budget, config.permissions
        facts += [
            ("configuration", str(config.file)),
            ("digest", config.digest),
            ("agent", f"{config.agent_id} ({config.agent_class}, {config.framework_id})"),
            ("tier", config.tier),
            ("tool_profile", config.tool_profile),
            ("dual gate", str(project.gate)),
            ("made with --dev", "yes" if report.made_with_dev else "no"),
            ("model", f"{config.model.provider}:{config.model.name or 'default'}"),
            ("classify", _CLASSIFY[config.classify]),
            ("budget", f"{budget.session_tokens:,} tokens a session ({budget.mode})"),
            ("read", ", ".join(allowed.read) or "nothing"),
            ("write", ", ".join(allowed.write) or "nothing"),
            ("forbidden", ", ".join(allowed.forbidden) or "nothing"),
        ]
    desk.screen.show(pairs(facts))


def _policy(rest: str, desk: Desk) -> None:
    project, agent = desk.project, desk.session.charter.agent
    record = project.agents.read(agent)
    policy, chain = project.policy_for(record), project.agents.chain(agent)
    if rest.strip():
        desk.screen.show(lines(explain(policy, chain, parse_action(rest.strip())).render()))
        return
    profile = policy.find_profile(record.agent.profile)
    facts: list[tuple[str, str | TextSpan]] = [
        ("digest", policy.digest),
        *(("file", str(path)) for path in project.files.paths()),
        ("profile", record.agent.profile),
        ("agents", " below ".join(each.name for each in chain)),
    ]
    desk.screen.show(pairs(facts))
    rows: list[Row] = []
    if profile is not None:
        rows += [_rule_row(each.shown) for each in profile.rules]
        rows += [_rule_row(each.as_match()) for each in profile.otherwise]
    desk.screen.show(ShownTable(tuple(rows), ("outcome", "rule", "where")))
    desk.screen.show(
        line(TextSpan("what no rule allows is denied; /policy ACTION explains", TextLook.DIM))
    )


def _rule_row(rule: RuleMatch) -> Row:
    return row(rule.outcome.word, rule.text, rule.place)


def _ledger(rest: str, desk: Desk) -> None:
    words = rest.split()
    if words == ["verify"]:
        _verify_ledgers(desk)
        return
    name = words.pop(0) if words else LedgerName.GOVERNANCE.value
    last = _parse_last(words.pop()) if words and words[-1].isdecimal() else _LAST
    kind = words.pop(0) if words else None
    if name not in LEDGERS or words:
        known = f"one of: {', '.join(LEDGERS)}"
        raise UsageError(f"{quote(rest)} is no ledger", where="/ledger", hint=known)
    found = sessions_of(desk.project).query(LedgerName(name), Filter(kind), last or None)
    rows = tuple(_entry_row(each) for each in found.entries)
    if not rows:
        desk.screen.show(line(f"the ledger {name} has no such entries"))
        return
    desk.screen.show(ShownTable(rows, ("seq", "time", "event", "decision", "what")))
    if found.bad:
        said = f"{len(found.bad)} lines hold no entry: /ledger verify"
        desk.screen.show(line(TextSpan(said, TextLook.BAD)))


def _verify_ledgers(desk: Desk) -> None:
    paths = desk.project.layout.ledger_paths()
    there = [name for name in LEDGERS if paths[name].exists()]
    layout, environment = desk.project.layout, desk.project.environment
    rows = tuple(_report_row(name, audit_ledger(layout, environment, name)) for name in there)
    desk.screen.show(ShownTable(rows, ("ledger", "state", "entries", "head")))


def _parse_last(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise UsageError(
            f"{quote(digits)} is no number of entries",
            where="/ledger",
            hint=f"at most {_DIGITS_MAX} digits; 0 shows all",
        )
    return int(digits)


def _entry_row(stored: StoredEntry) -> Row:
    entry = stored.entry
    metadata = entry.metadata
    subject = str(metadata.get("tool") or entry.submission_id or metadata.get("user_message", ""))
    return row(
        str(stored.seq),
        stored.timestamp[:_TIME_CHARS],
        entry.event_type,
        entry.decision or "-",
        f"{show_name(subject)} {show_name(entry.reason)}".strip(),
    )


def _report_row(name: str, report: Verification) -> Row:
    state = (
        TextSpan("whole", TextLook.GOOD) if report.is_whole else TextSpan("DAMAGED", TextLook.BAD)
    )
    head = "" if report.head is None else f"{report.head.seq} {report.head.hash[:16]}"
    return row(name, state, str(report.entries), head)


def _doctor(rest: str, desk: Desk) -> None:
    findings = tuple(
        row(_mark(ok=each.is_there), each.name, "; ".join(filter(None, (each.found, each.remedy))))
        for each in probe_host()
    )
    desk.screen.show(ShownTable(findings))
    verdicts = examine(desk.project)
    rows = tuple(
        row(
            _mark(ok=each.enforcement is not Enforcement.NONE),
            each.backend,
            each.enforcement.value,
            "; ".join(each.gaps) or each.cause,
        )
        for each in verdicts
    )
    desk.screen.show(ShownTable(rows, ("", "backend", "enforcement", "gaps")))


def _mark(*, ok: bool) -> TextSpan:
    return TextSpan("yes", TextLook.GOOD) if ok else TextSpan("no", TextLook.WARN)


_LISTED_MAX: Final = 20
_MESSAGE_CHARS_MAX: Final = 60
_TURNS_REPEATED: Final = 3


def _sessions(rest: str, desk: Desk) -> None:
    agent = desk.session.charter.agent
    found = list_sessions(sessions_of(desk.project), agent)
    missing = len(found) - _LISTED_MAX
    if missing > 0:
        said = f"{missing} older sessions are not listed: paddock session list"
        desk.screen.show(line(TextSpan(said, TextLook.DIM)))
    rows = tuple(_row(each, desk) for each in found[-_LISTED_MAX:])
    desk.screen.show(ShownTable(rows, ("session", "started", "state", "turns", "first message")))


def _row(session: RecordedSession, desk: Desk) -> Row:
    state = "ended" if session.ended else "open"
    if session.session_id == desk.session.session_id:
        state = "this"
    first = session.turns[0].user_message if session.turns else ""
    cut = "…" if len(first) > _MESSAGE_CHARS_MAX else ""
    return row(
        session.session_id,
        session.started[:_TIME_CHARS],
        state,
        str(len(session.turns)),
        f"{first[:_MESSAGE_CHARS_MAX]}{cut}",
    )


def _resume(rest: str, desk: Desk) -> None:
    """Open it and show where it stopped. Raises: UsageError; then this one stays."""
    session_id = rest.strip()
    if not session_id:
        raise UsageError("no session was named", where="/resume", hint="/sessions lists them")
    if session_id == desk.session.session_id:
        raise UsageError("that is this very session", where="/resume")
    before = require_session(desk.project, session_id)
    desk.resume(session_id)
    left_out = len(before.turns) - _TURNS_REPEATED
    if left_out > 0:
        desk.screen.show(
            line(TextSpan(f"{left_out} earlier turns: paddock session show", TextLook.DIM))
        )
    for turn in before.turns[-_TURNS_REPEATED:]:
        desk.screen.show(lines(turn.user_message, gutter="> "))
        desk.screen.show(spoken(turn.response or f"({turn.reason})", TextLook.DIM))
    count = "1 turn" if len(before.turns) == 1 else f"{len(before.turns)} turns"
    desk.screen.show(line(f"resumed {session_id} after {count}"))
    for notice in desk.session.notices[len(desk.project.notices) :]:
        desk.screen.show(line(TextSpan("note: ", TextLook.WARN), notice))


def _cost(rest: str, desk: Desk) -> None:
    session, status = desk.session, desk.status()
    cost = session.supervisor.cost
    account = session.budget.account
    limit = "no limit" if account.limit is None else f"{account.limit:,}"
    left = "no limit" if status.tokens_left is None else f"{status.tokens_left:,}"
    money = {"none": "none: this model costs nothing"}.get(
        status.cost, "unknown: no prices are known"
    )
    desk.screen.show(
        pairs(
            [
                ("tokens", f"{cost.total_tokens:,}"),
                ("  input", f"{cost.usage.input:,}"),
                ("  output", f"{cost.usage.output:,}"),
                ("  cache read", f"{cost.usage.cache_read:,}"),
                ("  cache write", f"{cost.usage.cache_write:,}"),
                ("budget", f"{limit} ({session.budget.mode.value})"),
                ("left", left),
                ("model calls", str(cost.llm_calls)),
                ("tool calls", str(cost.tool_calls)),
                ("tools used", ", ".join(cost.tool_ids_used) or "none"),
                ("money", money),
            ]
        )
    )


def _status(rest: str, desk: Desk) -> None:
    status, project = desk.status(), desk.project
    gate = str(project.gate) if project.admin is not None else "closed: only a bare plane has it"
    left = "no limit" if status.tokens_left is None else f"{status.tokens_left:,} left"
    backend = status.sandbox.backend or ("none" if status.sandbox.refused else "")
    said = "commands are refused" if status.sandbox.refused else f"backend {backend}"
    desk.screen.show(
        pairs(
            [
                ("session", desk.session.session_id),
                ("agent", status.agent),
                ("profile", status.profile),
                ("workspace", str(project.agents.read(status.agent).workspace)),
                ("plane", str(project.layout.root)),
                ("model", f"{status.provider}:{status.model}"),
                ("dual gate", gate),
                ("sandbox", f"{status.sandbox} ({said})"),
                ("turns", str(desk.session.supervisor.turns)),
                ("tokens", f"{status.tokens:,} ({left})"),
                ("cost", status.cost),
            ]
        )
    )
    for badge in status.badges:
        desk.screen.show(line("  ", TextSpan(f" {badge} ", TextLook.LOUD)))


def _tools(rest: str, desk: Desk) -> None:
    allowed = desk.session.charter.tools_allowed
    rows = [
        row(
            TextSpan(tool.name, TextLook.STRONG),
            tool.spec.toolset,
            "reads" if tool.reads_only else "writes",
            "model and you" if tool.name in allowed else "you alone",
            tool.spec.title,
        )
        for tool in desk.runtime.tools.list_all()
    ]
    desk.screen.show(ShownTable(tuple(rows), ("tool", "toolset", "effect", "called by", "what")))


def _call(rest: str, desk: Desk) -> None:
    name, _, given = rest.strip().partition(" ")
    if not name:
        raise UsageError("no tool was named", where="/call", hint=_CALL_USAGE)
    desk.call_in_full(name, _arguments(name, given.strip(), desk))


def _arguments(name: str, given: str, desk: Desk) -> Json:
    if given.startswith("{") or not given:
        return parse_object(given or "{}")
    try:
        tool = desk.runtime.tools.get(name)
    except UnknownToolError:
        return {}  # The door answers, and records it.
    schema = ToolSchema(name, "", tool.binder.schema)
    call = parse_call(f"{name} {given}", {name: schema})
    if call is None:
        raise UsageError(
            f"{quote(given)} is neither a JSON object nor NAME=VALUE",
            where=f"/call {name}",
            hint=f'such as /call {name} {{"path": "."}}, or path=.',
        )
    return dict(call.arguments)


def _expand(rest: str, desk: Desk) -> None:
    asked = rest.strip().removeprefix("#")
    number = _parse_number(asked) if asked else desk.calls.last
    shown = desk.calls.find(number)
    if shown is None:
        what = f"call {quote(rest.strip())}" if asked else "call yet"
        raise UsageError(
            f"there is no {what}",
            where="/expand",
            hint="the numbers stand on the calls' lines; older calls: /ledger ho1m",
        )
    for block in shown.in_full():
        desk.screen.show(block)


def _parse_number(asked: str) -> int:
    is_number = asked.isdecimal() and len(asked) <= _DIGITS_MAX
    return int(asked) if is_number else 0


_COMMAND: Final = lazy_pattern(r"/(\S+)\s*(.*)", re.DOTALL)


class AdminCommand(Struct, frozen=True):
    usage: str
    summary: str
    run: Callable[[str, Desk], None]
    """Is given what was typed behind the name. Raises: PaddockError."""


class ParsedCommand(Struct, frozen=True):
    name: str
    rest: str


def _help(rest: str, desk: Desk) -> None:
    rows = tuple(row(TextSpan(each.usage), each.summary) for each in COMMANDS.values())
    keys = (
        row("Tab", "complete a command, a tool or an argument"),
        row("Ctrl-R", "search in what was typed before"),
        row("Alt-Enter", "a new line; so does a line that ends in \\"),
        row("Ctrl-C", "cancel what runs; twice on an empty line leaves"),
        row("a space in front", "not a command, and not kept in the history"),
    )
    desk.screen.show(ShownTable((*rows, row("", ""), *keys)))


def _exit(rest: str, desk: Desk) -> None:
    desk.is_leaving = True


COMMANDS: Final[Mapping[str, AdminCommand]] = {
    "help": AdminCommand("/help", "list these commands", _help),
    "tools": AdminCommand("/tools", "the tools of this agent, and who may call them", _tools),
    "call": AdminCommand(_CALL_USAGE, "call a tool yourself, governed as every call", _call),
    "expand": AdminCommand("/expand [NUMBER]", "a call in full (default: the last)", _expand),
    "show": AdminCommand("/show WHAT", "WHAT is frameworks, packages or config", _show),
    "policy": AdminCommand("/policy [ACTION]", "what decides; with ACTION, how and why", _policy),
    "ledger": AdminCommand(
        "/ledger [NAME [TYPE]] [LAST]", "newest entries; /ledger verify looks at all", _ledger
    ),
    "sessions": AdminCommand("/sessions", "the sessions of this agent, the newest last", _sessions),
    "resume": AdminCommand("/resume SESSION", "go on with an earlier one; this one ends", _resume),
    "cost": AdminCommand("/cost", "what this session has spent, and what is left", _cost),
    "status": AdminCommand("/status", "how things stand: agent, gate, sandbox, tokens", _status),
    "doctor": AdminCommand("/doctor", "what this host can enforce on files and commands", _doctor),
    "exit": AdminCommand("/exit", "end the session and leave", _exit),
}


def parse_command(text: str) -> ParsedCommand | None:
    found = _COMMAND.fullmatch(text.rstrip())
    return None if found is None else ParsedCommand(found[1], found[2])


def find_command(name: str) -> AdminCommand:
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
        said = f"did you mean /{near[0]}; " if near else "/help lists them; "
        raise UsageError(
            f"unknown command {quote(f'/{name}')}",
            hint=f"{said}with a space in front it is said to the model",
        )
    return command


def vocabulary(desk: Desk) -> Vocabulary:
    tools = desk.runtime.tools.list_all()
    return Vocabulary(
        commands={name: command.summary for name, command in COMMANDS.items()},
        parameters={
            tool.name: tuple(as_map(tool.binder.schema.get("properties"))) for tool in tools
        },
        words={"show": SHOWN, "ledger": (*LEDGERS, "verify")},
    )
