"""The commands of the admin shell: `/help` and the others."""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from paddock.agent.session_log import list_sessions
from paddock.apps.admin.plain import Vocabulary
from paddock.apps.admin.session import AdminContext, examine
from paddock.apps.admin.show import (
    Row,
    ShownTable,
    TextLook,
    TextSpan,
    dim,
    line,
    lines,
    note,
    pairs,
    row,
    spoken,
)
from paddock.assembly.audit import audit_ledger
from paddock.assembly.ledgers import ledger_of
from paddock.assembly.project import report_of
from paddock.assembly.sessions import require_session, sessions_of
from paddock.errors import UnknownToolError, UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter
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
"""Python refuses to convert integers with very many digits."""
_TIME_CHARS: Final = 19
_CALL_USAGE: Final = "/call TOOL [NAME=VALUE ...]"
_LISTED_MAX: Final = 20
_MESSAGE_CHARS_MAX: Final = 60
_TURNS_REPEATED: Final = 3
_FREE: Final = "this model is free"
_INSTALLED: Final = "list_packages"
_CLASSIFY: Final = {
    True: "on: the model first classifies each message; for a greeting it gets no tools",
    False: "off: the model gets all tools for every message",
}


def _show(rest: str, context: AdminContext) -> None:
    what = rest.strip()
    if what not in SHOWN:
        raise UsageError(
            f"cannot show {quote(what)}", where="/show", hint=f"one of: {', '.join(SHOWN)}"
        )
    if what == "config":
        _show_config(context)
        return
    if _INSTALLED not in {tool.name for tool in context.runtime.tools.list_all()}:
        raise UsageError(
            f"cannot list {what}: this agent has no tool {_INSTALLED}",
            where="/show",
            hint="/tools lists the tools it has",
        )
    context.call_in_full(_INSTALLED, {})


def _show_config(context: AdminContext) -> None:
    project = context.project
    report = report_of(project)
    facts: list[tuple[str, str | TextSpan]] = [
        ("root", str(report.root.path)),
        ("plane", str(report.layout.root)),
    ]
    policies = [str(path) for path in project.files.paths()] or ["built-in defaults"]
    facts += [("policy", each) for each in policies]
    facts += [(f"ledger {name}", str(path)) for name, path in report.layout.ledger_paths().items()]
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
            ("budget", f"{budget.session_tokens:,} tokens per session ({budget.mode})"),
            ("read", ", ".join(allowed.read) or "nothing"),
            ("write", ", ".join(allowed.write) or "nothing"),
            ("forbidden", ", ".join(allowed.forbidden) or "nothing"),
        ]
    context.show(pairs(facts))


def _policy(rest: str, context: AdminContext) -> None:
    project, agent = context.project, context.session.charter.agent
    record = project.agents.read(agent)
    policy, chain = project.policy_for(record), project.agents.chain(agent)
    if rest.strip():
        context.show(lines(explain(policy, chain, parse_action(rest.strip())).render()))
        return
    facts: list[tuple[str, str | TextSpan]] = [
        ("digest", policy.digest),
        *(("file", str(path)) for path in project.files.paths()),
        ("profile", record.agent.profile),
        ("agents", " below ".join(each.name for each in chain)),
    ]
    context.show(pairs(facts))
    profile = policy.find_profile(record.agent.profile)
    rules: list[RuleMatch] = []
    if profile is not None:
        rules += [each.shown for each in profile.rules]
        rules += [each.as_match() for each in profile.otherwise]
    rows = (row(each.outcome.word, each.text, each.place) for each in rules)
    context.show(ShownTable(tuple(rows), ("outcome", "rule", "where")))
    context.show(dim("an action that no rule allows is denied; /policy ACTION explains"))


