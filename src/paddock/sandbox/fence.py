"""What a command that failed met of the fence, in words for the end of its standard error.

An agent that reads "Permission denied" tries another way, and another. So a failure that
policy caused says so: what was refused and by which rule, that it is meant, and how a person
changes it. The same cause is explained once a session; after that one word names it.

What is said is what was seen: refused changes, a count that the kernel keeps of packets
without a way, and names that policy hides. Threat: a command that prints such a name, to
learn whether it stands there. Policy alone is asked, which says the same of names that do not.
"""

import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from paddock.policy.engine import Policy
from paddock.policy.lines import written_path
from paddock.policy.places import BUILT_IN
from paddock.sandbox.outcome import PreparedLine, ShellOutcome
from paddock.sandbox.telling import with_line
from paddock.sandbox.values import CommandEnd, Ending
from paddock.text.show import show_name

_MEANT: Final = "paddock: this is policy, and no fault to work around"
_MISSED: Final = re.compile(
    r"no such file or directory|permission denied|ENOENT|EACCES", re.IGNORECASE
)
_WORD: Final = re.compile(r"[^\s'\"`‘’“”:;,()\[\]{}<>|=]+")
_LINES_MAX: Final = 200
_WORDS_MAX: Final = 400
_NAME_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class _Cause:
    word: str
    rule: str
    what: str
    remedy: str


class FenceWords:
    """Of one session's commands. Safe for threads."""

    __slots__ = ("_explained", "_lock", "_policy")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._explained: set[tuple[str, str]] = set()

    def added(self, outcome: ShellOutcome, prepared: PreparedLine, end: CommandEnd) -> ShellOutcome:
        if outcome.exit_code == 0 or end.ending is Ending.CANCELLED:
            return outcome
        causes = list(self._causes(outcome, prepared, end))
        if not causes:
            return outcome
        lines = self._lines(causes)
        stderr = outcome.stderr
        for line in lines:
            stderr = with_line(stderr, line)
        return replace(outcome, stderr=stderr, fence=lines)

    def _lines(self, causes: list[_Cause]) -> tuple[str, ...]:
        with self._lock:
            news = [each for each in causes if (each.word, each.rule) not in self._explained]
            self._explained.update((each.word, each.rule) for each in news[:1])
        words = ", ".join(dict.fromkeys(each.word for each in causes if each not in news[:1]))
        if not news:
            return (f"paddock: policy again: {words}",)
        first = news[0]
        also = f"; also: {words}" if words else ""
        return (
            f"paddock: policy refused {first.what}{also}",
            _MEANT,
            f"paddock: a person can change it: {first.remedy}",
        )

    def _causes(
        self, outcome: ShellOutcome, prepared: PreparedLine, end: CommandEnd
    ) -> Iterator[_Cause]:
        if outcome.refused and not outcome.conflict:
            first = outcome.refused[0]
            more = len(outcome.refused) - 1
            rest = f" and {more} more changes" if more else ""
            what = f"the change of {show_name(first.path)}{rest}: {show_name(first.rule)}"
            yield _Cause("changes", first.rule, what, _explain("file:create", first.path))
        if end.unreached and prepared.plan.network == "loopback":
            rule = f'network = "loopback" ([shell], {self._place("shell", "network")})'
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
        """Where a setting stands; of an untrusted file nothing holds."""
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
