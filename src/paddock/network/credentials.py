"""Read credentials, and replace placeholders by their values and back.

A command never gets a value: its variable has a placeholder. `paddock.network.requests` replaces
it by the value in requests to a listed host, and the value by the placeholder in responses.
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
"""64 random bits after the prefix: no text contains one by chance."""
_VALUE_CHARS: Final = range(8, 8_193)
"""A shorter value would also match unrelated text."""

_PROGRAM_S: Final = 60.0
_VISIBLE: Final = bytes(range(0x21, 0x7F))
"""The bytes of values and placeholders, also in base64."""

Pair = tuple[bytes, bytes]
"""A text and its replacement."""


class Credential:
    """A value, the hosts that get it, and its placeholder in one sandbox."""

    # Threat: code that prints, copies or pickles the object would reveal the value.
    __slots__ = ("_value", "hosts", "name", "placeholder", "variable")

    def __init__(
        self, settings: CredentialSettings, value: str, randomness: Callable[[int], bytes]
    ) -> None:
        self.name, self.hosts, self.variable = settings.name, settings.hosts, settings.variable
        self._value = value
        # As long as the value if possible, so that the length of a response does not change.
        length = max(len(value), _PLACEHOLDER_CHARS_MIN)
        self.placeholder = (_PREFIX + randomness(length).hex())[:length]

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential cannot be copied or pickled")


def replace_texts(text: bytes, pairs: Iterable[Pair]) -> bytes:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def decode_basic(value: bytes) -> bytes:
    """Return the name and password in a header's value (RFC 7617), empty if it has none."""
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
    """Replace texts of visible characters in a stream of pieces.

    Threat: a command that makes a host echo guesses could see how much of a guess is held back. So
    the held part does not depend on the text, only on the length: any possible beginning is held.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self._longest = max((len(old) for old, _ in pairs), default=1)
        self._held = b""
        self.found = b""
        """The last text that was replaced, if any."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to pass on. The empty piece is the last one."""
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
    """Read all credentials, each with a new placeholder. Raises: ConfigError."""
    return tuple(
        Credential(each, read_value(each, variables, home), randomness) for each in settings
    )


def read_value(settings: CredentialSettings, variables: Mapping[str, str], home: Path) -> str:
    """Read a credential's value from its configured source.

    `variables` are those of the process. Raises: ConfigError if there is no value, or it is invalid
    in a header.
    """
    source, found = settings.source, b""
    command, hint = source.command, "it must print the value and exit 0"
    if source.keyring:
        service, _, user = source.keyring.partition("/")
        words = ("service", service, *(("username", user) if user else ()))
        command = ("secret-tool", "lookup", *words)
        hint = f"needs libsecret's tools; store it: secret-tool store --label=x {' '.join(words)}"
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
    # Threat: a message must not quote the text, which may be most of a value.
    value = found.decode("latin-1").strip()
    if not value:
        problem = "holds no value"
    elif len(value) not in _VALUE_CHARS:
        problem = f"does not hold {_VALUE_CHARS[0]} to {_VALUE_CHARS[-1]} characters"
    elif not value.isascii() or not value.isprintable() or " " in value:
        problem = "holds spaces or characters that are invalid in a header"
    else:
        return value
    raise ConfigError(f"{where} {problem}", where=f"[credentials.{settings.name}]", hint=hint)
