"""Which provider answers: from configuration to something that can be asked."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.policy.settings import ProviderSettings
from paddock.providers.builtin import BuiltinModel
from paddock.providers.failures import missing_sdk
from paddock.providers.gateway import Provider
from paddock.providers.keys import Key, read_key
from paddock.providers.scripted import ScriptedModel, parse_script
from paddock.text.show import quote

if TYPE_CHECKING:
    import httpx2

PROVIDERS: Final = ("builtin", "scripted", "anthropic", "openai")
APIS: Final = ("responses", "chat")

ReadScript = Callable[[str], str]
TransportFor = Callable[[Key], "httpx2.AsyncBaseTransport"]


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
        table = ProviderSettings(name, provider=name)
    chosen = replace(
        table,
        provider=table.provider or name,
        model=model or table.model,
        base_url=base_url or table.base_url,
        api=api or table.api,
    )
    if base_url and base_url != table.base_url:
        # Threat: a plane's configuration names an address of its own, and would be sent
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
    its script. What `transport_for` makes for the key takes the place of the network; the first
    two kinds need none.
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
    # What else the environment holds was put there for the address it names.
    takes_ambient = not settings.base_url
    if find_spec(kind) is None:
        raise missing_sdk(kind)
    from paddock.providers.client import Server

    server = Server(address, transport, takes_ambient)
    if kind == "anthropic":
        from paddock.providers.anthropic import anthropic_provider

        return anthropic_provider(settings.model, key, server)
    from paddock.providers.openai import Api, openai_provider

    api = settings.api or ("chat" if address else "responses")
    return openai_provider(settings.model, key, server, cast("Api", api))


def _scripted(path: str, read_script: ReadScript | None) -> ScriptedModel:
    if read_script is None or not path:
        raise ConfigError(
            "the scripted provider has no script", hint="name the file of the script as its model"
        )
    return ScriptedModel(parse_script(read_script(path), path), model=path)
