"""How a command ended, and what is kept of it, as one outcome. Pure."""

from dataclasses import replace

from paddock.sandbox.outcome import ShellOutcome, Stream
from paddock.sandbox.settling import written_bytes
from paddock.sandbox.spooling import Streams
from paddock.sandbox.staging import Kept
from paddock.sandbox.values import CommandEnd, CommandRequest, Ending, Enforced
from paddock.text.show import show_name


def tell(
    request: CommandRequest, end: CommandEnd, streams: Streams, enforced: Enforced
) -> ShellOutcome:
    """The outcome so far: nothing is kept of what the command changed."""
    notes: list[str] = []
    if end.survivors:
        notes.append(f"{end.survivors} background processes were ended with the command")
    return ShellOutcome(
        shell=request.argv[0].rpartition("/")[2],
        ending=end.ending,
        exit_code=end.exit_code,
        stdout=streams.stdout,
        stderr=_with_last_words(streams.stderr, end, request),
        duration_s=end.duration_s,
        enforced=enforced,
        notes=tuple(notes),
    )


def with_kept(outcome: ShellOutcome, kept: Kept) -> ShellOutcome:
    """The outcome with what the workspace has now."""
    committed = kept.committed
    if committed.conflict:
        return replace(outcome, refused=kept.refused, conflict=committed.conflict)
    landed = [each for each in kept.settled if each.lands]
    warnings = dict.fromkeys(text for each in landed for text in each.judgement.warnings)
    return replace(
        outcome,
        changed=committed.changed,
        bytes_written=written_bytes(landed),
        refused=kept.refused,
        warnings=tuple(warnings),
        notes=(*outcome.notes, *committed.notes),
    )


def _with_last_words(stderr: Stream, end: CommandEnd, request: CommandRequest) -> Stream:
    """What the end of a command says on the last line of its standard error."""
    said = ""
    if end.ending is Ending.TIMED_OUT:
        said = f"Command timed out after {request.timeout_s:g} seconds"
    elif end.ending is Ending.MEMORY:
        most = request.plan.limits.memory_mb
        said = f"Command used more than {most} MB of memory and was ended"
    elif end.ending is Ending.FAILED:
        said = f"Command could not be started: {show_name(end.reason)}"
    elif end.ending is Ending.CANCELLED:
        said = "Command was cancelled"
    return with_line(stderr, said) if said else stderr


def with_line(stream: Stream, line: str) -> Stream:
    """The stream with one more line at its end."""
    text = stream.text
    before = "" if not text or text.endswith("\n") else "\n"
    return replace(stream, text=f"{text}{before}{line}")
