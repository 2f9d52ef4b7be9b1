"""How a command ended, what is kept of it, and what it met of the fence, as one outcome. Pure."""

import re
import shlex
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.pattern import lazy_pattern
from paddock.policy.engine import Policy
from paddock.policy.places import BUILT_IN
from paddock.policy.profiles import written_path
from paddock.policy.settings import ShellLimits
from paddock.sandbox.changes.commit import Committed
from paddock.sandbox.changes.settling import written_bytes
from paddock.sandbox.git_layer import NOTHING_SHOWN, ShownNames
from paddock.sandbox.streams import Streams
from paddock.sandbox.values import (
    CommandEnd,
    Ending,
    PreparedLine,
    RefusedChange,
    ShellOutcome,
    Stream,
    Warned,
)
from paddock.text.show import name_some, show_name
from paddock.values.calls import NO_RULE

_NAMED: Final = 50

_CPU_EXIT: Final = 128 + 24
_FILE_EXIT: Final = 128 + 25
"""SIGXCPU and SIGXFSZ, the same numbers on every machine we know (signal(7))."""
_NO_PROCESS: Final = ("can't start new thread", "unable to create native thread")
_AGAIN: Final = ("resource temporarily unavailable", "eagain")
_STARTS: Final = ("fork", "clone", "spawn", "thread", "process")
_TOO_LARGE: Final = ("file too large", "efbig", "file size limit exceeded")
_FULL: Final = ("no space left on device", "enospc")
_NOT_LINKED: Final = "hardlink different from source"
"""What git says where the name that it has just linked is another file (builtin/clone.c)."""
_CLONE_COPIES: Final = (
    "in a sandbox a hard link to a file of the workspace is a copy: use git clone --no-hardlinks"
)

_UNSIGNED: Final = (
    "commits and tags made in a sandbox are not signed, although this repository's are outside: the"
    " key stays there"
)


def tell(
    prepared: PreparedLine, end: CommandEnd, streams: Streams, notes: Iterable[str] = ()
) -> ShellOutcome:
    stdout, stderr = streams
    last = _last_words(end, prepared)
    notes = list(notes)
    if end.survivors:
        notes.append(f"{end.survivors} background processes were ended with the command")
    if _NOT_LINKED in stderr.text:
        notes.append(_CLONE_COPIES)
    if end.exit_code:
        notes += dict.fromkeys(_limits_met(stderr.text, prepared.plan.limits))
    return ShellOutcome(
        shell=prepared.interpreter.rpartition("/")[2],
        ending=end.ending,
        exit_code=end.exit_code,
        stdout=stdout,
        stderr=with_line(stderr, last) if last else stderr,
        duration_s=end.duration_s,
        enforced=prepared.enforced,
        notes=tuple(notes),
        network=end.network,
    )


def with_kept(outcome: ShellOutcome, kept: Committed) -> ShellOutcome:
    if kept.conflict:
        return replace(outcome, refused=kept.refused, conflict=kept.conflict)
    landed = [each for each in kept.settled if each.lands]
    warnings = dict.fromkeys(
        Warned(text, each.judgement.warned_by)
        for each in landed
        for text in each.judgement.warnings
    )
    return replace(
        outcome,
        changed=kept.changed,
        bytes_written=written_bytes(landed),
        refused=kept.refused,
        warnings=tuple(warnings),
        notes=(*outcome.notes, *kept.notes),
    )


def _limits_met(text: str, limits: ShellLimits) -> Iterator[str]:
    lines = text.lower().splitlines()
    tried = [line for line in lines if any(word in line for word in _STARTS)]
    for said, where, met in (
        (_NO_PROCESS, lines, f"{limits.processes} processes and threads at once"),
        (_AGAIN, tried, f"{limits.processes} processes and threads at once"),
        (_TOO_LARGE, lines, f"{limits.file_mb} MB in one file"),
        (_FULL, lines, f"{limits.memory_mb // 2} MB in its private directories"),
    ):
        if any(word in line for line in where for word in said):
            yield f"a command may have at most {met}: [shell] limits"


