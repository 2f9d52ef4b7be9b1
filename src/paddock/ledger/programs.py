"""Running what the user's own configuration names: an anchor, a signer."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.errors import HostError

_SHOWN_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended, and what it printed."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_command(
    command: Sequence[str], given: bytes, environment: Mapping[str, str], where: str
) -> Done:
    """Run a program to its end, with this on its standard input.

    Raises: HostError: it cannot be run, or takes more than `limits.anchor_timeout_s`.
    """
    try:
        done = subprocess.run(
            list(command),
            input=given,
            capture_output=True,
            timeout=limits.anchor_timeout_s,
            env=dict(environment),
            check=False,
        )
    except subprocess.TimeoutExpired as fault:
        raise HostError(
            f"{command[0]!a} did not answer within {limits.anchor_timeout_s:g} s", where=where
        ) from fault
    except OSError as fault:
        raise HostError(f"{command[0]!a} cannot be run: {fault.strerror}", where=where) from fault
    return Done(done.returncode, done.stdout, done.stderr)


def failed(where: str, done: Done, hint: str) -> HostError:
    """What to raise for a program that did not do it."""
    said = done.stderr.decode(errors="replace").strip()[:_SHOWN_CHARS_MAX]
    return HostError(f"it failed with {done.returncode}: {said!a}", where=where, hint=hint)
