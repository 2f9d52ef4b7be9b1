"""Operator keys, and signatures of packages."""

import base64
import json
import os
import stat
from pathlib import Path

import pytest

from paddock.errors import ConfigError, IntegrityError
from paddock.ledger.keys import make_key
from paddock.packages.signing import (
    PublicKey,
    Signature,
    enrol_key,
    find_operator_key,
    make_operator_key,
    public_half,
    read_keys,
    read_signature,
    sign_bytes,
    sign_digest,
    verify_signature,
    write_signature,
)
from paddock.plane.environment import operator_key_path, read_environment
from paddock.plane.layout import PlaneLayout
from paddock.values.decisions import PlaneKind
from tests.support.packages import KEY

OTHER = make_key("other/operator", bytes(32))
DIGEST = "sha256:" + "ab" * 32
# RFC 8032, 7.1, test 2.
RFC_SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
RFC_SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


@pytest.fixture
def environment(tmp_path: Path):
    return read_environment({"HOME": str(tmp_path / "home")})


@pytest.fixture
def layout(tmp_path: Path) -> PlaneLayout:
    keys = tmp_path / "plane/HOT/registries/keys"
    keys.mkdir(parents=True)
    for directory in (keys, *list(keys.parents)[:3]):
        os.chmod(directory, 0o700)
    return PlaneLayout(tmp_path / "plane", PlaneKind.BARE)


def test_signatures_are_those_of_the_standard():
    key = make_key("rfc", RFC_SEED)

    assert base64.b64decode(sign_bytes(key, b"\x72")) == RFC_SIGNATURE
    assert public_half(key).verifies(b"\x72", base64.b64encode(RFC_SIGNATURE).decode())
    assert not public_half(key).verifies(b"\x73", base64.b64encode(RFC_SIGNATURE).decode())


def test_the_operators_key_is_the_users_alone(environment):
    assert find_operator_key(environment) is None
    key = make_operator_key(environment)
    path = operator_key_path(environment)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert environment.config_home in path.parents
    assert make_operator_key(environment) == find_operator_key(environment) == key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_not_used(mode, environment):
    make_operator_key(environment)
    os.chmod(operator_key_path(environment), mode)

    with pytest.raises(ConfigError):
        find_operator_key(environment)
    with pytest.raises(ConfigError):
        make_operator_key(environment)


def test_a_damaged_key_is_not_replaced(environment):
    make_operator_key(environment)
    path = operator_key_path(environment)
    path.write_bytes(b"nonsense")

    with pytest.raises(ConfigError):
        make_operator_key(environment)
    assert path.read_bytes() == b"nonsense"


def test_a_public_key_stands_in_the_plane_and_the_seed_does_not(layout):
    public = public_half(KEY)

    assert enrol_key(layout, public) is True
    assert enrol_key(layout, public) is False
    assert read_keys(layout) == {public.key_id: public}
    content = (layout.registries / "keys" / f"{public.key_id}.json").read_bytes()
    assert base64.b64encode(KEY.seed) not in content
    assert KEY.seed.hex().encode() not in content
    assert json.loads(content) == {
        "key_id": public.key_id,
        "algorithm": "Ed25519",
        "public_key": base64.b64encode(public.public).decode(),
    }


def spoil(layout: PlaneLayout, **fields) -> None:
    enrol_key(layout, public_half(KEY))
    path = layout.registries / "keys" / f"{public_half(KEY).key_id}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"public_key": base64.b64encode(OTHER.verifier.public).decode()},
        {"public_key": ""},
        {"public_key": "AAAA"},
        {"public_key": base64.b64encode(KEY.verifier.public).decode() + "\n"},
        {"algorithm": "none"},
        {"key_id": "0" * 32},
        {"more": 1},
    ],
)
def test_a_key_file_that_says_something_else_does_not_load(fields, layout):
    spoil(layout, **fields)
    with pytest.raises(ConfigError):
        read_keys(layout)


