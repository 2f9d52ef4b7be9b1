"""A ledger that is gone is none that was never made."""

import pytest

from paddock.errors import LedgerDamagedError
from paddock.ledger.read import is_known, stands


def test_a_ledger_that_is_there_stands(tmp_path):
    (tmp_path / "ho1m.jsonl").write_bytes(b"")
    assert (is_known(tmp_path / "ho1m.jsonl"), stands(tmp_path / "ho1m.jsonl")) == (True, True)


@pytest.mark.parametrize("names", [[], ["lock"], ["lock", "new"]])
def test_a_ledger_that_was_never_made_or_is_being_made_does_not_stand(tmp_path, names):
    path = tmp_path / "ho1m.jsonl"
    assert (is_known(path), stands(path)) == (False, False)
    (tmp_path / "ho1m.d").mkdir()
    for name in names:
        (tmp_path / "ho1m.d" / name).write_bytes(b"")
    assert (is_known(path), stands(path)) == (False, False)


@pytest.mark.parametrize("name", ["head", "slock", "tree.edge", "checkpoints", "x"])
def test_a_ledger_of_which_only_something_beside_it_is_left_is_gone(tmp_path, name):
    path = tmp_path / "ho1m.jsonl"
    (tmp_path / "ho1m.d" / name).mkdir(parents=True)
    assert is_known(path)
    with pytest.raises(LedgerDamagedError, match="the ledger ho1m is gone") as caught:
        stands(path)
    assert caught.value.where == str(path)
