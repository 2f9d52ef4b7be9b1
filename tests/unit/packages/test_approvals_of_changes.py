"""Approvals of changes to a plane: signed, for one digest, in time, within a scope, once."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.signing import make_key
from paddock.packages.signing import (
    ApprovalClaim,
    approval_problem,
    exact_scope,
    make_approval,
    paths_outside,
    public_half,
    read_approvals,
    write_approval,
)
from paddock.plane.layout import PlaneLayout
from paddock.values.decisions import PlaneKind
from tests.support.packages import KEY, NOW

DIGEST = "sha256:" + "ab" * 32
OTHER = make_key("other/operator", bytes(32))
KEYS = {public_half(KEY).key_id: public_half(KEY)}
PATHS = ("HOT/kernel/a.txt", "HOT/kernel/b.txt")
WO = "WO-" + "1" * 32
APPROVAL = make_approval(KEY, WO, DIGEST, ("HOT/kernel/**",), NOW + 60)
CLAIM = ApprovalClaim(DIGEST, PATHS, NOW)


@pytest.fixture
def layout(tmp_path: Path) -> PlaneLayout:
    directory = tmp_path / "HOT/registries/approvals"
    directory.mkdir(parents=True)
    os.chmod(directory, 0o700)
    return PlaneLayout(tmp_path, PlaneKind.BARE)


def test_it_allows_what_it_is_for():
    assert approval_problem(APPROVAL, CLAIM, KEYS, ()) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"claim": replace(CLAIM, digest="sha256:" + "00" * 32)}, "it is for"),
        ({"claim": replace(CLAIM, now=NOW + 60)}, "expired"),
        ({"claim": replace(CLAIM, now=NOW + 10_000)}, "expired"),
        ({"claim": replace(CLAIM, paths=(*PATHS, "HOT/scripts/x"))}, "scope"),
        ({"used": {WO}}, "used already"),
        ({"keys": {}}, "is not enrolled in this plane"),
        ({"keys": {public_half(KEY).key_id: public_half(OTHER)}}, "signature"),
        ({"approval": replace(APPROVAL, digest="sha256:" + "00" * 32)}, "signature"),
        ({"approval": replace(APPROVAL, scope=("**",))}, "signature"),
        ({"approval": replace(APPROVAL, expires="2099-01-01T00:00:00Z")}, "signature"),
        ({"approval": replace(APPROVAL, wo_id="WO-" + "2" * 32)}, "signature"),
        ({"approval": replace(APPROVAL, key_id=public_half(OTHER).key_id)}, "is not enrolled in this plane"),
        ({"approval": replace(APPROVAL, signature="")}, "signature"),
    ],
)
def test_it_allows_nothing_else(change, said):
    given = {"approval": APPROVAL, "claim": CLAIM, "keys": KEYS, "used": (), **change}
    assert said in approval_problem(**given)


def test_the_signature_covers_compact_json_of_the_other_fields_in_their_order():
    text = json.dumps(
        {
            "wo_id": APPROVAL.wo_id,
            "digest": APPROVAL.digest,
            "scope": list(APPROVAL.scope),
            "expires": APPROVAL.expires,
            "key_id": APPROVAL.key_id,
        },
        separators=(",", ":"),
    )
    assert public_half(KEY).verifies(text.encode(), APPROVAL.signature)
    assert list(APPROVAL.as_json()) == [
        "wo_id",
        "digest",
        "scope",
        "expires",
        "key_id",
        "signature",
    ]
    assert APPROVAL.expires == "2027-01-15T08:01:00Z"


@pytest.mark.parametrize(
    ("scope", "outside"),
    [
        (("HOT/kernel/**",), ()),
        (("HOT/kernel/",), ()),
        (("HOT/kernel/a.txt",), ("HOT/kernel/b.txt",)),
        (("hot/kernel/**",), PATHS),
        (("HOT/kernel/?.txt",), ()),
        (("a.txt", "HOT/kernel/b.txt"), ()),
        (("HOT/kernel",), ()),
        (("HOT/ker",), PATHS),
    ],
)
def test_the_scope_is_compared_as_written(scope, outside):
    approval = make_approval(KEY, WO, DIGEST, scope, NOW + 60)
    assert paths_outside(approval, PATHS) == outside


@pytest.mark.parametrize("name", ["HOT/a*b", "HOT/a?b", "HOT/[a]", "HOT/#x", "HOT/a]", "HOT/a b "])
def test_an_exact_scope_matches_its_path_alone(name):
    approval = make_approval(KEY, WO, DIGEST, exact_scope([name]), NOW + 60)
    assert paths_outside(approval, [name]) == ()
    assert paths_outside(approval, ["HOT/axb", "HOT/a"]) == ("HOT/axb", "HOT/a")


@pytest.mark.parametrize("scope", [(), ("",), ("!HOT/x",), ("a//b",), ("HOT/../x",), ("[",)])
def test_a_scope_that_means_nothing_is_not_made(scope):
    with pytest.raises(UsageError):
        make_approval(KEY, WO, DIGEST, scope, NOW + 60)


def test_a_scope_that_somebody_put_into_a_file_and_means_nothing_covers_nothing():
    assert paths_outside(replace(APPROVAL, scope=("!**",)), PATHS) == PATHS


def test_no_approval_expires_at_no_date():
    with pytest.raises(UsageError):
        make_approval(KEY, WO, DIGEST, ("**",), 1e30)


def test_the_longest_scope_that_two_manifests_come_to_is_read_back(layout):
    paths = tuple(f"{count:05}{'*' * 150}/{'[' * 100}" for count in range(20_000))
    approval = replace(APPROVAL, scope=exact_scope(paths))

    path = write_approval(layout, approval)

    assert 15_000_000 < path.stat().st_size < limits.approval_file_bytes_max
    assert read_approvals(layout) == (approval,)


def test_the_scope_of_many_files_is_made_read_and_covers_them(layout):
    paths = tuple(f"HO1/x/{'d' * 120}/{'n' * 90}-{count:05}.txt" for count in range(3_000))
    approval = make_approval(KEY, WO, DIGEST, exact_scope(paths), NOW + 60)
    write_approval(layout, approval)
    assert read_approvals(layout) == (approval,)
    assert paths_outside(approval, (*paths, "HO1/x/other")) == ("HO1/x/other",)


def test_an_approval_that_no_reader_would_take_is_not_made(layout):
    scope = tuple(f"HOT/{count}/{'x' * 4_000}" for count in range(4_100))
    with pytest.raises(UsageError, match="more than 16000000: its scope has 4100 patterns") as caught:
        make_approval(KEY, WO, DIGEST, scope, NOW + 60)
    assert caught.value.where == "--scope"


def test_it_is_read_as_it_was_written(layout):
    path = write_approval(layout, APPROVAL)

    assert path == layout.registries / "approvals" / f"{WO}.json"
    assert read_approvals(layout) == (APPROVAL,)


def test_an_approval_is_never_written_over(layout):
    write_approval(layout, APPROVAL)
    with pytest.raises(HostError):
        write_approval(layout, replace(APPROVAL, digest="sha256:" + "00" * 32))
    assert read_approvals(layout) == (APPROVAL,)


def test_the_inbox_of_calls_is_no_approval_of_changes(layout):
    (layout.registries / "approvals/calls").mkdir()
    (layout.registries / "approvals/calls/APR-1.json").write_text("{}")
    assert read_approvals(layout) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"wo_id": "WO-" + "2" * 32},
        {"digest": "ab" * 32},
        {"key_id": "x"},
        {"expires": "tomorrow"},
        {"expires": "2027-01-15T08:01:00+00:00"},
        {"expires": "2027-02-30T08:01:00Z"},
        {"scope": "**"},
        {"scope": ["a", "a"]},
        {"more": 1},
    ],
)
def test_a_file_that_says_something_else_does_not_load(fields, layout):
    path = write_approval(layout, APPROVAL)
    path.write_text(json.dumps(APPROVAL.as_json() | fields))
    with pytest.raises(ConfigError):
        read_approvals(layout)


def test_a_copy_under_another_name_does_not_load(layout):
    path = write_approval(layout, APPROVAL)
    path.with_name("WO-" + "2" * 32 + ".json").write_bytes(path.read_bytes())
    with pytest.raises(ConfigError):
        read_approvals(layout)


def test_approvals_where_others_can_write_do_not_count(layout):
    write_approval(layout, APPROVAL)
    os.chmod(layout.registries / "approvals", 0o777)
    with pytest.raises(ConfigError):
        read_approvals(layout)
