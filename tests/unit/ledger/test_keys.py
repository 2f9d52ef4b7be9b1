import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from paddock.errors import ConfigError, HostError
from paddock.ledger.signing import create_key, load_key, make_key


def fixed(size):
    return bytes(range(size))


def test_a_stored_key_comes_back_and_only_its_owner_can_read_it(tmp_path):
    path = os.path.join(tmp_path, "key")

    made = create_key(path, "paddock.test/x", fixed)

    assert load_key(path) == made
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["key"]


def test_a_signature_verifies_under_the_public_half():
    key = make_key("paddock.test/x", fixed(32))

    Ed25519PublicKey.from_public_bytes(key.verifier.public).verify(key.sign(b"head"), b"head")


def test_the_seed_is_never_shown():
    key = make_key("paddock.test/x", b"s" * 32)

    assert "sss" not in repr(key)
    assert "c3Nz" not in f"{key}"


def test_an_existing_file_is_never_replaced(tmp_path):
    path = tmp_path / "key"
    path.write_text("mine")

    with pytest.raises(HostError, match="already exists"):
        create_key(os.fspath(path), "x", fixed)

    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["key"]


def test_a_name_that_no_key_text_can_hold_is_refused(tmp_path):
    for name in ("", "a b", "a+b", "ä", "a\n"):
        with pytest.raises(ConfigError, match="invalid key name"):
            create_key(os.path.join(tmp_path, "key"), name, fixed)
    assert os.listdir(tmp_path) == []


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = os.path.join(tmp_path, "key")
    create_key(path, "x", fixed)
    os.chmod(path, 0o640)

    with pytest.raises(ConfigError, match="only its owner"):
        load_key(path)


def test_a_link_is_not_followed_to_a_key(tmp_path):
    create_key(os.path.join(tmp_path, "key"), "x", fixed)
    os.symlink("key", tmp_path / "link")

    with pytest.raises(HostError):
        load_key(os.path.join(tmp_path, "link"))


@pytest.mark.parametrize(
    "edit", [lambda t: t[:-5], lambda t: t.replace("+x+", "+y+"), lambda _: ""]
)
def test_a_file_that_is_no_key_is_refused(tmp_path, edit):
    path = tmp_path / "key"
    create_key(os.fspath(path), "x", fixed)
    path.write_text(edit(path.read_text()))

    with pytest.raises(ConfigError, match="not an Ed25519 key"):
        load_key(os.fspath(path))


def test_a_key_that_is_not_there_cannot_be_read(tmp_path):
    with pytest.raises(HostError, match="cannot be read"):
        load_key(os.path.join(tmp_path, "key"))