def _ledger(rest: str, context: AdminContext) -> None:
    words = rest.split()
    if words == ["verify"]:
        _verify_ledgers(context)
        return
    name = words.pop(0) if words else LedgerName.GOVERNANCE.value
    last = _LAST
    if words and words[-1].isdecimal():
        digits = words.pop()
        if len(digits) > _DIGITS_MAX:
            raise UsageError(
                f"invalid number of entries {quote(digits)}",
                where="/ledger",
                hint=f"at most {_DIGITS_MAX} digits; 0 shows all",
            )
        last = int(digits)
    kind = words.pop(0) if words else None
    if name not in LEDGERS or words:
        known = f"one of: {', '.join(LEDGERS)}"
        raise UsageError(f"no ledger named {quote(rest)}", where="/ledger", hint=known)
    found = sessions_of(context.project).query(LedgerName(name), Filter(kind), last or None)
    if not found.entries:
        context.show(line(f"the ledger {name} has no such entries"))
        return
    rows = tuple(map(_entry_row, found.entries))
    context.show(ShownTable(rows, ("seq", "time", "event", "decision", "what")))
    if found.bad:
        said = f"{len(found.bad)} lines are not valid entries: /ledger verify"
        context.show(line(TextSpan(said, TextLook.BAD)))


def _entry_row(stored: StoredEntry) -> Row:
    entry, metadata = stored.entry, stored.entry.metadata
    subject = str(metadata.get("tool") or entry.submission_id or metadata.get("user_message", ""))
    what = f"{show_name(subject)} {show_name(entry.reason)}".strip()
    time = stored.timestamp[:_TIME_CHARS]
    return row(str(stored.seq), time, entry.event_type, entry.decision or "-", what)


def _verify_ledgers(context: AdminContext) -> None:
    rows: list[Row] = []
    for ledger in [ledger_of(context.project, name) for name in LEDGERS]:
        if not ledger.path.exists():
            continue
        report = audit_ledger(ledger)
        state = TextSpan("DAMAGED", TextLook.BAD)
        if report.is_whole:
            state = TextSpan("whole", TextLook.GOOD)
        head = "" if report.head is None else f"{report.head.seq} {report.head.hash[:16]}"
        rows.append(row(ledger.name, state, str(report.entries), head))
    context.show(ShownTable(tuple(rows), ("ledger", "state", "entries", "head")))


def _doctor(rest: str, context: AdminContext) -> None:
    findings = tuple(
        row(_mark(ok=each.is_there), each.name, "; ".join(filter(None, (each.found, each.remedy))))
        for each in probe_host()
    )
    context.show(ShownTable(findings))
    rows: list[Row] = []
    for each in examine(context.project):
        mark = _mark(ok=each.enforcement is not Enforcement.NONE)
        gaps = "; ".join(each.gaps) or each.cause
        rows.append(row(mark, each.backend, each.enforcement.value, gaps))
    context.show(ShownTable(tuple(rows), ("", "backend", "enforcement", "gaps")))


def _mark(*, ok: bool) -> TextSpan:
    return TextSpan("yes", TextLook.GOOD) if ok else TextSpan("no", TextLook.WARN)


def _sessions(rest: str, context: AdminContext) -> None:
    found = list_sessions(sessions_of(context.project), context.session.charter.agent)
    missing = len(found) - _LISTED_MAX
    if missing > 0:
        context.show(dim(f"{missing} older sessions are not listed: paddock session list"))
    rows: list[Row] = []
    for each in found[-_LISTED_MAX:]:
        state = "ended" if each.ended else "open"
        if each.session_id == context.session.session_id:
            state = "this"
        first = each.turns[0].user_message if each.turns else ""
        cut = "…" if len(first) > _MESSAGE_CHARS_MAX else ""
        started, said = each.started[:_TIME_CHARS], f"{first[:_MESSAGE_CHARS_MAX]}{cut}"
        rows.append(row(each.session_id, started, state, str(len(each.turns)), said))
    context.show(ShownTable(tuple(rows), ("session", "started", "state", "turns", "first message")))


