"""`paddock approvals`: list the requests that wait for an approval, and answer them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from paddock.apps.command import Command, Options, Part, Reply, flag, operator, opt, use_project
from paddock.apps.console import EXIT_CONFIG, EXIT_NO, Console
from paddock.assembly import inbox_answers
from paddock.assembly.history import open_inbox, read_answers
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.runtime.approvals import NoApprover
from paddock.runtime.inbox import Parked
from paddock.text.show import show_name, show_unseen
from paddock.values.calls import Json, ToolResult


def _list(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    inbox = open_inbox(project)
    waiting, broken = inbox.list_all(), inbox.list_broken()
    answers = read_answers(project, [parked.id for parked in waiting]) if waiting else None
    # With --json too: the calls of these are refused until the user acts.
    for each in broken:
        console.report(each.as_error())
    outdated = [inbox_answers.find_outdated(project, parked, answers) for parked in waiting]
    rows = [*map(_summary, waiting, outdated), *(each.summary() for each in broken)]
    text = [] if waiting or broken else ["no request waits for an approval"]
    text += map(_row, waiting, outdated)
    # The status for any file of Paddock's that does not load.
    return Reply(rows, text, EXIT_CONFIG if broken else 0)


def _row(parked: Parked, outdated: inbox_answers.Outdated | None) -> str:
    request = parked.request
    shown = show_unseen(request.actions[0] if request.actions else request.tool)[0]
    more = f" and {len(request.actions) - 1} more" if len(request.actions) > 1 else ""
    state = "outdated" if outdated else parked.state
    return f"{parked.id}  {state:<8} {show_name(request.agent)}  {shown}{more}"


def _show(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    parked = open_inbox(project).find(options.id)
    outdated = inbox_answers.find_outdated(project, parked)
    value = {**parked.as_json(), **_summary(parked, outdated)}
    return Reply(value, _describe(parked, outdated))


def _grant(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    if options.always:
        return _always(project, options, console)
    # The waiting changes of a command are committed at once: it does not run again.
    if options.resume or open_inbox(project).find(options.id).changes is not None:
        granted = inbox_answers.grant_here(project, options.id, operator())
        if not options.json:
            is_call = granted.changes is None
            does = "the call runs now" if is_call else "the command's changes are committed now"
            for row in (*_describe(granted), f"granted: {does}"):
                console.say(row)
        return _result(inbox_answers.resume(project, granted))
    granted = inbox_answers.grant(project, options.id, operator())
    until = f"granted: the same call may run once, until {_time(granted.expires_at)}"
    return Reply({"status": "ok", **granted.summary()}, (*_describe(granted), until))


def _result(result: ToolResult) -> Reply:
    return Reply(result.as_json(), result.content, 0 if result.refusal is None else EXIT_NO)


def _always(project: Project, options: Options, console: Console) -> Reply:
    parked = open_inbox(project).find(options.id)
    outdated = inbox_answers.find_outdated(project, parked)
    review = inbox_answers.review_always(project, parked, outdated)
    # The user sees the whole call and the whole rule before the question, with --json too.
    say = console.warn if options.json else console.say
    for row in _describe(parked, outdated):
        say(row)
    say(f"to be appended to {show_name(str(review.file))}:\n{review.always.addition}")
    if not options.yes and not console.agrees("save this rule? [y/N] "):
        return Reply({"status": "error", "saved": False}, "not saved", EXIT_NO)
    if parked.changes is not None:
        return _commit_and_save(project, review, options, console)
    inbox_answers.save_always(project, review, operator())
    if options.resume:
        request = review.parked.request
        renewed = use_project(options, console)
        with open_runtime(renewed, agent=request.agent, approver=NoApprover()) as runtime:
            return _result(runtime.call(request.tool, request.arguments))
    return Reply({"status": "ok", "saved": True}, "saved and trusted")


def _commit_and_save(
    project: Project, review: inbox_answers.AlwaysReview, options: Options, console: Console
) -> Reply:
    result = inbox_answers.commit_and_save(project, review, operator())
    (console.warn if options.json else console.say)(result.content)
    is_saved = result.refusal is None
    said = "saved and trusted" if is_saved else "not saved"
    return Reply({**result.as_json(), "saved": is_saved}, said, 0 if is_saved else EXIT_NO)


def _refuse(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    inbox = open_inbox(project)
    moved_to = inbox.set_aside(options.id)
    if moved_to is not None:
        return Reply(
            {"status": "ok", "state": "broken", "moved_to": str(moved_to)},
            f"moved the request, which does not load, to {show_name(str(moved_to))}\n"
            "it was not answered: the next such call is asked about again",
        )
    refused = inbox.refuse(options.id, operator(), options.note)
    outdated = inbox_answers.find_outdated(project, refused)
    # Even if its file was changed: the digest identifies the call, and that is refused.
    if outdated is None or outdated.why == inbox_answers.KEPT_CHANGED:
        said = "the same call is refused until the request expires"
    else:
        said = f"it applies to no call any more: {outdated.why}"
    return Reply({"status": "ok", **refused.summary()}, f"refused {refused.id}: {said}")


def _summary(parked: Parked, outdated: inbox_answers.Outdated | None) -> dict[str, Json]:
    return {**parked.summary(), "outdated": "" if outdated is None else outdated.why}


def _describe(parked: Parked, outdated: inbox_answers.Outdated | None = None) -> Iterator[str]:
    """Yield everything about a request, escaped so that its content cannot forge a line."""
    request = parked.request
    yield f"{parked.id} ({parked.state}, until {_time(parked.expires_at)})"
    rows: list[tuple[str, str]] = [
        ("agent", request.agent),
        ("tool", request.tool),
        *(("action", action) for action in request.actions),
        ("why asked", request.reason),
        *(("warning", warning) for warning in request.warnings),
        ("rule", request.rule),
        *(() if outdated is None else (("outdated", outdated.why),)),
        ("target", request.target_digest),
        ("digest", request.digest),
        *((f"argument {name}", _text(value)) for name, value in request.arguments.items()),
        *((f"filled in {name}", _text(value)) for name, value in request.filled.items()),
    ]
    for name, value in rows:
        yield f"  {show_name(name)}: {show_unseen(value)[0]}"
    if request.diff:
        yield "  what it changed:"
        for line in request.diff.splitlines():
            yield f"    {show_unseen(line)[0]}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


_ID = opt("id", "ID", "id of a request")

COMMAND = Command(
    "Review the calls that wait for an approval, and answer them.\n"
    "A grant is valid for the same call, once, for an hour. `outdated`: the policy or the\n"
    "request has changed since, so an answer no longer applies and the agent must call again.\n"
    "A request whose file does not load is reported on stderr and blocks its call until\n"
    "`refuse` moves it away.",
    "  paddock approvals list\n"
    "  paddock approvals show APR-0123456789abcdef\n"
    "  paddock approvals grant APR-0123456789abcdef --resume\n"
    "  paddock approvals grant APR-0123456789abcdef --always\n"
    "  paddock approvals refuse APR-0123456789abcdef --note 'use the staging host'",
    Part("list", "list the requests that wait", _list),
    Part("show", "show one request in full", _show, _ID),
    Part(
        "grant",
        "approve a request",
        _grant,
        flag("--resume", "run the call now"),
        flag("--always", "add a policy rule that allows such calls from now on"),
        flag("--yes", "with --always: save the rule without asking"),
        _ID,
    ),
    Part(
        "refuse",
        "refuse a request",
        _refuse,
        opt("--note", "TEXT", "a reason to show to the agent", default=""),
        _ID,
    ),
)
