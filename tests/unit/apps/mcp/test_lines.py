"""A line is a message, or says why it is none and who hears of it."""

import json

import pytest
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from paddock.apps.mcp.stdio import Messages, Unusable, parse_line, read_content

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
PINGED = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
CALL = '{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"arguments": %s}}'
HALF_PAIR = "half of a surrogate pair, unexpected end of hex escape at line 1 column"


def error(code: int, why: str, request_id: str | int | None = None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why))


def refused(code: int, why: str, request_id: str | int | None = None) -> Unusable:
    return Unusable(why, error(code, why, request_id))


def read(*pieces: bytes, line_bytes_max: int = 1_000) -> list[object]:
    messages = Messages(line_bytes_max)
    found = [message for piece in pieces for message in messages.feed(piece)]
    return [*found, *messages.end()]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": 1, "method": "ping"}, PINGED),
        ({"id": "1", "method": "ping"}, JSONRPCRequest(jsonrpc="2.0", id="1", method="ping")),
        (
            {"method": "notifications/x", "params": {"a": [1]}},
            JSONRPCNotification(jsonrpc="2.0", method="notifications/x", params={"a": [1]}),
        ),
        ({"id": 1, "result": {}}, JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ({"id": 1, "result": {}, "error": None}, JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ({"id": 1, "error": {"code": -1, "message": "no"}}, error(-1, "no", 1)),
        ({"id": None, "error": {"code": -1, "message": "no"}}, error(-1, "no")),
    ],
)
def test_what_the_protocol_knows_is_read(fields, message):
    assert parse_line(json.dumps({"jsonrpc": "2.0", **fields}).encode()) == message


@pytest.mark.parametrize("line", [b"", b"\r", b" \t "])
def test_a_blank_line_is_nothing(line):
    assert parse_line(line) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"method": "caf\xe9"}', "not UTF-8 at byte 15"),
        (b'{"method": "\xed\xa0\x80"}', "not UTF-8 at byte 12"),
        (b"{", "not valid JSON: EOF while parsing an object at line 1 column 1"),
        (PING + b"\x00", "not valid JSON: trailing characters at line 1 column 46"),
        (
            b"[" * 100_000,
            "not valid JSON: recursion limit exceeded at line 1 column 202",
        ),
    ],
)
def test_what_is_no_json_is_answered_without_an_id(line, why):
    assert parse_line(line) == refused(-32700, why)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[" + PING + b"]", "batches are not supported: send one message per line"),
        (b"[]", "batches are not supported: send one message per line"),
        (b"null", "a message must be an object, not null"),
        (b'"\\ud83d"', f"the message cannot be read: {HALF_PAIR} 8"),
        (b"{}", "'method', 'result' and 'error' are all missing"),
    ],
)
def test_json_that_is_no_message_is_answered_without_an_id(line, why):
    assert parse_line(line) == refused(-32600, why)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (r'{"content": "half \ud83d"}', f"{HALF_PAIR} 103"),
        (f'{{"offset": {"1" * 4_301}}}', "number out of range at line 1 column 4391"),
        ("[" * 200 + "]" * 200, "recursion limit exceeded at line 1 column 278"),
    ],
    ids=["half of a pair", "a long integer", "nesting"],
)
def test_a_request_that_cannot_be_read_is_answered_by_its_id(arguments, why):
    line = (CALL % arguments).encode()
    assert parse_line(line) == refused(-32600, f"the message cannot be read: {why}", "a")


TWICE = "is given twice: give every name once"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ('{"path": "a", "path": "b"}', "path"),
        ('{"path": "a", "\\u0070ath": "a"}', "path"),
        ('{"path": [{"a": 1, "b": 2, "a": 3}]}', "a"),
        ('{"id": 1, "id": 2}', "id"),
    ],
    ids=["arguments", "escaped", "inside", "id"],
)
def test_a_request_in_which_a_name_is_given_twice_is_answered_by_its_id(arguments, name):
    assert parse_line((CALL % arguments).encode()) == refused(-32600, f"'{name}' {TWICE}", "a")


def test_a_name_may_stand_in_several_objects():
    line = (CALL % '{"id": 1, "a": [{"b": 1}, {"b": {"b": 2}}], "n": 1e999}').encode()
    assert isinstance(parse_line(line), JSONRPCRequest)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ('"id": 1, "id": 2, "method": "ping"', refused(-32600, f"'id' {TWICE}")),
        ('"id": 1, "method": "a", "method": "b"', refused(-32600, f"'method' {TWICE}", 1)),
        ('"method": "a", "method": "b"', Unusable(f"notification: 'method' {TWICE}")),
        (
            '"id": 3, "result": {"action": "decline", "action": "accept"}',
            Unusable(f"answer: 'action' {TWICE}", ends=error(-32600, f"'action' {TWICE}", 3)),
        ),
    ],
    ids=["two ids", "request", "notification", "answer"],
)
def test_a_name_that_is_given_twice_is_told_to_who_asked_and_to_what_waits(fields, found):
    assert parse_line(f'{{"jsonrpc": "2.0", {fields}}}'.encode()) == found


@pytest.mark.parametrize("content", [b"[]", b"1", PING, b'[{"a": 1, "a": 2}]'])
def test_content_in_which_nothing_is_given_twice_has_no_answer_here(content):
    assert read_content(content) == json.loads(content)