def _resume(rest: str, context: AdminContext) -> None:
    session_id = rest.strip()
    if not session_id:
        raise UsageError("no session given", where="/resume", hint="/sessions lists them")
    if session_id == context.session.session_id:
        raise UsageError("this session is open already", where="/resume")
    before = require_session(context.project, session_id)
    context.resume(session_id)
    left_out = len(before.turns) - _TURNS_REPEATED
    if left_out > 0:
        context.show(dim(f"{left_out} earlier turns: paddock session show"))
    for turn in before.turns[-_TURNS_REPEATED:]:
        context.show(lines(turn.user_message, gutter="> "))
        context.show(spoken(turn.response or f"({turn.reason})", TextLook.DIM))
    count = "1 turn" if len(before.turns) == 1 else f"{len(before.turns)} turns"
    context.show(line(f"resumed {session_id} after {count}"))
    for notice in context.session.notices[len(context.project.notices) :]:
        context.show(note(notice))


def _cost(rest: str, context: AdminContext) -> None:
    session, cost = context.session, context.session.supervisor.cost
    account, left = session.budget.account, context.status().tokens_left
    limit = "no limit" if account.limit is None else f"{account.limit:,}"
    is_free = context.status().cost == "none"
    facts: list[tuple[str, str | TextSpan]] = [
        ("tokens", f"{cost.total_tokens:,}"),
        ("  input", f"{cost.usage.input:,}"),
        ("  output", f"{cost.usage.output:,}"),
        ("  cache read", f"{cost.usage.cache_read:,}"),
        ("  cache write", f"{cost.usage.cache_write:,}"),
        ("budget", f"{limit} ({session.budget.mode.value})"),
        ("left", "no limit" if left is None else f"{left:,}"),
        ("model calls", str(cost.llm_calls)),
        ("tool calls", str(cost.tool_calls)),
        ("tools used", ", ".join(cost.tool_ids_used) or "none"),
        ("money", f"none: {_FREE}" if is_free else "unknown: Paddock knows no prices"),
    ]
    context.show(pairs(facts))


def _status(rest: str, context: AdminContext) -> None:
    status, project = context.status(), context.project
    left = "no limit" if status.tokens_left is None else f"{status.tokens_left:,} left"
    backend = status.sandbox.backend or ("none" if status.sandbox.refused else "")
    held = "commands are refused" if status.sandbox.refused else f"backend {backend}"
    gate = "closed: only a bare plane has one" if project.admin is None else str(project.gate)
    facts: list[tuple[str, str | TextSpan]] = [
        ("session", context.session.session_id),
        ("agent", status.agent),
        ("profile", status.profile),
        ("workspace", str(project.agents.read(status.agent).workspace)),
        ("plane", str(project.layout.root)),
        ("model", f"{status.provider}:{status.model}"),
        ("dual gate", gate),
        ("sandbox", f"{status.sandbox} ({held})"),
        ("turns", str(context.session.supervisor.turns)),
        ("tokens", f"{status.tokens:,} ({left})"),
        ("cost", status.cost),
    ]
    context.show(pairs(facts))
    for badge in status.badges:
        context.show(line("  ", TextSpan(f" {badge} ", TextLook.LOUD)))


def _tools(rest: str, context: AdminContext) -> None:
    allowed = context.session.charter.tools_allowed
    rows: list[Row] = []
    for tool in context.runtime.tools.list_all():
        effect = "reads" if tool.reads_only else "writes"
        who = "model and you" if tool.name in allowed else "only you"
        name = TextSpan(tool.name, TextLook.STRONG)
        rows.append(row(name, tool.spec.toolset, effect, who, tool.spec.title))
    context.show(ShownTable(tuple(rows), ("tool", "toolset", "effect", "called by", "what")))


def _call(rest: str, context: AdminContext) -> None:
    name, _, given = rest.strip().partition(" ")
    if not name:
        raise UsageError("no tool given", where="/call", hint=_CALL_USAGE)
    context.call_in_full(name, _arguments(name, given.strip(), context))


def _arguments(name: str, given: str, context: AdminContext) -> Json:
    if given.startswith("{") or not given:
        return parse_object(given or "{}")
    try:
        tool = context.runtime.tools.get(name)
    except UnknownToolError:
        return {}  # The runtime refuses and records the call.
    schema = ToolSchema(name, "", tool.binder.schema)
    call = parse_call(f"{name} {given}", {name: schema})
    if call is None:
        raise UsageError(
            f"{quote(given)} is neither a JSON object nor NAME=VALUE",
            where=f"/call {name}",
            hint=f'such as /call {name} {{"path": "."}}, or path=.',
        )
    return dict(call.arguments)