def test_a_key_under_another_name_does_not_load(layout):
    enrol_key(layout, public_half(KEY))
    directory = layout.registries / "keys"
    next(directory.iterdir()).rename(directory / f"{'0' * 32}.json")
    with pytest.raises(ConfigError):
        read_keys(layout)


def test_a_stranger_among_the_keys_does_not_load_and_a_draft_of_ours_is_passed_over(layout):
    directory = layout.registries / "keys"
    (directory / f".paddock-{'0' * 32}.tmp").write_bytes(b"half")
    assert read_keys(layout) == {}
    (directory / "note.txt").write_bytes(b"x")
    with pytest.raises(ConfigError):
        read_keys(layout)


def test_a_linked_key_does_not_load(layout, tmp_path: Path):
    enrol_key(layout, public_half(KEY))
    path = next((layout.registries / "keys").iterdir())
    path.rename(tmp_path / "elsewhere.json")
    os.symlink(tmp_path / "elsewhere.json", path)
    with pytest.raises(ConfigError):
        read_keys(layout)


def test_keys_where_others_can_write_do_not_count(layout):
    enrol_key(layout, public_half(KEY))
    os.chmod(layout.registries / "keys", 0o777)
    with pytest.raises(ConfigError):
        read_keys(layout)


KEYS = {public_half(KEY).key_id: public_half(KEY)}


def test_a_signature_holds_for_its_digest_and_key():
    verify_signature(sign_digest(KEY, DIGEST), DIGEST, KEYS)


@pytest.mark.parametrize(
    ("signature", "digest", "keys"),
    [
        (sign_digest(KEY, DIGEST), "sha256:" + "00" * 32, KEYS),
        (sign_digest(OTHER, DIGEST), DIGEST, KEYS),
        (sign_digest(KEY, DIGEST), DIGEST, {}),
        (
            Signature(DIGEST, public_half(KEY).key_id, sign_digest(OTHER, DIGEST).signature),
            DIGEST,
            KEYS,
        ),
        (Signature(DIGEST, public_half(KEY).key_id, ""), DIGEST, KEYS),
        (Signature(DIGEST, public_half(KEY).key_id, "A" * 88), DIGEST, KEYS),
        (
            Signature(DIGEST, public_half(KEY).key_id, sign_digest(KEY, DIGEST).signature + "="),
            DIGEST,
            KEYS,
        ),
        (
            Signature(DIGEST, public_half(OTHER).key_id, sign_digest(KEY, DIGEST).signature),
            DIGEST,
            {public_half(OTHER).key_id: public_half(OTHER)},
        ),
        (
            Signature(
                "sha256:" + "00" * 32, public_half(KEY).key_id, sign_digest(KEY, DIGEST).signature
            ),
            "sha256:" + "00" * 32,
            KEYS,
        ),
    ],
)
def test_no_other_signature_holds(signature, digest, keys):
    with pytest.raises(IntegrityError):
        verify_signature(signature, digest, keys)


def test_a_key_of_small_order_vouches_for_nothing():
    # The neutral element: without a check of the standard's it would verify anything.
    weak = PublicKey(b"\x01" + bytes(31))
    assert not weak.verifies(b"anything", base64.b64encode(bytes(63) + b"\x80").decode())


def test_the_signature_lies_beside_the_archive(tmp_path: Path):
    archive = tmp_path / "PKG-A.tar.gz"
    assert read_signature(archive) is None
    path = write_signature(archive, sign_digest(KEY, DIGEST))

    assert path == tmp_path / "PKG-A.tar.gz.sig"
    assert read_signature(archive) == sign_digest(KEY, DIGEST)
    assert list(json.loads(path.read_text())) == ["digest", "key_id", "signature"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"digest": "x"}', '{"digest":"x","key_id":"y","signature":"z","a":1}']
)
def test_a_signature_file_that_is_none_does_not_load(text, tmp_path: Path):
    (tmp_path / "a.sig").write_text(text)
    with pytest.raises(ConfigError):
        read_signature(tmp_path / "a")
