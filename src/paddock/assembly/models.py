"""The model that answers for an agent: from configuration to a gateway."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paddock.assembly.project import Project
from paddock.errors import ConfigError, UsageError
from paddock.plane.admin import ModelChoice
from paddock.policy.settings import ProviderSettings
from paddock.providers.choice import choose_settings, open_provider
from paddock.providers.failures import wait_or_cancel
from paddock.providers.gateway import Gateway
from paddock.providers.ports import Provider
from paddock.text.show import quote

DEFAULT_PROVIDER: Final = "default"
"""The `[providers.NAME]` that answers where nobody chose; without it, the built-in model."""


def parse_model(text: str) -> ModelChoice:
    """`PROVIDER[:NAME]`, as `--model` takes it. Raises: UsageError."""
    provider, _, name = text.partition(":")
    if not provider:
        raise UsageError(
            f"{quote(text)} names no provider",
            where="--model",
            hint="such as builtin, anthropic:NAME, or a [providers.NAME] of your configuration",
        )
    return ModelChoice(provider=provider, name=name or None)


def chosen_model(project: Project, model: str | None) -> ProviderSettings:
    """Which model answers: the one that was asked for, else the configuration's.

    Raises: UsageError, ConfigError where there is no such provider.
    """
    known = project.policy.settings.providers
    if model is not None:
        choice = parse_model(model)
    elif project.admin is not None:
        choice = project.admin.model
    elif any(table.name == DEFAULT_PROVIDER for table in known):
        choice = ModelChoice(provider=DEFAULT_PROVIDER)
    else:
        choice = ModelChoice()
    return choose_settings(
        choice.provider, choice.name or "", choice.base_url or "", choice.api or "", known
    )


def open_model(settings: ProviderSettings, variables: Mapping[str, str]) -> Gateway:
    """A gateway to it; nothing is sent yet. `variables` are the process's: keys, addresses.

    Raises: ConfigError for settings that cannot be used, or a key that is not there.
    """
    return gateway_of(open_provider(settings, variables, read_script=read_script))


def gateway_of(provider: Provider) -> Gateway:
    """Retries in real time."""
    return Gateway(provider, wait=wait_or_cancel, draw=random.random)


def read_script(path: str) -> str:
    """The text of a script. Raises: ConfigError where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the script {quote(path)} cannot be read: {type(error).__name__}",
            hint="name a file of steps: scripted:FILE",
        ) from None
