"""`paddock policy`: check, explain, test, lint, replay and compare policy.

No tool is run, nothing is recorded, and no workspace file is opened.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from paddock.apps.command import (
    Command,
    Options,
    Part,
    Reply,
    fields,
    find_project,
    find_site,
    opt,
    seconds_of,
    where,
)
from paddock.apps.console import EXIT_CONFIG, EXIT_INTEGRITY, EXIT_NO, EXIT_USAGE, Console
from paddock.assembly import project as projects
from paddock.assembly import questions
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.plane.discover import find_root
from paddock.plane.layout import LedgerName
from paddock.policy.decide import decide
from paddock.policy.engine import Policy
from paddock.policy.positions import BUILT_IN
from paddock.policy.questions import explain as explained
from paddock.policy.questions import record as recorded
from paddock.policy.questions.compare import replay
from paddock.policy.questions.explain import run_examples
from paddock.policy.questions.lint import lint
from paddock.policy.rules import parse_action
from paddock.text.show import is_cut, quote
from paddock.values.calls import Json
from paddock.values.decisions import (
    Action,
    AgentChain,
    Decision,
    Held,
    Outcome,
    confined,
    rule_as_json,
)

_CHECK_EXITS: Final = {Outcome.ALLOW: 0, Outcome.CONFINE: 0, Outcome.DENY: 1, Outcome.ASK: 6}
_CALLS_MAX: Final = 5


def _require_action(options: Options, question: str, otherwise: str) -> None:
    if not (options.action or "").strip():
        example = f"paddock policy {question} 'tool:file:create docs/a.md'"
        raise UsageError("no action given", where="ACTION", hint=f"{example}{otherwise}")


def _check(options: Options, console: Console) -> Reply | int:
    _require_action(options, "check", " checks this one; for the whole file: paddock policy lint")
    try:
        project = find_project(options, console)
        _warn_of_distrust(project, console)
        action = _action_of(options, console)
        policy, chain = questions.judged(project, options.agent)
        decision = decide(policy, chain, [action])
        nearly = explained.find_nearly(policy, chain, action, decision)
        if decision.outcome is Outcome.CONFINE:
            decision = confined(decision, _held_here(project, policy, chain, action))
    except PaddockError as error:
        console.report(error)
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_USAGE
    value = _decision_json(decision)
    value["nearly_matched"] = nearly and {"rule": rule_as_json(nearly.rule), "why": nearly.why}
    return Reply(value, _decision_rows(decision, nearly), _CHECK_EXITS[decision.comes_to])


def _decision_rows(decision: Decision, nearly: explained.NearMiss | None) -> Iterator[str]:
    yield f"{decision.said}: {decision.reason}"
    if nearly is not None:
        yield f"  nearly matched: {nearly.rule.said}: {nearly.why}"
    if decision.rule is not None:
        yield f"  rule: {decision.rule.said}"
    for warning in decision.warnings:
        yield f"  warning: {warning}"


def _explain(options: Options, console: Console) -> Reply:
    _require_action(
        options, "explain", ", or a call's id: paddock ledger query --ledger ho1m --json"
    )
    # An action that the ledger stored shortened ends in a mark with spaces.
    text = options.action
    if not text.startswith("tool:") and (" " not in text or is_cut(text)):
        return _explain_call(options, console)
    project = find_project(options, console)
    _warn_of_distrust(project, console)
    action = _action_of(options, console)
    policy, chain = questions.judged(project, options.agent)
    find_held = partial(_held_here, project, policy, chain, action)
    explanation = explained.explain(policy, chain, action, find_held)
    return Reply(explanation.as_json(), explanation.render())


def _test(options: Options, console: Console) -> Reply:
    results = run_examples(_policy_and_root(options, console)[0])
    failed = sum(not result.holds for result in results)
    passed = len(results) - failed
    value: dict[str, Json] = {
        "passed": passed,
        "failed": failed,
        "examples": [each.as_json() for each in results],
    }
    rows = (*(result.render() for result in results), f"{passed} passed, {failed} failed")
    return Reply(value, rows, EXIT_NO if failed else 0)


def _lint(options: Options, console: Console) -> Reply:
    policy, root = _policy_and_root(options, console)
    tracked: tuple[str, ...] = ()
    if (root / ".git" / "index").exists():
        # It loads the workspace modules, which a lint without a repository does not need.
        from paddock.sandbox.git.tracked import list_tracked

        tracked = list_tracked(root)
    findings = lint(policy, tracked)
    count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    rows = (*(finding.render() for finding in findings), count)
    value: list[Json] = [each.as_json() for each in findings]
    return Reply(value, rows, EXIT_NO if findings else 0)


def _policy_and_root(options: Options, console: Console) -> tuple[Policy, Path]:
    if options.file is None:
        project = find_project(options, console)
        _warn_of_distrust(project, console)
        return project.policy, project.root.path
    # A given file is judged even if the project's own policy or agents do not load.
    start = where(options, console)
    files = questions.find_policy_files(*start)
    candidate = questions.read_candidate(console.directory / options.file, options.file, files)
    return candidate.policy(files.kind, files.planes_below), find_root(*start).path


def _held_here(
    project: projects.Project, policy: Policy, chain: AgentChain, action: Action
) -> Held:
    # It tries each backend on this host, so call it only for a `confine` decision.
    from paddock.assembly.runtimes import held_here

    return held_here(project, policy, chain, action)


def _action_of(options: Options, console: Console) -> Action:
    action = parse_action(options.action)
    if action.is_path and " " not in options.action.strip():
        console.warn(f"note: no target given, so the workspace itself is judged: {action}")
    return action


def _warn_of_distrust(project: projects.Project, console: Console) -> None:
    own = project.files.project
    if own is not None and not own.trusted:
        console.advise(
            f"note: {own.path.name} is not trusted ({own.reason}); "
            "it can only tighten: paddock trust"
        )


def _decision_json(decision: Decision) -> dict[str, Json]:
    return {
        "outcome": decision.outcome.word,
        **explained.here_json(decision),
        **fields(decision, "action", "reason", "code"),
        "rule": rule_as_json(decision.rule),
        "matched": [
            {"outcome": each.outcome.word, **fields(each, "text", "file", "line")}
            for each in decision.matched
        ],
        "warnings": list(decision.warnings),
        "policy_digest": decision.policy_digest,
    }


def _replay(options: Options, console: Console) -> Reply:
    from paddock.ledger.query import Filter

    wanted = Filter(
        agent=options.agent,
        session_id=options.session,
        since=seconds_of(options.since, "--since"),
        until=seconds_of(options.until, "--until"),
    )
    project = find_project(options, console)
    candidate = None
    if options.policy is not None:
        candidate = questions.read_candidate(
            console.directory / options.policy, Path(options.policy).name, project.files
        )
    path = _ledger_file(options, console)
    if options.agent is not None:
        from paddock.assembly.questions import require_past_agent

        require_past_agent(project, options.agent, path)
    report = replay(
        questions.past_decisions(path, wanted), questions.PlanePolicies(project, candidate)
    )
    name = options.policy or "the policy in force"
    damaged = any(group.why is recorded.Why.UNREADABLE for group in report.lost)
    if damaged:
        console.advise("the ledger has lines that are not valid entries: paddock ledger verify")
    value = {"policy": name, "ledger": str(path), **report.as_json()}
    text = (f"replayed under {name}; no tool was run", report.render())
    return Reply(value, text, EXIT_INTEGRITY if damaged else 0)


def _diff(options: Options, console: Console) -> Reply:
    files = questions.find_policy_files(*where(options, console))

    def candidate(name: str) -> questions.Candidate:
        if name == BUILT_IN:
            return questions.built_in_candidate(files)
        return questions.read_candidate(console.directory / name, name, files)

    old = candidate(BUILT_IN if options.old is None else options.old)
    if options.new is not None:
        new = candidate(options.new)
    else:
        new, own = questions.own_candidate(files), files.project
        if own is not None and not own.trusted:
            # The comparison is made to review the file before it is trusted.
            console.advise(
                f"note: {own.path.name} is not trusted ({own.reason}); "
                "it is compared as if it were: paddock trust"
            )
    ledger = find_site(options, console).layout.ledger_paths()[LedgerName.HO1M]
    find_agents = partial(questions.find_agents, *where(options, console))
    report = questions.compare(old, new, find_agents, ledger)
    value = {"old": old.name, "new": new.name, **report.as_json()}
    return Reply(value, (f"old: {old.name}, new: {new.name}", report.render()))


def _explain_call(options: Options, console: Console) -> Reply:
    call_id = options.action
    if options.agent is not None:
        raise UsageError(
            f"--agent is only for an action; {quote(call_id)} is a recorded call with its agent",
            where="--agent",
            hint="omit --agent",
        )
    path = _ledger_file(options, console)
    governance = None
    if not _is_file(options):
        paths = find_site(options, console).layout.ledger_paths()
        governance = paths[LedgerName.GOVERNANCE]
    calls, bad = questions.recorded_calls(path, call_id, governance)
    if bad:
        console.advise(f"{bad} lines are not valid entries: paddock ledger verify")
    if not calls:
        raise UsageError(
            f"call {quote(call_id)} not found in {path.name}",
            hint="an action begins with tool:, such as tool:file:view src/a.py; "
            "to list calls: paddock ledger query --ledger ho1m",
        )
    newest, *earlier = calls
    now = questions.decided_now(partial(find_project, options, console), newest)
    others: list[Json] = [call.as_json() for call in earlier]
    rows = [newest.render(), *filter(None, [now.render()])]
    rows += [call.render() for call in earlier[: _CALLS_MAX - 1]]
    if len(calls) > _CALLS_MAX:
        rows.append(f"{len(calls) - _CALLS_MAX} earlier calls of this id are not shown: --json")
    value = {**newest.as_json(), "now": now.as_json(), "earlier": others}
    return Reply(value, rows, EXIT_INTEGRITY if bad else 0)


def _ledger_file(options: Options, console: Console) -> Path:
    given = options.ledger or LedgerName.HO1M
    if _is_file(options):
        path = console.directory / given
        if not path.exists():
            raise UsageError(f"ledger {quote(given)} not found", where="--ledger")
        return path
    paths = find_site(options, console).layout.ledger_paths()
    if given not in paths:
        raise UsageError(
            f"no ledger named {quote(given)}",
            where="--ledger",
            hint=f"one of {', '.join(paths)}, or a file that ends in .jsonl",
        )
    return paths[LedgerName(given)]


def _is_file(options: Options) -> bool:
    given = options.ledger or LedgerName.HO1M
    return "/" in given or given.endswith(".jsonl")


_LEDGER = opt("--ledger", "NAME|FILE", "a ledger of the plane, or a .jsonl file (default: ho1m)")
_ACTION_HELP: Final = "an action: tool:<category>:<op> <target>"
_FOR_WHOM: Final = "the agent that acts (default: main)"
_FILE = opt(
    "file", "FILE", "a policy file, read as if trusted (default: the policy in force)", nargs="?"
)
_COMPARED: Final = "a policy file, or built-in: the policy without one (default: {})"

COMMAND = Command(
    "Check one action; explain a decision; test and lint the policy; replay recorded calls\n"
    "under another policy; compare two policies, or the project's with the built-in one.\n"
    "No tool is run and nothing is recorded.",
    "  paddock policy check 'tool:file:create docs/a.md'\n"
    "  paddock policy check 'tool:shell:run git push origin main' --agent main\n"
    "  paddock policy explain 'tool:file:view .env'\n"
    "  paddock policy explain CALL-1f2e3d4c5b6a7988\n"
    "  paddock policy lint\n"
    "  paddock policy test team.toml\n"
    "  paddock policy replay --policy new.toml --since 2026-01-31\n"
    "  paddock policy diff\n"
    "  paddock policy diff paddock.toml new.toml",
    Part(
        "check",
        "decide one action; exit status 0 allow or confine, 1 deny, 6 ask, 3 invalid policy, 2"
        " wrong usage",
        _check,
        opt("action", "ACTION", _ACTION_HELP, nargs="?"),
        opt("--agent", "NAME", _FOR_WHOM),
    ),
    Part(
        "explain",
        "show why an action is decided as it is, and what would change that; or why a recorded"
        " call was",
        _explain,
        opt("action", "ACTION|CALL-ID", f"{_ACTION_HELP}, or the id of a recorded call", nargs="?"),
        opt("--agent", "NAME", f"{_FOR_WHOM}; not for a recorded call"),
        _LEDGER,
    ),
    Part("test", "check the examples in the policy's rules", _test, _FILE),
    Part("lint", "find rules that are probably mistakes", _lint, _FILE),
    Part(
        "replay",
        "decide the recorded calls again, under the policy in force or another",
        _replay,
        opt(
            "--policy",
            "FILE",
            "replaces the project's policy, read as if trusted (default: the policy in force)",
        ),
        _LEDGER,
        opt("--agent", "NAME", "only calls of this agent"),
        opt("--session", "ID", "only calls of this session"),
        opt("--since", "T", "only from this time on; RFC 3339: 2026-01-31T00:00:00Z"),
        opt("--until", "T", "only up to this time"),
        description="Decide the recorded calls again. Only the recorded actions are judged: no"
        " tool is run and no workspace file is opened.",
    ),
    Part(
        "diff",
        "find calls that two policies decide differently",
        _diff,
        opt("old", "OLD", _COMPARED.format("built-in"), nargs="?"),
        opt("new", "NEW", _COMPARED.format("the project's own"), nargs="?"),
        description="Find calls that two policies decide differently. Each call shown is really"
        " decided differently; if none is found, the result says what that proves. With OLD"
        " alone, the project's file is compared with it. Without either, it is compared with"
        " the built-in policy: what does this project's file change?",
    ),
    metavar="COMMAND",
)