def question_heading(
    prepared: PreparedLine, end: CommandEnd, refused: Sequence[RefusedChange]
) -> str:
    rows: list[str] = []
    last = _last_words(end, prepared)
    if last:
        rows.append(f"[{last}: what it changed may be half done]")
    elif end.exit_code != 0:
        rows.append(f"[Command ended with exit code {end.exit_code}]")
    if refused:
        rows.append(f"[changes refused, whatever is answered: {len(refused)}]")
        rows += [f"  {show_name(each.path)}: {show_name(each.rule)}" for each in refused[:_NAMED]]
        more = len(refused) - _NAMED
        rows += [f"  [and {more} more]"] if more > 0 else []
    return "".join(f"{row}\n" for row in rows)


def _last_words(end: CommandEnd, prepared: PreparedLine) -> str:
    limits = prepared.plan.limits
    if end.ending is Ending.TIMED_OUT:
        return f"Command timed out after {prepared.line.timeout_s} seconds"
    if end.ending is Ending.MEMORY:
        return f"Command used more than {limits.memory_mb} MB of memory and was ended"
    if end.ending is Ending.FAILED:
        return f"Command could not be started: {show_name(end.reason)}"
    if end.exit_code == _CPU_EXIT and limits.cpu_s:
        cpu_s = limits.cpu_s
        return f"Command used more than {cpu_s} s of processor time and was ended: [shell] limits"
    if end.exit_code == _FILE_EXIT:
        most = limits.file_mb
        return f"Command wrote a file of more than {most} MB and was ended: [shell] limits"
    return "Command was cancelled" if end.ending is Ending.CANCELLED else ""


def with_line(stream: Stream, line: str) -> Stream:
    text = stream.text
    before = "" if not text or text.endswith("\n") else "\n"
    return replace(stream, text=f"{text}{before}{line}")


# An agent that reads "Permission denied" tries another way, and another. So a failure that
# policy caused says so: what was refused and by which rule, that it is meant, and how a person
# changes it. The same cause is explained once a session; after that one word names it.
#
# What is said is what was seen: refused changes, a count that the kernel keeps of packets
# without a way, and names that policy hides. Threat: a command that prints such a name, to
# learn whether it stands there. Policy alone is asked, which says the same of names that do not.

_GIT: Final = lazy_pattern(r"\bgit\b")
_MEANT: Final = "paddock: this is policy, and no fault to work around"
_MISSED: Final = lazy_pattern(
    r"no such file or directory|permission denied|ENOENT|EACCES", re.IGNORECASE
)
_WORD: Final = lazy_pattern(r"[^\s'\"`‘’“”:;,()\[\]{}<>|=]+")
_LINES_MAX: Final = 200
_WORDS_MAX: Final = 400
_NAME_CHARS_MAX: Final = 200


class _Cause(Struct, frozen=True):
    word: str
    rule: str
    what: str
    remedy: str