@pytest.mark.parametrize(
    ("content", "request_id"),
    [
        (b'{"id": 1, "method": "a", "params": {"b": 1, "b": 2}}', 1),
        (b'{"id": 1, "id": 2, "params": {"b": 1, "b": 2}}', None),
        (b'{"method": "a", "params": {"b": 1, "b": 2}}', None),
        (b'{"id": 1, "result": {"b": 1, "b": 2}}', None),
    ],
    ids=["request", "two ids", "notification", "answer"],
)
def test_content_in_which_a_name_is_given_twice_is_answered(content, request_id):
    answer = read_content(content)
    assert (answer.id, answer.error.code) == (request_id, -32600)
    assert answer.error.message.endswith(TWICE)


GIVEN_TWICE = '{"jsonrpc": "2.0", "id": 1, "method": "a", "params": {"b": %s, "b": 2}}'


@pytest.mark.parametrize(
    ("content", "request_id", "code"),
    [
        (b"", None, -32700),
        (b"{", None, -32700),
        (b"\xef\xbb\xbf" + (GIVEN_TWICE % "1").encode(), None, -32700),
        ((GIVEN_TWICE % "1").encode("utf-16"), None, -32700),
        ((GIVEN_TWICE % "1").encode("utf-16-le"), None, -32700),
        ((GIVEN_TWICE % r'"\ud800"').encode(), 1, -32600),
        ((GIVEN_TWICE % ("[" * 500 + "]" * 500)).encode(), 1, -32600),
        ((GIVEN_TWICE % ("[" * 100_000 + "]" * 100_000)).encode(), None, -32700),
    ],
    ids=["empty", "half", "mark", "utf-16", "utf-16 bare", "half of a pair", "deep", "deeper"],
)
def test_content_that_is_not_read_here_is_read_by_nobody_else(content, request_id, code):
    answer = read_content(content)
    assert (answer.id, answer.error.code) == (request_id, code)


@pytest.mark.parametrize("value", ["1.5", "true", "null", "[]", "{}"])
def test_a_request_whose_id_is_none_is_no_notification(value):
    line = f'{{"jsonrpc": "2.0", "id": {value}, "method": "ping"}}'.encode()
    why = f"'id' must be a string or an integer, not '{value}'"
    assert parse_line(line) == refused(-32600, why)


@pytest.mark.parametrize(
    "value", [r'"\ud800"', "1" * 4_301], ids=["half of a pair", "a long integer"]
)
def test_an_id_that_cannot_be_sent_back_is_not(value):
    found = parse_line(f'{{"jsonrpc": "2.0", "id": {value}, "method": "ping"}}'.encode())
    assert isinstance(found, Unusable)
    assert found == refused(-32600, found.why)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"jsonrpc": "1.0", "method": "ping"}, """'jsonrpc' must be "2.0", not '"1.0"'"""),
        ({"method": "ping"}, """'jsonrpc' must be "2.0", but is missing"""),
        ({"jsonrpc": "2.0", "method": 5}, "'method' must be a string, not '5'"),
        (
            {"jsonrpc": "2.0", "method": "ping", "params": ["x" * 300]},
            f"'params' must be an object, not '[\"{'x' * 198}' (and 104 more characters)",
        ),
    ],
)
def test_of_another_shape_a_request_is_answered_with_why_and_a_notification_is_not(fields, why):
    answered = parse_line(json.dumps({"id": 8, **fields}).encode())
    assert answered == refused(-32600, why, 8)
    assert parse_line(json.dumps(fields).encode()) == Unusable(f"notification: {why}")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"result": None}, "'result' must be an object, not 'null'"),
        ({"result": "accept"}, """'result' must be an object, not '"accept"'"""),
        (
            {"error": {"code": "a"}},
            """'error' must be an object with a code and a message, not '{"code": "a"}'""",
        ),
        (
            {"result": {}, "error": {"code": 1, "message": "no"}},
            "an answer must have 'result' or 'error', not both",
        ),
    ],
)
def test_an_answer_of_another_shape_ends_what_waits_for_it_and_is_not_answered(fields, why):
    line = json.dumps({"jsonrpc": "2.0", "id": 3, **fields}).encode()
    assert parse_line(line) == Unusable(f"answer: {why}", ends=error(-32600, why, 3))


def test_what_may_be_an_answer_is_both_answered_and_the_end_of_what_waits():
    why = "'method', 'result' and 'error' are all missing"
    ended = error(-32600, why, 3)
    assert parse_line(b'{"jsonrpc": "2.0", "id": 3}') == Unusable(
        f"answer: {why}", answer=ended, ends=ended
    )


def test_a_line_is_whole_however_it_comes():
    line = PING + b"\r\n"
    assert read(*(line[at : at + 1] for at in range(len(line)))) == [PINGED]
    assert read(line * 3) == [PINGED] * 3
    assert read(line + PING[:9], PING[9:] + b"\n" + line) == [PINGED] * 3


def test_the_last_line_needs_no_end():
    assert read(PING) == [PINGED]
    assert read(PING + b"\n" + PING) == [PINGED, PINGED]


def test_a_line_over_the_limit_is_read_past_and_the_next_one_is_read():
    size = len(PING)
    too_large = refused(-32600, f"message too large: over {size} bytes")
    padded = PING + b" " * 3
    assert read(PING + b"\n", line_bytes_max=size) == [PINGED]
    assert read(padded + b"\n" + PING, line_bytes_max=size) == [too_large, PINGED]
    pieces = (PING, b" ", PING, PING, b"\n", PING, b"\n")
    assert read(*pieces, line_bytes_max=size) == [too_large, PINGED]
    assert read(padded, line_bytes_max=size) == [too_large]
