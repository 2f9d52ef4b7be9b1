"""Turn a command's outcome into a tool result: text for the model, fields, recorded changes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from paddock import limits
from paddock.errors import ApprovalUnavailableError
from paddock.sandbox.values import Ending, ShellOutcome, Stream
from paddock.text.show import show_name
from paddock.tools.arguments import (
    BOOLEAN,
    TEXT,
    TEXTS,
    object_schema,
    result_schema,
    rows_schema,
)
from paddock.tools.effects import changes_of, within_entry
from paddock.tools.spec import (
    Change,
    CommandExit,
    OutputKept,
    Ports,
    RefusedPath,
    ToolOutput,
    shell_of,
)
from paddock.values.calls import NO_RULE, Json

# Threat: a command may print lines that look like Paddock's. Its output comes last, each
# stream after its line count.

_SHOWN_MAX: Final = 50  # paths in the text for a model; the details list more
_LAST_REFUSED_SHOWN: Final = 2
_ENDED_BY_SANDBOX: Final = (
    *("Command timed out ", "Command used more than ", "Command wrote a file "),
    "Command could not ",
)
_NOT_ASKED: Final = (
    "[approving a command does not approve changes that a rule asks about: make such a change "
    'with a file tool, or have the operator set [shell] approve = "diff" to ask about them]'
)


def shell_output(outcome: ShellOutcome, ports: Ports) -> ToolOutput:
    changes = tuple(changes_of(outcome.changed))
    listed, stored = within_entry(changes, shell_of(ports).keep)
    return ToolOutput(
        _content(outcome, changes),
        _details(outcome, changes),
        listed,
        outcome.bytes_written,
        stored,
        tuple(RefusedPath(each.path, each.code, each.rule) for each in outcome.refused),
        CommandExit(
            outcome.exit_code, outcome.ending is Ending.TIMED_OUT, _kept(outcome), outcome.causes
        ),
        waiting=outcome.waiting,
    )


def as_pending(output: ToolOutput, changes: int, why: str, request: str) -> ToolOutput:
    first, _, rest = output.content.partition("\n")
    count = "1 change waits" if changes == 1 else f"{changes} changes wait"
    said = f"{count} for a person ({request}); nothing was changed. Do not repeat the command."
    content = f"{first}\n{said}\n[{show_name(why)}]\n{rest}"
    details = {**output.details, "pending": request}
    return output._replace(content=content, details=details, waiting=None, pending=request)


def _kept(outcome: ShellOutcome) -> tuple[OutputKept, ...]:
    return tuple(
        OutputKept(name, kept.digest, kept.kept_bytes, kept.total_bytes)
        for name, stream in (("stdout", outcome.stdout), ("stderr", outcome.stderr))
        if (kept := stream.kept) is not None
    )


def _content(outcome: ShellOutcome, changes: Sequence[Change]) -> str:
    seconds = f"{outcome.duration_s:.2f} s"
    ended = "timed out" if outcome.ending is Ending.TIMED_OUT else f"exit code {outcome.exit_code}"
    said = [f"{ended} ({outcome.shell}, {seconds})"]
    if outcome.conflict:
        said.append(f"NOTHING WAS KEPT: {show_name(outcome.conflict)}")
        said.append("view those files again, then repeat the command")
    said += _changed(outcome, changes)
    said += _refused(outcome)
    said += _network(outcome)
    said += _warnings(outcome)
    said += [f"[{show_name(note)}]" for note in (*outcome.notes, *outcome.hints)]
    enforced = outcome.enforced
    held = f"sandbox: {enforced.backend}, {enforced.enforcement.value}"
    said.append(f"{held}, with {len(enforced.gaps)} gaps" if enforced.gaps else held)
    if outcome.diff is not None:
        said.append(f"dry run, nothing was changed. It would be: {_lines(outcome.diff)}")
        said.append(outcome.diff)
    said += _stream("stdout", outcome.stdout)
    said += _stream("stderr", outcome.stderr)
    return "\n".join(said)


def discarded_text(count: int) -> str:
    said = "1 change was" if count == 1 else f"{count} changes were"
    return f'{said} discarded ([shell] commit = "none")'


def _changed(outcome: ShellOutcome, changes: Sequence[Change]) -> list[str]:
    if outcome.discarded:
        return [f"files changed: none; {discarded_text(outcome.discarded)}"]
    if not changes:
        return [] if outcome.diff is not None or not outcome.is_staged else ["files changed: none"]
    rows = [f"{change.kind} {_name(change)}" for change in changes]
    return [f"files changed: {len(rows)}", *_listed(rows, len(rows))]


def _refused(outcome: ShellOutcome) -> list[str]:
    refused = outcome.refused
    if not refused:
        return []
    rows = [f"{show_name(each.path)}: {show_name(each.rule)}" for each in refused]
    is_unasked = any(each.code == ApprovalUnavailableError.code for each in refused)
    note = [_NOT_ASKED] if is_unasked else []
    return [f"changes refused: {len(rows)}", *_listed(rows, len(rows)), *note]


def _network(outcome: ShellOutcome) -> list[str]:
    used = outcome.network
    if not used.refused:
        return []
    count = len(used.refused) + used.more_refused
    how = "a person can allow one: paddock network allow HOST:PORT"
    may_be_allowed = any(each.why == NO_RULE for each in used.refused)
    rows = [
        f"{show_name(each.host)}{f':{each.port}' if each.port else ''}: "
        f"{'' if each.remedy else 'policy allows it, but it failed: '}{show_name(each.why)}"
        for each in used.refused
    ]
    what = "refused" if all(each.remedy for each in used.refused) else "not made"
    said = f"connections {what}: {count}{f' ({how})' if may_be_allowed else ''}"
    return [said, *_listed(rows, count)]


def _warnings(outcome: ShellOutcome) -> Iterator[str]:
    """Yield a row for each warning pattern, not for each file: a test run writes hundreds."""
    by_pattern: dict[str, list[str]] = {}
    for each in outcome.warnings:
        by_pattern.setdefault(each.pattern, []).append(each.text)
    for pattern, texts in by_pattern.items():
        more = len(texts) - 1
        rest = f" … and {more} more like it, by {show_name(pattern)}" if more else ""
        yield f"[warning: {show_name(texts[0])}{rest}]"


def _name(change: Change) -> str:
    kind = change.entry_after or change.entry
    return show_name(change.path) + ("/" if kind == "directory" else "")


def _listed(rows: Sequence[str], count: int) -> list[str]:
    shown = [f"  {row}" for row in rows[:_SHOWN_MAX]]
    more = count - len(shown)
    return [*shown, f"  [and {more} more]"] if more else shown


def _stream(name: str, stream: Stream) -> list[str]:
    if not stream.text:
        return [f"{name}: empty"]
    said = [f"{name}: {_lines(stream.text)}"]
    if stream.kept is not None:
        kept = stream.kept
        cut = "" if kept.kept_bytes == kept.total_bytes else f" of {kept.total_bytes}"
        said.append(
            f"[kept in the history: {kept.kept_bytes}{cut} bytes as {kept.digest};"
            " a person can print it with paddock ledger content]"
        )
    return [*said, stream.text.removesuffix("\n")]


def _lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n"))
    return "1 line" if count == 1 else f"{count} lines"


def _details(outcome: ShellOutcome, changes: Sequence[Change]) -> dict[str, Json]:
    most, enforced, used = limits.shell_changes_listed_max, outcome.enforced, outcome.network
    details: dict[str, Json] = {
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.text,
        "stderr": outcome.stderr.text,
        "timed_out": outcome.ending is Ending.TIMED_OUT,
        "duration_seconds": round(outcome.duration_s, 3),
        "files_changed": [change.path for change in changes[:most]],
        "changes_refused": [
            {"path": each.path, "rule": each.rule, **({"aside": True} if each.is_aside else {})}
            for each in outcome.refused[:most]
        ],
        "sandbox": {
            "backend": enforced.backend,
            "enforcement": enforced.enforcement.value,
            "gaps": list(enforced.gaps),
        },
        "shell": outcome.shell,
    }
    missing = {
        "files_changed": max(0, len(changes) - most),
        "changes_refused": max(0, len(outcome.refused) - most),
    }
    network = {
        "connections": used.opened,
        "refused": [
            {"host": each.host, "port": each.port, "why": each.why, "count": each.count}
            for each in used.refused
        ],
        "not_listed": used.more_refused,
    }
    optional: dict[str, Json] = {
        "not_listed": missing if any(missing.values()) else None,
        "output_kept": {each.stream: each.digest for each in _kept(outcome)},
        "conflict": outcome.conflict,
        "warnings": [each.text for each in outcome.warnings],
        "shown_from_git": [show_name(path) for path in outcome.shown_from_git[:most]],
        "network": network if used.opened or used.refused else None,
        "changes_discarded": outcome.discarded,
        "hints": list(outcome.hints),
        "fence": list(outcome.fence),
    }
    details |= {name: value for name, value in optional.items() if value}
    return details if outcome.diff is None else {**details, "diff": outcome.diff}


def has_lost_changes(details: Mapping[str, Json]) -> bool:
    """Return True if changes were refused, except those that git does without, or in a dry run."""
    rows = [cast("dict[str, Json]", each) for each in _list(details, "changes_refused")]
    cut = cast("dict[str, Json]", details.get("not_listed", {})).get("changes_refused")
    return "diff" not in details and bool(cut or any("aside" not in each for each in rows))


def last_words(details: Mapping[str, Json]) -> Iterator[str]:
    """Yield what a command did not print: why it was ended, and what the fence refused."""
    if "pending" in details:
        yield (
            "paddock: its changes wait for a person; nothing was changed. Do not repeat it. "
            f"Why, and what they are: paddock approvals show {details['pending']}"
        )
        return
    lines = [str(line) for line in _list(details, "fence")]
    printed = str(details.get("stderr", "")).splitlines()
    last = printed[-len(lines) - 1 :][:1]
    yield from (line for line in last if line.startswith(_ENDED_BY_SANDBOX))
    yield from (f"paddock: {hint}" for hint in _list(details, "hints"))
    yield from lines
    discarded = details.get("changes_discarded")
    if isinstance(discarded, int):
        yield f"paddock: {discarded_text(discarded)}"
    if "conflict" in details:
        yield f"paddock: NOTHING WAS KEPT: {show_name(str(details['conflict']))}"
    elif not lines:
        refused = [cast("dict[str, Json]", each) for each in _list(details, "changes_refused")]
        for each in refused[:_LAST_REFUSED_SHOWN]:
            named = f"{show_name(str(each['path']))}: {show_name(str(each['rule']))}"
            yield f"paddock: not changed: {named}"
        if len(refused) > _LAST_REFUSED_SHOWN:
            yield f"paddock: not changed: {len(refused) - _LAST_REFUSED_SHOWN} more paths"


def _list(details: Mapping[str, Json], name: str) -> list[Json]:
    found = details.get(name)
    return cast("list[Json]", found) if isinstance(found, list) else []


_ASIDE: Final = {"aside": {**BOOLEAN, "description": "True for what git does without."}}
_SANDBOX: Final = object_schema(
    {"backend": TEXT, "enforcement": {"enum": ["full", "partial", "none"]}, "gaps": TEXTS}
)
SHELL_SCHEMA: Final = result_schema(
    {
        "exit_code": {"type": "integer", "description": "-1 on timeout, 128 + N for signal N."},
        "stdout": TEXT,
        "stderr": TEXT,
        "timed_out": BOOLEAN,
        "duration_seconds": {"type": "number"},
        "files_changed": {**TEXTS, "description": "Paths whose changes are in the workspace."},
        "changes_refused": rows_schema({"path": TEXT, "rule": TEXT}, optional=_ASIDE),
        "sandbox": _SANDBOX,
        "shell": {"enum": ["bash", "sh"]},
        "not_listed": {"type": "object", "description": "Number of paths the lists leave out."},
        "output_kept": {"type": "object", "description": "Digests of the full output of streams."},
        "conflict": {"type": "string", "description": "Why no change was kept."},
        "hints": {**TEXTS, "description": "What the sandbox stopped, limited or forbade."},
        "fence": {
            **TEXTS,
            "description": "How policy caused the failure; stderr ends with it.",
        },
        "network": {
            "type": "object",
            "description": "Number of connections opened, and the refused ones (port 0: refused "
            "when the name was looked up).",
        },
        "changes_discarded": {
            "type": "integer",
            "description": "Number of changes that policy discarded.",
        },
        "shown_from_git": {
            **TEXTS,
            "description": "Protected files that the command saw as git's index has them.",
        },
        "diff": {"type": "string", "description": "Dry run only: what it would change."},
        "process": {"type": "string", "description": "Id of the background process."},
        "running": BOOLEAN,
        "own_changes": TEXTS,
        "unseen_changes": TEXTS,
        "pending": {
            "type": "string",
            "description": "Id of the request in which its changes wait for a person.",
        },
    }
)
