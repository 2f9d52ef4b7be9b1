"""`paddock policy replay`, `diff`, and `explain CALL-ID`: questions about what was decided.

Nothing is run, nothing is recorded, and no file of a workspace is opened.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from paddock.apps.cli.console import EXIT_INTEGRITY, Console
from paddock.apps.cli.options import Options, seconds_of
from paddock.apps.cli.project import environment_of, find_project, override_of
from paddock.assembly.past import require_past_agent
from paddock.assembly.project import chain_of_type, planned_default_chain
from paddock.assembly.trust import (
    Candidate,
    PlanePolicies,
    built_in_candidate,
    find_agents,
    find_ledger_paths,
    find_policy_files,
    own_candidate,
    read_candidate,
)
from paddock.errors import PaddockError, UsageError
from paddock.ledger.query import BadRow, Filter, find_decided, query
from paddock.ledger.read import stands
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PolicyFiles
from paddock.policy.places import BUILT_IN
from paddock.policy.questions.compare import diff
from paddock.policy.questions.explain import Now, explain_now
from paddock.policy.questions.record import (
    DECIDED_EVENTS,
    TOLD_EVENTS,
    KeptCall,
    Lost,
    PastDecision,
    Recorded,
    RecordedCall,
    Why,
    read_recorded,
    tell_calls,
    with_question,
)
from paddock.policy.questions.replay import replay
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import AgentChain
from paddock.values.entries import TOOL_STAGED, Entry

DEFAULT_LEDGER: Final = LedgerName.HO1M
_TOLD_MAX: Final = 5


def run_replay(options: Options, console: Console) -> int:
    """Decide the recorded calls again; exit 0 whatever came of it, 4 where lines are damaged."""
    wanted = Filter(
        agent=options.agent,
        session_id=options.session,
        since=seconds_of(options.since, "--since"),
        until=seconds_of(options.until, "--until"),
    )
    project = find_project(options, console)
    candidate = None
    if options.policy is not None:
        candidate = read_candidate(
            console.directory / options.policy, Path(options.policy).name, project.files
        )
    path = ledger_file(options, console)
    if options.agent is not None:
        require_past_agent(project, options.agent, path)
    report = replay(_past_calls(path, wanted), PlanePolicies(project, candidate))
    name = options.policy or "the policy in force"
    if options.json:
        console.write_json({"policy": name, "ledger": str(path), **report.as_json()})
    else:
        console.say(f"replayed under {name}; nothing was run")
        console.say(report.render())
    damaged = any(group.why is Why.UNREADABLE for group in report.lost)
    if damaged:
        console.warn("the ledger has lines that hold no entry: paddock ledger verify")
    return EXIT_INTEGRITY if damaged else 0


def run_diff(options: Options, console: Console) -> int:
    """Look for calls that two policies decide differently; exit 0 whatever is found."""
    files = find_policy_files(
        console.directory, environment_of(console), override_of(options, console)
    )
    old = _candidate(BUILT_IN if options.old is None else options.old, files, console)
    new = _own(files, console) if options.new is None else _candidate(options.new, files, console)
    place = (files.kind, files.planes_below)

    def chain_of(name: str) -> AgentChain:
        # Read only where it is asked for: an agent that does not load stops no other question.
        agents = find_agents(
            console.directory, environment_of(console), override_of(options, console)
        )
        return chain_of_type(agents, planned_default_chain(agents), name)

    report = diff(old.policy(*place), new.policy(*place), chain_of)
    if options.json:
        console.write_json({"old": old.name, "new": new.name, **report.as_json()})
    else:
        console.say(f"old: {old.name}, new: {new.name}")
        console.say(report.render())
    return 0


def _candidate(name: str, files: PolicyFiles, console: Console) -> Candidate:
    if name == BUILT_IN:
        return built_in_candidate(files)
    return read_candidate(console.directory / name, name, files)


def _own(files: PolicyFiles, console: Console) -> Candidate:
    own = files.project
    if own is not None and not own.trusted:
        # To look before one trusts is what this is for.
        console.warn(
            f"note: {own.path.name} is not trusted ({own.reason}); "
            "it is compared as if it were: paddock trust"
        )
    return own_candidate(files)


def explain_call(options: Options, console: Console) -> int:
    """Tell a recorded call from its record, and what would change it. Raises: UsageError."""
    call_id = options.action
    if options.agent is not None:
        raise UsageError(
            f"--agent is for an action; {quote(call_id)} is a recorded call, which has its agent",
            where="--agent",
            hint="leave it out",
        )
    path = ledger_file(options, console)
    rows = query(str(path), Filter(call_id=call_id)) if stands(path) else None
    found = () if rows is None else rows.entries
    bad = () if rows is None else rows.bad
    kept = [
        KeptCall(row.seq, row.timestamp, row.entry)
        for row in found
        if row.entry.event_type in TOLD_EVENTS
    ]
    calls = tell_calls(kept, call_id)
    if bad:
        console.warn(f"{len(bad)} lines of the ledger hold no entry: paddock ledger verify")
    if not calls:
        raise UsageError(
            f"there is no call {quote(call_id)} in {path.name}",
            hint="an action begins with tool:, as in tool:file:view src/a.py; "
            "calls: paddock ledger query --ledger ho1m",
        )
    told = tuple(with_question(call, _questions(call, options, console)) for call in calls)
    _tell(told, _now(calls[0], options, console), options, console)
    return EXIT_INTEGRITY if bad else 0


def _questions(call: RecordedCall, options: Options, console: Console) -> Iterator[Entry]:
    if call.decided.entry.metadata.get("outcome") not in ("confine", "ask") or _is_file(options):
        return
    paths = find_ledger_paths(
        console.directory, environment_of(console), override_of(options, console)
    )
    path = paths[LedgerName.GOVERNANCE]
    if stands(path):
        wanted = Filter(call_id=call.decided.entry.call_id)
        yield from (row.entry for row in query(str(path), wanted).entries)


def _now(call: RecordedCall, options: Options, console: Console) -> Now:
    decided = call.decided
    past = read_recorded(decided.seq, decided.time, decided.entry)
    try:
        policies = PlanePolicies(find_project(options, console))
        policy = policies.policy_for(decided.entry.agent)
        if isinstance(past, PastDecision) and not policies.is_whole(past):
            past = Lost(past.where, Why.INCOMPLETE)
    except PaddockError as error:
        # The record is told whatever has become of the project since.
        return Now(f"no policy is in force now: {error.message}")
    now = explain_now(past, policy)
    return now.unasked() if call.is_denied_unasked else now


def ledger_file(options: Options, console: Console) -> Path:
    given = options.ledger or DEFAULT_LEDGER
    if _is_file(options):
        path = console.directory / given
        if not path.exists():
            raise UsageError(f"there is no ledger {quote(given)}", where="--ledger")
        return path
    paths = find_ledger_paths(
        console.directory, environment_of(console), override_of(options, console)
    )
    if given not in paths:
        raise UsageError(
            f"there is no ledger {quote(given)}",
            where="--ledger",
            hint=f"one of {', '.join(paths)}, or a file that ends in .jsonl",
        )
    return paths[LedgerName(given)]


def _is_file(options: Options) -> bool:
    given = options.ledger or DEFAULT_LEDGER
    return "/" in given or given.endswith(".jsonl")


def _tell(calls: tuple[RecordedCall, ...], now: Now, options: Options, console: Console) -> None:
    newest, earlier = calls[0], calls[1:]
    if options.json:
        others: list[Json] = [call.as_json() for call in earlier]
        console.write_json({**newest.as_json(), "now": now.as_json(), "earlier": others})
        return
    console.say(newest.render())
    rows = now.render()
    if rows:
        console.say(rows)
    for call in earlier[: _TOLD_MAX - 1]:
        console.say(call.render())
    if len(calls) > _TOLD_MAX:
        console.say(f"{len(calls) - _TOLD_MAX} earlier calls of this id are not shown: --json")


def _past_calls(path: Path, wanted: Filter) -> Iterator[PastDecision | Lost]:
    if not stands(path):
        return
    answered: set[tuple[str, str]] = set()
    for row in find_decided(str(path), DECIDED_EVENTS, wanted):
        if isinstance(row, BadRow):
            place = Recorded(-1, "", "", "", "?", f"byte {row.offset_bytes}")
            yield Lost(place, Why.UNREADABLE, row.fault.value)
            continue
        entry = row.entry
        # Of a call that was held back for a question, the answer counts, where there is one.
        if entry.event_type == TOOL_STAGED and (entry.session_id, entry.call_id) in answered:
            continue
        if entry.metadata.get("outcome") in ("confine", "ask"):
            answered.add((entry.session_id, entry.call_id))
        found = read_recorded(row.seq, row.timestamp, entry)
        if found is not None:
            yield found