class FenceWords:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._said: set[tuple[str, ...]] = set()

    def is_first(self, *word: str) -> bool:
        """Decide whether something is to be said that a session hears only once."""
        with self._lock:
            is_first = word not in self._said
            self._said.add(word)
        return is_first

    def notes(self, prepared: PreparedLine, shown: ShownNames = NOTHING_SHOWN) -> Iterator[str]:
        """Yield what is to be known of git in this session, once, and of this line."""
        is_signing = prepared.plan.git_config.is_signing and _GIT.search(prepared.line.text)
        if is_signing and self.is_first("unsigned"):
            yield _UNSIGNED
        if shown.names and self.is_first("shown"):
            yield (
                f"policy closes {name_some(shown.names)}, and git tracks that: git's objects give"
                " the content to every command"
            )
        if shown.differing:
            yield (
                f"shown as git's index has it, while the working copy differs and stays closed:"
                f" {name_some(shown.differing)}"
            )

    def added(self, outcome: ShellOutcome, prepared: PreparedLine, end: CommandEnd) -> ShellOutcome:
        if outcome.exit_code == 0 or end.ending is Ending.CANCELLED:
            return outcome
        causes = list(self._causes(outcome, prepared, end))
        if not causes:
            return outcome
        first = next((each for each in causes if self.is_first(each.word, each.rule)), None)
        words = ", ".join(dict.fromkeys(each.word for each in causes if each is not first))
        lines: tuple[str, ...] = (f"paddock: policy again: {words}",)
        if first is not None:
            also = f"; also: {words}" if words else ""
            lines = (
                f"paddock: policy refused {first.what}{also}",
                _MEANT,
                f"paddock: a person can change it: {first.remedy}",
            )
        stderr = outcome.stderr
        for line in lines:
            stderr = with_line(stderr, line)
        return replace(outcome, stderr=stderr, fence=lines)

    def _causes(
        self, outcome: ShellOutcome, prepared: PreparedLine, end: CommandEnd
    ) -> Iterator[_Cause]:
        if outcome.refused and not outcome.conflict:
            first = outcome.refused[0]
            more = len(outcome.refused) - 1
            rest = f" and {more} more changes" if more else ""
            what = f"the change of {show_name(first.path)}{rest}: {show_name(first.rule)}"
            yield _Cause("changes", first.rule, what, _explain("file:create", first.path))
        if end.network.refused:
            first = end.network.refused[0]
            more = len(end.network.refused) - 1 + end.network.more_refused
            rest = f" and {more} more" if more else ""
            place = f"{first.host}:{first.port}" if first.port else first.host
            what = f"the connection to {show_name(place)}{rest}: {show_name(first.why)}"
            allow = f"paddock network allow {shlex.quote(place)}"
            remedy = allow if first.why == NO_RULE else "paddock network show"
            yield _Cause("network", first.why, what, remedy)
        elif end.unreached and prepared.plan.network in ("loopback", "policy"):
            word = self._policy.settings.shell.network
            rule = f'network = "{word}" ([shell], {self._place("shell", "network")})'
            what = f"connections to the network ({end.unreached} tries): {rule}"
            yield _Cause("network", rule, what, _explain("shell:run", prepared.line.text))
        yield from self._closed(outcome, prepared)

    def _closed(self, outcome: ShellOutcome, prepared: PreparedLine) -> Iterator[_Cause]:
        for name in _missed_names(outcome.stderr.text):
            inner = name.removeprefix(f"{prepared.plan.workspace}/")
            path = written_path(inner, prepared.line.cwd if inner == name else ".")
            pattern = self._policy.guards.find_secret(path) if path else None
            if pattern is not None:
                rule = f"{pattern.text} (paths.secret, {pattern.place})"
                what = f"the reading of {show_name(path)}: {show_name(rule)}"
                yield _Cause("secret", rule, what, _explain("file:view", path))
                return

    def _place(self, table: str, key: str) -> str:
        for document in reversed(self._policy.documents):
            given = document.document.values.get(table)
            if document is not self._policy.untrusted and isinstance(given, dict) and key in given:
                return str(document.document.place((table, key)))
        return BUILT_IN


def _explain(action: str, target: str) -> str:
    shown = f"tool:{action} {target}"
    if len(shown) > _NAME_CHARS_MAX or not shown.isprintable():
        shown = f"tool:{action} …"
    return f"paddock policy explain {shlex.quote(shown)}"


def _missed_names(text: str) -> Iterator[str]:
    left = _WORDS_MAX
    for line in text.splitlines()[-_LINES_MAX:]:
        if _MISSED.search(line) is None:
            continue
        for word in _WORD.findall(line[: 4 * _NAME_CHARS_MAX])[:left]:
            left -= 1
            yield word
