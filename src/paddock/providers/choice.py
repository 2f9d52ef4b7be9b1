"""Choose the provider that a configuration names, find its key, and open it."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError
from paddock.policy.settings import ProviderSettings
from paddock.providers.builtin import BuiltinModel
from paddock.providers.failures import missing_sdk
from paddock.providers.gateway import Provider
from paddock.providers.scripted import ScriptedModel, parse_script
from paddock.text.show import quote

if TYPE_CHECKING:
    import httpx2

PROVIDERS: Final = ("builtin", "scripted", "anthropic", "openai")
APIS: Final = ("responses", "chat")

ReadScript = Callable[[str], str]
TransportFor = Callable[["Key"], "httpx2.AsyncBaseTransport"]


def choose_settings(
    provider: str,
    model: str,
    base_url: str,
    api: str,
    known: tuple[ProviderSettings, ...],
) -> ProviderSettings:
    """Complete an agent's configuration from `[providers.NAME]`.

    `provider` is the name of such a table, or a kind of provider; empty means `builtin`. An empty
    value is taken from the table.
    """
    name = provider or "builtin"
    table = next((each for each in known if each.name == name), None)
    if table is None:
        table = ProviderSettings(name)
    chosen = replace(
        table,
        provider=table.provider or name,
        model=model or table.model,
        base_url=base_url or table.base_url,
        api=api or table.api,
    )
    if base_url and base_url != table.base_url:
        # Threat: a plane's configuration names another address, which would get the user's key
        # for the table's address.
        chosen = replace(chosen, api_key_env="", api_key_command=())
    _require_known(chosen)
    return chosen


def _require_known(settings: ProviderSettings) -> None:
    if settings.provider not in PROVIDERS:
        raise ConfigError(
            f"unknown provider {quote(settings.provider)}",
            hint=f"one of {', '.join(PROVIDERS)}, or a [providers.NAME] of your configuration",
        )
    if settings.api and (settings.provider != "openai" or settings.api not in APIS):
        raise ConfigError(
            f"invalid api {quote(settings.api)} for the provider {quote(settings.provider)}",
            hint="only openai has an api setting: responses or chat",
        )


def open_provider(
    settings: ProviderSettings,
    variables: Mapping[str, str],
    *,
    read_script: ReadScript | None = None,
    transport_for: "TransportFor | None" = None,
) -> Provider:
    """Create the provider of the settings, without sending anything or loading an SDK.

    `variables` are the process's: the keys, and `ANTHROPIC_BASE_URL` and `OPENAI_BASE_URL` if the
    settings have no address. The model of `scripted` is the path of its script. The transport that
    `transport_for` creates for the key replaces the network; `builtin` and `scripted` use neither.
    """
    _require_known(settings)
    kind = settings.provider
    if kind == "builtin":
        return BuiltinModel()
    if kind == "scripted":
        return _scripted(settings.model, read_script)
    key = read_key(settings, variables)
    transport = None if transport_for is None else transport_for(key)
    address = settings.base_url or variables.get(f"{kind.upper()}_BASE_URL", "")
    # The SDK's other variables (headers, organization) are meant for the environment's address.
    takes_ambient = not settings.base_url
    if find_spec(kind) is None:
        raise missing_sdk(kind)
    from paddock.providers.client import Server

    server = Server(address, transport, takes_ambient)
    if kind == "anthropic":
        from paddock.providers.anthropic import anthropic_provider

        return anthropic_provider(settings.model, key, server)
    from paddock.providers.openai import openai_provider

    api = settings.api or ("chat" if address else "responses")
    return openai_provider(settings.model, key, server, api)


def _scripted(path: str, read_script: ReadScript | None) -> ScriptedModel:
    if read_script is None or not path:
        raise ConfigError(
            "the scripted provider has no script", hint="set model to the path of the script"
        )
    return ScriptedModel(parse_script(read_script(path), path), model=path)


# The key of a provider is read when the provider is opened, and never shown.

USUAL_VARIABLES: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""The default variable of each SDK."""
NO_KEY: Final = "no-key"
"""Sent to a self-hosted server without a key, because the SDK requires some text."""


class Key:
    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def scrub(self, text: str) -> str:
        """Remove the key from a text.

        Threat: a server quotes the request in its error, and so puts the key into messages,
        ledgers and the conversation.
        """
        if self._text == NO_KEY:
            return text  # Not a secret: keep a text that happens to contain it.
        return text.replace(self._text, "[key]") if self._text else text

    def __repr__(self) -> str:
        return "Key([hidden])"


def without_key(settings: ProviderSettings) -> tuple[ProviderSettings, Mapping[str, str]]:
    usual = USUAL_VARIABLES.get(settings.provider, "")
    return replace(settings, api_key_env="", api_key_command=()), {usual: NO_KEY}


def read_key(settings: ProviderSettings, variables: Mapping[str, str]) -> Key:
    """Return the key that the settings name, else the one in the SDK's default variable.

    `variables` are the process's. A server with a custom `base_url` may have no key, and never gets
    the one in the default variable.
    """
    if settings.api_key_command:
        return Key(_from_command(settings.api_key_command))
    if settings.api_key_env:
        return Key(_from_variable(settings.api_key_env, variables))
    if settings.base_url:
        # Threat: a base_url for a local server, or one set by another user, would get the account's
        # real key.
        return Key(NO_KEY)
    return Key(_from_variable(USUAL_VARIABLES[settings.provider], variables))


def _from_variable(name: str, variables: Mapping[str, str]) -> str:
    value = variables.get(name, "").strip()
    if not value:
        raise ConfigError(
            f"the environment variable {quote(name)} is not set, or is empty",
            hint="set it to the key, or set api_key_env or api_key_command",
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
            f"api_key_command {shown} failed: {type(error).__name__}",
            hint="it must print the key and end",
        ) from None
    # Never quote its output, which may be the key.
    value = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0 or not value:
        raise ConfigError(
            f"api_key_command {shown} printed no key (exit {done.returncode})",
            hint="it must print the key and exit 0",
        )
    return _usable(value, f"the output of {command[0]}")


def _usable(value: str, source: str) -> str:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError(
            f"{quote(source)} is not a key: it contains spaces or characters that keys cannot have",
            hint="provide one line that contains only the key",
        )
    return value
