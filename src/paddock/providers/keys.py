"""The key to a provider: found when it is needed, shown nowhere."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError
from paddock.policy.settings import ProviderSettings
from paddock.text.show import quote

USUAL_VARIABLES: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""Where each SDK looks when nobody says otherwise."""
NO_KEY: Final = "no-key"
"""Sent to a server of one's own that wants none; the SDK insists on some text."""


class Key:
    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def scrub(self, text: str) -> str:
        """`text` without the key.

        Threat: a server that quotes the request in its error would put the key into
        messages, ledgers and the conversation.
        """
        if self._text == NO_KEY:
            return text  # No secret: a text that says so is kept as it is.
        return text.replace(self._text, "[key]") if self._text else text

    def __repr__(self) -> str:
        return "Key([hidden])"


def without_key(settings: ProviderSettings) -> tuple[ProviderSettings, Mapping[str, str]]:
    usual = USUAL_VARIABLES.get(settings.provider, "")
    return replace(settings, api_key_env="", api_key_command=()), {usual: NO_KEY}


def read_key(settings: ProviderSettings, variables: Mapping[str, str]) -> Key:
    """The key that the settings name, else the one in the SDK's usual variable.

    `variables` are those of the process. A server with a `base_url` of one's own may go without
    a key, and never gets the one that the usual variable holds.
    """
    if settings.api_key_command:
        return Key(_from_command(settings.api_key_command))
    if settings.api_key_env:
        return Key(_from_variable(settings.api_key_env, variables))
    if settings.base_url:
        # Threat: a base_url that was set for a local server, or by someone else, would be
        # handed the account's real key.
        return Key(NO_KEY)
    return Key(_from_variable(USUAL_VARIABLES[settings.provider], variables))


def _from_variable(name: str, variables: Mapping[str, str]) -> str:
    value = variables.get(name, "").strip()
    if not value:
        raise ConfigError(
            f"the variable {quote(name)} holds no key",
            hint="set it, or name another with api_key_env or api_key_command",
        )
    return _usable(value, name)


def _from_command(command: Sequence[str]) -> str:
    shown = quote(command[0])
    try:
        done = subprocess.run(  # the user's own configuration, an argument list
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limits.key_command_timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"api_key_command {shown} gave no key: {type(error).__name__}",
            hint="it must print the key and end",
        ) from None
    # Nothing that it printed is quoted: that may be the key.
    value = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0 or not value:
        raise ConfigError(
            f"api_key_command {shown} gave no key (exit {done.returncode})",
            hint="it must print the key and exit 0",
        )
    return _usable(value, f"the output of {command[0]}")


def _usable(value: str, source: str) -> str:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError(
            f"{quote(source)} holds no key: it has spaces or characters that no key has",
            hint="one line, nothing but the key",
        )
    return value
