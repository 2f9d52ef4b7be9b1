"""Files in a model's place: exchanges that were recorded, and scripts; and how they are recorded.

Both are strict: what is left over when the work is done is an error.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from paddock import limits
from paddock.assembly.project import Project
from paddock.assembly.sessions import chosen_model, read_script
from paddock.errors import ConfigError, HostError, UsageError
from paddock.policy.settings import ProviderSettings
from paddock.providers.choice import open_provider
from paddock.providers.failures import missing_sdk
from paddock.providers.gateway import Provider
from paddock.providers.keys import without_key
from paddock.storage.atomic import read_file
from paddock.text.show import quote

if TYPE_CHECKING:
    from paddock.providers.scripted import ScriptedModel

_ON_A_WIRE = frozenset({"anthropic", "openai"})


class Finishing(Protocol):
    def require_met(self) -> None:
        """Raises: ConfigError where a request was not the one that an answer is for."""
        ...

    def require_finished(self) -> None:
        """Raises: ConfigError like `require_met`, or where some are left over."""
        ...


class PreparedCassette(Struct, frozen=True):
    provider: Provider
    answers: Finishing


def open_recorded(
    project: Project, model: str | None, variables: Mapping[str, str], file: Path
) -> Provider:
    """Open the chosen model, recording to `file`. Raises: UsageError, ConfigError, HostError."""
    settings = _settings(project, model)
    from paddock.providers.transport import (  # noqa: PLC0415 - the HTTP client is an extra
        RecordingTransport,
        Taped,
    )

    tape = _NewTape(file)
    try:
        inner = open_provider(
            settings, variables, transport_for=lambda key: RecordingTransport(key, tape.write)
        )
    except BaseException:
        tape.discard()
        raise
    return Taped(inner, inner.name, tape.close)


def open_played(
    project: Project, model: str | None, variables: Mapping[str, str], file: Path
) -> PreparedCassette:
    """Play `file` by its model's adapter, without key or network; raises as `open_recorded`."""
    settings = _settings(project, model)
    from paddock.providers.transport import (  # noqa: PLC0415 - the HTTP client is an extra
        PlayingTransport,
        Taped,
        parse_cassette,
    )

    content = read_file(file, limits.cassette_bytes_max)
    if content is None:
        raise UsageError(f"there is no cassette {quote(str(file))}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        said = f"the cassette is not UTF-8 at byte {error.start}"
        raise ConfigError(said, where=str(file)) from None
    player = PlayingTransport(parse_cassette(text, str(file)))
    keyless, key = without_key(settings)
    addresses = {name: text for name, text in variables.items() if name.endswith("_BASE_URL")}
    inner = open_provider(keyless, {**addresses, **key}, transport_for=lambda _: player)
    return PreparedCassette(Taped(inner, f"played {inner.name}", _nothing), player)


def find_script(
    project: Project, model: str | None, variables: Mapping[str, str]
) -> PreparedCassette | None:
    """Return the scripted model where it is the chosen one. Raises: UsageError, ConfigError."""
    settings = chosen_model(project, model)
    if settings.provider != "scripted":
        return None
    script = open_provider(settings, variables, read_script=read_script)
    return PreparedCassette(script, cast("ScriptedModel", script))


def _settings(project: Project, model: str | None) -> ProviderSettings:
    settings = chosen_model(project, model)
    if settings.provider not in _ON_A_WIRE:
        raise UsageError(
            f"the model {quote(settings.provider)} speaks over no wire",
            where="--model",
            hint="a cassette holds exchanges with anthropic or openai",
        )
    if find_spec("httpx2") is None:
        raise missing_sdk(settings.provider)
    return settings


def _nothing() -> None:
    return None


class _NewTape:
    def __init__(self, file: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = file
        try:
            self._descriptor = os.open(file, flags, 0o600)
        except FileExistsError:
            raise UsageError(
                f"{quote(str(file))} is there already", hint="name a new file"
            ) from None
        except OSError as error:
            raise HostError(f"{quote(str(file))} cannot be made: {error.strerror}") from None

    def write(self, line: str) -> None:
        """One exchange, whole: a shorter write is gone on with."""
        left = line.encode("utf-8", "surrogatepass")
        while left:
            left = left[os.write(self._descriptor, left) :]

    def discard(self) -> None:
        self.close()
        self._file.unlink()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
