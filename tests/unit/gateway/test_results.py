"""A server's answer as a result."""

from paddock.gateway.gateway import RESULT_BYTES_MAX, output_of

KEPT: list[bytes] = []


def keep(content: bytes) -> str:
    KEPT.append(content)
    return "sha256:kept"


def text(said: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": said}]}


def test_the_value_of_a_credential_that_comes_back_is_what_stood_for_it():
    output = output_of(text("token=hunter2hunter2!"), [("hunter2hunter2", "paddock_x")], keep)

    assert output.content == "token=paddock_x!"
    assert "hunter2" not in str(output.details)


def test_what_fits_goes_on_as_it_was_said():
    output = output_of(text("a\tb\nc"), (), keep)

    assert output.content == "a\tb\nc"
    assert output.details == {"mcp": {"content": [{"type": "text", "text": "a\tb\nc"}]}}


def test_a_picture_that_is_too_large_is_kept_and_not_shown():
    blocks = [{"type": "image", "mimeType": "image/png", "data": "a" * 200_000}]

    output = output_of({"content": blocks}, (), keep)

    assert output.content.startswith(f"[TRUNCATED at {RESULT_BYTES_MAX} bytes")
    assert b"a" * 200_000 in KEPT[-1]


def test_structured_content_alone_is_shown_as_json():
    output = output_of({"content": [], "structuredContent": {"sum": 3}}, (), keep)

    assert output.content == '{"sum": 3}'