def _expand(rest: str, context: AdminContext) -> None:
    digits = rest.strip().removeprefix("#")
    number = 0 if digits else context.calls.last
    if digits.isdecimal() and len(digits) <= _DIGITS_MAX:
        number = int(digits)
    shown = context.calls.find(number)
    if shown is None:
        raise UsageError(
            f"call {quote(rest.strip())} not found" if digits else "no call yet",
            where="/expand",
            hint="give the number shown before a call; older calls: /ledger ho1m",
        )
    for block in shown.in_full():
        context.show(block)


_COMMAND: Final = lazy_pattern(r"/(\S+)\s*(.*)", re.DOTALL)


class AdminCommand(Struct, frozen=True):
    usage: str
    summary: str
    run: Callable[[str, AdminContext], None]
    """Gets the text after the command's name. Raises: PaddockError."""


class ParsedCommand(NamedTuple):
    name: str
    rest: str


def _help(rest: str, context: AdminContext) -> None:
    rows = tuple(row(TextSpan(each.usage), each.summary) for each in COMMANDS.values())
    keys = (
        row("Tab", "complete a command, a tool or an argument"),
        row("Ctrl-R", "search the history"),
        row("Alt-Enter", "start a new line; so does Enter after \\"),
        row("Ctrl-C", "cancel a turn or call; twice on an empty line: leave"),
        row("a leading space", "send to the model, and do not keep in history"),
    )
    context.show(ShownTable((*rows, row("", ""), *keys)))


def _exit(rest: str, context: AdminContext) -> None:
    context.is_leaving = True


COMMANDS: Final[Mapping[str, AdminCommand]] = {
    "help": AdminCommand("/help", "list these commands", _help),
    "tools": AdminCommand("/tools", "list this agent's tools, and who may call them", _tools),
    "call": AdminCommand(_CALL_USAGE, "call a tool yourself, under the same policy", _call),
    "expand": AdminCommand("/expand [NUMBER]", "show a call in full (default: the last)", _expand),
    "show": AdminCommand("/show WHAT", "show frameworks, packages or config", _show),
    "policy": AdminCommand("/policy [ACTION]", "show the policy, or explain an action", _policy),
    "ledger": AdminCommand(
        "/ledger [NAME [TYPE]] [LAST]", "newest entries; /ledger verify checks all", _ledger
    ),
    "sessions": AdminCommand("/sessions", "list this agent's sessions, newest last", _sessions),
    "resume": AdminCommand("/resume SESSION", "end this session, continue another", _resume),
    "cost": AdminCommand("/cost", "tokens that this session has used, and has left", _cost),
    "status": AdminCommand("/status", "show agent, model, gate, sandbox and tokens", _status),
    "doctor": AdminCommand("/doctor", "what this host can enforce on files and commands", _doctor),
    "exit": AdminCommand("/exit, /quit", "end the session and leave", _exit),
}


def parse_command(text: str) -> ParsedCommand | None:
    found = _COMMAND.fullmatch(text.rstrip())
    return None if found is None else ParsedCommand(found[1], found[2])


def find_command(name: str) -> AdminCommand:
    command = COMMANDS.get("exit" if name == "quit" else name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
        said = f"did you mean /{near[0]}; " if near else "/help lists them; "
        raise UsageError(
            f"unknown command {quote(f'/{name}')}",
            hint=f"{said}with a leading space it is sent to the model",
        )
    return command


def vocabulary(context: AdminContext) -> Vocabulary:
    tools = context.runtime.tools.list_all()
    return Vocabulary(
        commands={name: command.summary for name, command in COMMANDS.items()},
        parameters={
            tool.name: tuple(as_map(tool.binder.schema.get("properties"))) for tool in tools
        },
        words={"show": SHOWN, "ledger": (*LEDGERS, "verify")},
    )
