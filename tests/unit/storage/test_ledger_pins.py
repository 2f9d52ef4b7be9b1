"""What a ledger entry names is never pruned, however small the history has to be."""

import os
from pathlib import Path

from paddock.storage.history import History


def test_what_an_entry_names_outlives_every_pruning_and_other_contents_do_not(
    tmp_path: Path,
) -> None:
    history = History(str(tmp_path / "objects"), bytes_max=2_000)
    listed = os.urandom(4_000)
    digest = history.keep_for_ledger(listed)
    others = [history.store.put_bytes(os.urandom(4_000)) for _ in range(3)]
    history.store.sync()
    assert history.store.prune(()) > 0
    assert [history.store.has(each) for each in others] == [False] * 3
    assert history.store.read(digest) == listed
    history.close()
    again = History(str(tmp_path / "objects"), bytes_max=2_000)
    again.store.prune(())
    assert again.store.read(digest) == listed
    again.close()
