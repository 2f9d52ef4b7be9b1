"""Counting what a gate looked at, and what was wrong with it."""

from collections.abc import Iterable

from paddock.gates.results import GateResult, judged
from paddock.packages.rows import Failure
from paddock.text.show import show_name


class Tally:
    def __init__(self, gate: str) -> None:
        self._gate = gate
        self._checks = 0
        self._failures: list[Failure] = []

    def look(self, file: str, problem: str) -> None:
        """One look at `file`; an empty `problem` is none."""
        self._checks += 1
        if problem:
            self._add(Failure(file, problem))

    def count(self, looks: int) -> None:
        """Looks at which nothing was wrong."""
        self._checks += looks

    def discount(self) -> None:
        """Looks at which nothing was wrong do not count after all."""
        self._checks = len(self._failures)

    def fail(self, failures: Iterable[Failure]) -> None:
        """Looks at which something was wrong."""
        for failure in failures:
            self._checks += 1
            self._add(failure)

    def result(self, nothing: str) -> GateResult:
        """The answer; `nothing` says why where there was nothing to look at."""
        return judged(self._gate, self._checks, self._failures, nothing)

    def _add(self, failure: Failure) -> None:
        # Threat: a file's name may hold control characters, or bytes that are no text.
        shown = Failure(show_name(failure.file), failure.reason)
        if shown not in self._failures:
            self._failures.append(shown)
