"""From configuration to a provider, with its key and nothing else."""

import subprocess
import sys

import pytest

from paddock.errors import ConfigError, HostError
from paddock.policy.settings import ProviderSettings
from paddock.providers.builtin import BuiltinModel
from paddock.providers.choice import NO_KEY, Key, choose_settings, open_provider, read_key
from tests.support.models import asking

KEPT = ProviderSettings("house", "openai", "m-1", "http://127.0.0.1:1/v1", "chat", "HOUSE_KEY")


def test_without_a_word_the_built_in_model_answers():
    chosen = choose_settings("", "", "", "", ())

    assert chosen == ProviderSettings("builtin", "builtin")
    assert isinstance(open_provider(chosen, {}), BuiltinModel)


def test_a_named_table_is_completed_by_what_the_agent_says():
    assert choose_settings("house", "", "", "", (KEPT,)) == KEPT
    assert choose_settings("house", "m-2", "", "responses", (KEPT,)) == ProviderSettings(
        "house", "openai", "m-2", KEPT.base_url, "responses", "HOUSE_KEY"
    )


def test_an_address_of_the_agents_own_does_not_get_the_tables_key():
    chosen = choose_settings("house", "", "http://127.0.0.1:9/v1", "", (KEPT,))

    assert (chosen.base_url, chosen.api_key_env) == ("http://127.0.0.1:9/v1", "")


@pytest.mark.parametrize(
    ("provider", "api", "message"),
    [
        ("gemini", "", "unknown provider 'gemini'"),
        ("anthropic", "chat", "invalid api 'chat'"),
        ("openai", "assistants", "invalid api 'assistants'"),
    ],
)
def test_what_nobody_knows_is_refused(provider, api, message):
    with pytest.raises(ConfigError, match=message):
        choose_settings(provider, "", "", api, ())


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (ProviderSettings("anthropic", "anthropic"), "anthropic"),
        (ProviderSettings("openai", "openai"), "openai"),
        (KEPT, "openai"),
    ],
)
def test_a_provider_is_made_without_loading_its_sdk(settings, name):
    keys = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "HOUSE_KEY": "h"}

    provider = open_provider(settings, keys)
    provider.close()

    assert provider.name == name
    assert provider.model


def test_importing_the_gateway_loads_no_sdk():
    program = (
        "import sys, paddock\n"
        "import paddock.providers.gateway, paddock.providers.choice, paddock.providers.anthropic\n"
        "import paddock.providers.openai\n"
        "heavy = {'anthropic', 'openai', 'httpx2', 'pydantic', 'jsonschema', 'referencing'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_is_read_by_whoever_may_read_files():
    settings = ProviderSettings("demo", "scripted", "demo.jsonl")

    provider = open_provider(settings, {}, read_script={"demo.jsonl": '{"text": "hi"}'}.get)

    assert provider.route(asking()).text == "hi"
    with pytest.raises(ConfigError, match="has no script"):
        open_provider(settings, {})


# --- keys ------------------------------------------------------------------------


def key_of(variables=None, **settings) -> str:
    given = {"name": "x", "provider": "openai", **settings}
    return read_key(ProviderSettings(**given), variables or {}).reveal()


def test_the_key_comes_from_where_the_settings_say():
    variables = {"MINE": "k-mine", "OPENAI_API_KEY": "k-usual"}

    assert key_of(variables) == "k-usual"
    assert key_of(variables, api_key_env="MINE") == "k-mine"
    assert key_of(variables, api_key_command=("printf", "k-printed\\n")) == "k-printed"


def test_the_usual_key_is_not_sent_to_an_address_of_ones_own():
    variables = {"OPENAI_API_KEY": "k-usual"}

    assert key_of(variables, base_url="http://127.0.0.1:1/v1") == NO_KEY
    assert key_of(variables, base_url="http://127.0.0.1:1/v1", api_key_env="OPENAI_API_KEY") == (
        "k-usual"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "'OPENAI_API_KEY' is not set"),
        ({"api_key_env": "MINE"}, "'MINE' is not set"),
        ({"api_key_command": ("sh", "-c", "echo secret; exit 3")}, r"printed no key \(exit 3\)"),
        ({"api_key_command": ("true",)}, r"printed no key \(exit 0\)"),
        ({"api_key_command": ("/no/such/program",)}, "FileNotFoundError"),
        ({"api_key_command": ("printf", "secret\\nsecret")}, "contains spaces or characters"),
    ],
)
def test_no_key_is_said_without_showing_anything(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        key_of({"OPENAI_API_KEY": "  "}, **settings)

    assert "secret" not in str(caught.value)


def test_a_key_shows_itself_nowhere():
    key = Key("sk-secret")

    assert "secret" not in f"{key} {key!r}"
    assert key.scrub("a sk-secret b sk-secret") == "a [key] b [key]"
    assert Key("").scrub("ab") == "ab"


def test_what_is_sent_in_a_keys_place_is_no_secret():
    assert Key(NO_KEY).scrub(f"a {NO_KEY} setup") == f"a {NO_KEY} setup"


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_without_its_package_a_provider_says_what_to_install(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, kind, None)
    settings = ProviderSettings(kind, kind, "m-1")
    with pytest.raises(HostError) as refused:
        open_provider(settings, {f"{kind.upper()}_API_KEY": "k"})
    assert refused.value.hint == f"pip install 'paddock[{kind}]'"
    assert isinstance(open_provider(ProviderSettings("builtin", "builtin"), {}), BuiltinModel)
