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
    """What an agent's configuration says, completed from `[providers.NAME]`.

    `provider` is the name of such a table, or a kind of provider; empty is `builtin`. A value
    that is given stands; an empty one is the table's.
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
        # Threat: a plane's configuration may name an address of its own, which would be sent
        # the key that the user keeps for another.
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
            f"api is {quote(settings.api)} for the provider {quote(settings.provider)}",
            hint="only openai has a choice: responses or chat",
        )


def open_provider(
    settings: ProviderSettings,
    variables: Mapping[str, str],
    *,
    read_script: ReadScript | None = None,
    transport_for: "TransportFor | None" = None,
) -> Provider:
    """The provider that the settings describe; nothing is sent yet, and no SDK is loaded.

    `variables` are those of the process: the keys, and `ANTHROPIC_BASE_URL` and
    `OPENAI_BASE_URL` where the settings name no address. The model of `scripted` is the path of
    its script. What `transport_for` makes for the key takes the place of the network; `builtin`
    and `scripted` use neither.
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
    # Other variables of the SDK (headers, organization) were set for the environment's address.
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
            "the scripted provider has no script", hint="name the file of the script as its model"
        )
    return ScriptedModel(parse_script(read_script(path), path), model=path)


# The key to a provider: read when it is opened, shown nowhere.

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
            return text  # No secret: keep a text that happens to hold it.
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
