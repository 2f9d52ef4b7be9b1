"""Exchanges are recorded on the wire and played through the same SDK."""

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.providers.choice import NO_KEY, open_provider
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.transport import PlayingTransport, RecordingTransport, parse_cassette
from tests.support.models import KEY, Listener, Waits, answered, asking, gateway, settings_for
from tests.support.wire_server import Fail, Speak, WireServer
from tests.support.wire_words import WIRES, calls, says

pytestmark = pytest.mark.loopback


def opened(wire: str, url: str, transport_for):
    return open_provider(settings_for(wire, url), {"TEST_KEY": KEY}, transport_for=transport_for)


def record(wire: str, server: WireServer, lines: list[str]):
    provider = opened(wire, server.url, lambda key: RecordingTransport(key, lines.append))
    try:
        first = gateway(provider, Waits()).route(asking())
        return first, provider.route(answered(first))
    finally:
        provider.close()


@pytest.mark.parametrize("wire", WIRES)
def test_what_was_recorded_is_played_through_the_same_sdk(wire):
    lines: list[str] = []
    with WireServer() as server:
        server.reply(
            Fail(529, "overloaded_error", f"busy, {KEY}", (("retry-after", "2"),)),
            Speak(calls(("list_files", {"path": "."}), text=("Look.",))),
            Speak(says("do", "ne"), streams=False),
        )
        recorded = record(wire, server, lines)

    player = PlayingTransport(parse_cassette("".join(lines), "tape.jsonl"))
    provider = opened(wire, "http://127.0.0.1:9", lambda _: player)
    waits, listener = Waits(), Listener()
    first = gateway(provider, waits).route(asking(), on_text=listener)
    second = provider.route(answered(first))
    provider.close()

    assert (first, second) == recorded
    assert waits.seconds == [2.25]
    assert listener.pieces == ["Look."]
    player.require_finished()


@pytest.mark.parametrize("wire", WIRES)
def test_a_cassette_holds_no_key_and_no_header_of_a_request(wire):
    lines: list[str] = []
    with WireServer() as server:
        server.reply(
            Fail(529, "overloaded_error", f"busy, {KEY}", (("retry-after", KEY),)),
            Speak(calls(("list_files", {"path": KEY}))),
            Speak(says(KEY)),
        )
        record(wire, server, lines)
        assert KEY in "".join(server.requests[0].headers.values())

    kept = "".join(lines)
    assert (KEY in kept, "authorization" in kept.lower(), "x-api-key" in kept) == (
        False,
        False,
        False,
    )
    assert "[key]" in kept


def test_a_text_that_says_what_is_sent_in_a_keys_place_is_recorded_and_played():
    said = f"a {NO_KEY} setup needs none"
    lines: list[str] = []
    with WireServer() as server:
        settings = replace(settings_for("chat", server.url), api_key_env="")
        server.reply(Speak(says(said)))
        provider = open_provider(
            settings, {}, transport_for=lambda key: RecordingTransport(key, lines.append)
        )
        recorded = provider.route(asking(said))
        provider.close()

    player = PlayingTransport(parse_cassette("".join(lines), "tape.jsonl"))
    provider = open_provider(settings, {}, transport_for=lambda _: player)
    played = provider.route(asking(said))
    provider.close()

    assert (played, played.text) == (recorded, said)
    player.require_finished()


def test_a_request_that_was_not_recorded_has_no_answer():
    provider = opened("chat", "http://127.0.0.1:9", lambda _: PlayingTransport(()))

    with pytest.raises(ProviderError, match="the cassette has no answer") as caught:
        gateway(provider).route(asking())
    provider.close()

    assert caught.value.kind is FailureKind.SCRIPT


def test_exchanges_left_over_are_an_error():
    line = '{"request": {"method": "POST", "path": "/x", "body": {}}, "response": {"status": 200}}'

    tape = PlayingTransport(parse_cassette(line, "tape.jsonl"))

    with pytest.raises(ConfigError, match="1 exchange of the cassette left over"):
        tape.require_finished()


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "{}",
        '{"request": {"method": "POST"}}',
        "[]",
        DEEP,
        f'{{"request": {{"body": {DEEP}}}, "response": {{"status": 200}}}}',
    ],
    ids=["cut", "empty", "no response", "array", "deep", "a deep body"],
)
def test_what_is_no_cassette_does_not_load(line):
    with pytest.raises(ConfigError) as caught:
        parse_cassette(f"\n{line}\n", "tape.jsonl")

    assert caught.value.where == "tape.jsonl, line 2"
