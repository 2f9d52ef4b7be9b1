"""Credentials that commands never have: what stands for them inside, and where they are kept.

A command's variable holds a placeholder. `paddock.network.requests` puts the value in its place
on the way to a listed host, and the placeholder in place of the value on the way back.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired, run
from typing import Final, NoReturn

from paddock.errors import ConfigError
from paddock.policy.settings import CredentialSettings
from paddock.text.show import quote

_PREFIX: Final = "paddock_"
_PLACEHOLDER_CHARS_MIN: Final = 24
"""64 random bits behind the prefix: nobody's text holds one by chance."""
_VALUE_CHARS: Final = range(8, 8_193)
"""A shorter value would be found in texts that have nothing to do with it."""

_PROGRAM_S: Final = 60.0
_VISIBLE: Final = bytes(range(0x21, 0x7F))
"""What a value and a placeholder, also in base64, consist of."""

Pair = tuple[bytes, bytes]
"""A text, and what takes its place."""


class Credential:
    """A value, the hosts that get it, and what stands for it in one sandbox."""

    # Threat: whatever shows, copies or keeps an object takes along what it holds.
    __slots__ = ("_value", "hosts", "name", "placeholder", "variable")

    def __init__(
        self, settings: CredentialSettings, value: str, randomness: Callable[[int], bytes]
    ) -> None:
        self.name, self.hosts, self.variable = settings.name, settings.hosts, settings.variable
        self._value = value
        # As long as the value where it can be: then no length of a response changes.
        length = max(len(value), _PLACEHOLDER_CHARS_MIN)
        self.placeholder = (_PREFIX + randomness(length).hex())[:length]

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential is neither copied nor kept")


def replace_texts(text: bytes, pairs: Iterable[Pair]) -> bytes:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def decode_basic(value: bytes) -> bytes:
    """Return the name and password in a header's value (RFC 7617), nothing where it has none."""
    try:
        return b64decode(value[6:], validate=True) if value[:6].lower() == b"basic " else b""
    except ValueError:
        return b""


def replace_in_header(value: bytes, pairs: Iterable[Pair]) -> bytes:
    decoded = decode_basic(value)
    replaced = replace_texts(decoded, pairs)
    if replaced != decoded:
        return value[:6] + b64encode(replaced)
    return replace_texts(value, pairs)


class StreamReplacer:
    """Replaces texts of visible characters in what comes in pieces.

    Threat: who has a host repeat guesses sees how much of one waits for more. So what waits does
    not depend on the text: all that could be its beginning, were it any text of its length.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self._longest = max((len(old) for old, _ in pairs), default=1)
        self._held = b""
        self.found = b""
        """One of the texts that were replaced so far."""

    def feed(self, data: bytes) -> bytes:
        """Return what can go on. The empty piece is the last one."""
        text = self._held + data
        for old, new in self._pairs:
            if old in text:
                self.found, text = old, text.replace(old, new)
        tail = text[max(0, len(text) - self._longest + 1) :] if data else b""
        self._held = tail[len(tail.rstrip(_VISIBLE)) :]
        return text[: len(text) - len(self._held)]


def read_all(
    settings: Sequence[CredentialSettings],
    variables: Mapping[str, str],
    home: Path,
    randomness: Callable[[int], bytes],
) -> tuple[Credential, ...]:
    """Take all from where they are, each with a new placeholder. Raises: ConfigError."""
    return tuple(
        Credential(each, read_value(each, variables, home), randomness) for each in settings
    )


def read_value(settings: CredentialSettings, variables: Mapping[str, str], home: Path) -> str:
    """Take a credential's value from where the user's configuration says that it is.

    `variables` are those of the process. Raises: ConfigError where there is no value, or none that
    a header can hold.
    """
    source, found = settings.source, b""
    command, hint = source.command, "it must print the value and exit 0"
    if source.keyring:
        service, _, user = source.keyring.partition("/")
        words = ("service", service, *(("username", user) if user else ()))
        command = ("secret-tool", "lookup", *words)
        hint = (
            f"needs libsecret's tools; put it there: secret-tool store --label=x {' '.join(words)}"
        )
    if source.env:
        where, hint = f"the variable {quote(source.env)}", "set it where Paddock is started"
        found = variables.get(source.env, "").encode(errors="replace")
    elif source.file:
        where, hint = f"the file {quote(source.file)}", "write the value into it, and nothing else"
        with suppress(OSError):
            found = (home / source.file.removeprefix("~/")).read_bytes()
    else:
        where = f"the output of {quote(command[0])}"
        try:
            done = run(command, stdin=DEVNULL, capture_output=True, check=False, timeout=_PROGRAM_S)
            found = done.stdout if done.returncode == 0 else b""
        except (OSError, TimeoutExpired) as error:
            where += f" (it cannot be run: {type(error).__name__})"
    # Threat: a message that quotes what was found holds most of a value.
    value = found.decode("latin-1").strip()
    if not value:
        problem = "holds no value"
    elif len(value) not in _VALUE_CHARS:
        problem = f"does not hold {_VALUE_CHARS[0]} to {_VALUE_CHARS[-1]} characters"
    elif not value.isascii() or not value.isprintable() or " " in value:
        problem = "holds spaces or characters that no header takes"
    else:
        return value
    raise ConfigError(f"{where} {problem}", where=f"[credentials.{settings.name}]", hint=hint)
