"""Commands about the plane: what is installed, what governs, what is on record."""

from typing import Final

from paddock.apps.admin.blocks import Look, Row, Span, Table, line, lines, pairs, row
from paddock.apps.admin.desk import Desk
from paddock.apps.admin.sandboxed import examine
from paddock.assembly.auditing import audit_ledger
from paddock.assembly.lazy_packages import report_of
from paddock.assembly.sessions import sessions_of
from paddock.errors import UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter
from paddock.ledger.verify.verifying import Verification
from paddock.plane.layout import LedgerName
from paddock.policy.actions import parse_action
from paddock.policy.questions.explain import explain
from paddock.sandbox.backends import probe_host
from paddock.sandbox.values import Enforcement
from paddock.text.show import quote, show_name
from paddock.values.decisions import RuleMatch

LEDGERS: Final = (
    LedgerName.GOVERNANCE,
    LedgerName.HO2M,
    LedgerName.HO1M,
    LedgerName.PACKAGES,
)
SHOWN: Final = ("frameworks", "packages", "config")
_LAST: Final = 10
_LAST_DIGITS_MAX: Final = 9
_TIME_CHARS: Final = 19
_INSTALLED: Final = "list_packages"
_CLASSIFY: Final = {
    True: "on: the model is first asked what kind of message came; a greeting gets no tools",
    False: "off: every message is offered all tools",
}


class ShowCommand:
    """Frameworks, packages, configuration."""

    usage = "/show WHAT"
    summary = "WHAT is frameworks, packages or config"

    def run(self, rest: str, desk: Desk) -> None:
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
    facts: list[tuple[str, str | Span]] = [("root", str(report.root)), ("plane", str(report.plane))]
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


class PolicyCommand:
    """What decides."""

    usage = "/policy [ACTION]"
    summary = "what decides; with ACTION, how and why"

    def run(self, rest: str, desk: Desk) -> None:
        """Show or explain."""
        project, agent = desk.project, desk.session.charter.agent
        record = project.agents.read(agent)
        policy, chain = project.policy_for(record), project.agents.chain(agent)
        if rest.strip():
            desk.screen.show(lines(explain(policy, chain, parse_action(rest.strip())).render()))
            return
        profile = policy.find_profile(record.agent.profile)
        facts: list[tuple[str, str | Span]] = [
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
        desk.screen.show(Table(tuple(rows), ("outcome", "rule", "where")))
        desk.screen.show(
            line(Span("what no rule allows is denied; /policy ACTION explains", Look.DIM))
        )


def _rule_row(rule: RuleMatch) -> Row:
    return row(rule.outcome.word, rule.text, rule.place)


class LedgerCommand:
    """What is on record."""

    usage = "/ledger [NAME [TYPE]] [LAST]"
    summary = "newest entries; /ledger verify looks at all"

    def run(self, rest: str, desk: Desk) -> None:
        """Show entries, or verify."""
        words = rest.split()
        if words == ["verify"]:
            self._verify(desk)
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
        desk.screen.show(Table(rows, ("seq", "time", "event", "decision", "what")))
        if found.bad:
            said = f"{len(found.bad)} lines hold no entry: /ledger verify"
            desk.screen.show(line(Span(said, Look.BAD)))

    @staticmethod
    def _verify(desk: Desk) -> None:
        paths = desk.project.layout.ledger_paths()
        there = [name for name in LEDGERS if paths[name].exists()]
        layout, environment = desk.project.layout, desk.project.environment
        rows = tuple(_report_row(name, audit_ledger(layout, environment, name)) for name in there)
        desk.screen.show(Table(rows, ("ledger", "state", "entries", "head")))


def _parse_last(digits: str) -> int:
    # Python converts no integer of very many digits.
    if len(digits) > _LAST_DIGITS_MAX:
        raise UsageError(
            f"{quote(digits)} is no number of entries",
            where="/ledger",
            hint=f"at most {_LAST_DIGITS_MAX} digits; 0 shows all",
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
    state = Span("whole", Look.GOOD) if report.is_whole else Span("DAMAGED", Look.BAD)
    head = "" if report.head is None else f"{report.head.seq} {report.head.hash[:16]}"
    return row(name, state, str(report.entries), head)


class DoctorCommand:
    """What this host can enforce."""

    usage = "/doctor"
    summary = "what this host can enforce on files and commands"

    def run(self, rest: str, desk: Desk) -> None:
        """Try everything, and show what came of it."""
        findings = tuple(
            row(
                _mark(ok=each.is_there),
                each.name,
                "; ".join(filter(None, (each.found, each.remedy))),
            )
            for each in probe_host()
        )
        desk.screen.show(Table(findings))
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
        desk.screen.show(Table(rows, ("", "backend", "enforcement", "gaps")))


def _mark(*, ok: bool) -> Span:
    return Span("yes", Look.GOOD) if ok else Span("no", Look.WARN)
