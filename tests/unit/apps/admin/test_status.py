"""The status line always says what is held; the badge says what is not."""

import pytest
from msgspec.structs import replace

from paddock.apps.admin.show import Sandboxed, StatusLine, status_text
from paddock.sandbox.values import Enforcement

STRICT = StatusLine(
    agent="admin",
    profile="admin",
    provider="builtin",
    model="paddock-rules-1",
    gate_is_open=False,
    sandbox=Sandboxed(Enforcement.FULL, "stage"),
    tokens=1_234,
    tokens_left=998_766,
)


@pytest.mark.parametrize("width", [*range(1, 140), None])
def test_every_form_fits_and_says_what_is_held_first_of_all(width):
    text = status_text(STRICT, width)
    assert width is None or len(text) <= width
    if width is None or width >= 30:
        assert "dual gate closed" in text
        assert "sandbox full"[: 30 if width is None else width] in text


def test_the_longest_form_says_everything():
    assert status_text(STRICT) == (
        "agent admin  profile admin  model builtin:paddock-rules-1  dual gate closed  sandbox full  "
        "tokens 1,234 (998,766 left)  cost none"
    )
    assert "(" not in status_text(replace(STRICT, tokens_left=None))


def test_on_eighty_columns_a_long_name_of_a_model_gives_way_first():
    vendor = replace(STRICT, provider="anthropic", model="claude-opus-5-5", tokens=12_345)
    assert status_text(vendor, 78) == (
        "admin/admin  claude-opus-…  dual gate closed  sandbox full  tokens 12k  cost ?"
    )
    partial = replace(vendor, sandbox=Sandboxed(Enforcement.PARTIAL, "landlock"), tokens=1_234_567)
    assert status_text(partial, 78) == (
        "admin/admin  claude…  dual gate closed  sandbox partial  tokens 1,234k  cost ?"
    )


@pytest.mark.parametrize(
    ("gate", "sandbox", "badges"),
    [
        (False, Sandboxed(Enforcement.FULL, "stage"), ()),
        (True, Sandboxed(Enforcement.FULL, "stage"), ("DEVELOPMENT TOOLS ARE ON",)),
        (False, Sandboxed(Enforcement.PARTIAL, "landlock"), ("SANDBOX PARTIAL: held by landlock",)),
        (False, Sandboxed(Enforcement.NONE, "none"), ("SANDBOX NONE: commands run unconfined",)),
        (False, Sandboxed(Enforcement.NONE, refused=True), ("SANDBOX NONE: commands are refused",)),
        (
            True,
            Sandboxed(Enforcement.NONE, "none"),
            ("DEVELOPMENT TOOLS ARE ON", "SANDBOX NONE: commands run unconfined"),
        ),
    ],
)
def test_each_thing_that_is_relaxed_has_a_badge(gate, sandbox, badges):
    assert replace(STRICT, gate_is_open=gate, sandbox=sandbox).badges == badges


def test_a_plane_that_was_made_with_dev_wears_it_first():
    assert replace(STRICT, made_with_dev=True, gate_is_open=True).badges == (
        "DEV PLANE",
        "DEVELOPMENT TOOLS ARE ON",
    )


def test_money_is_nothing_or_unknown_and_never_invented():
    assert STRICT.cost == "none"
    assert replace(STRICT, provider="anthropic").cost == "unknown"
    assert replace(STRICT, provider="anthropic", tokens=0).cost == "none"
