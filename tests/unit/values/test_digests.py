"""Digests as text: the bytes that are digested are a promise to whoever holds one."""

import hashlib

import pytest

from paddock.values.entries import digest_of, digest_of_json


def test_a_digest_names_its_function():
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of(b"") == f"sha256:{empty}"


def test_a_value_has_one_form_whatever_the_order_of_its_members():
    form = b'{"a":[1,null,true],"b":"\\u00e9"}'
    expected = "sha256:" + hashlib.sha256(form).hexdigest()
    values = [{"b": "é", "a": [1, None, True]}, {"a": [1, None, True], "b": "é"}]
    assert [digest_of_json(value) for value in values] == [expected, expected]


def test_what_is_no_json_has_no_digest():
    with pytest.raises(TypeError):
        digest_of_json(b"bytes")
