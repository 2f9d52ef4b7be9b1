import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.plane.trust import TrustAnswer, TrustRecord, find_trust, is_trusted
from paddock.values.entries import digest_of
from tests.support.trusting import record_trust

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONTENT = b'[paths]\nprotected = ["*.lock"]\n'


@pytest.fixture
def file(project) -> Path:
    file = project / "paddock.toml"
    file.write_bytes(CONTENT)
    return file


def stored(environment) -> Path:
    [record] = environment.trust.iterdir()
    return record


def test_a_file_is_trusted_from_the_answer_on_and_not_before(file, environment):
    assert find_trust(file, CONTENT, environment) == TrustAnswer(False, "it was never trusted")
    record = record_trust(file, CONTENT, environment, NOW)
    assert record == TrustRecord(str(file), digest_of(CONTENT), "2026-01-02T03:04:05+00:00")
    assert find_trust(file, CONTENT, environment) == TrustAnswer(True)
    assert stat.S_IMODE(stored(environment).stat().st_mode) == 0o600


def test_one_changed_byte_is_not_trusted_and_the_old_bytes_still_are(file, environment):
    record_trust(file, CONTENT, environment, NOW)
    changed = CONTENT + b"#"
    assert find_trust(file, changed, environment) == TrustAnswer(
        False, "it has changed since it was trusted"
    )
    assert is_trusted(file, CONTENT, environment)
    record_trust(file, changed, environment, NOW)
    assert is_trusted(file, changed, environment)
    assert not is_trusted(file, CONTENT, environment)


def test_the_same_bytes_at_another_path_are_not_trusted(file, environment, tmp_path):
    record_trust(file, CONTENT, environment, NOW)
    copy = tmp_path / "copy"
    copy.mkdir()
    assert not is_trusted(copy / "paddock.toml", CONTENT, environment)
    assert not is_trusted(file.with_name("paddock.json"), CONTENT, environment)


def test_a_moved_project_is_not_trusted(file, environment, tmp_path):
    record_trust(file, CONTENT, environment, NOW)
    moved = file.parent.rename(tmp_path / "moved")
    assert not is_trusted(moved / "paddock.toml", CONTENT, environment)


def test_a_project_is_the_same_by_each_of_its_names(file, environment, tmp_path):
    (tmp_path / "link").symlink_to(file.parent)
    record_trust(tmp_path / "link" / "paddock.toml", CONTENT, environment, NOW)
    assert is_trusted(file, CONTENT, environment)
    assert is_trusted(tmp_path / "link" / "paddock.toml", CONTENT, environment)


def test_a_link_that_is_turned_elsewhere_takes_no_trust_along(file, environment, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(file.parent)
    record_trust(link / "paddock.toml", CONTENT, environment, NOW)
    link.unlink()
    (tmp_path / "evil").mkdir()
    link.symlink_to(tmp_path / "evil")
    assert not is_trusted(link / "paddock.toml", CONTENT, environment)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"{",
        b"\xff",
        b"{}",
        b'{"path": 1, "digest": "", "trusted_at": ""}',
        b"[" * 9999,
    ],
)
def test_a_record_that_does_not_load_trusts_nothing_and_says_so(file, environment, content):
    record_trust(file, CONTENT, environment, NOW)
    stored(environment).write_bytes(content)
    answer = find_trust(file, CONTENT, environment)
    assert not answer.trusted
    assert answer.reason.startswith("the record of its trust does not load: ")
    record_trust(file, CONTENT, environment, NOW)
    assert is_trusted(file, CONTENT, environment)


def test_a_record_that_names_another_file_trusts_nothing(file, environment, project):
    record_trust(file, CONTENT, environment, NOW)
    record = stored(environment)
    record.write_text(record.read_text().replace(str(project), "/elsewhere"))
    assert find_trust(file, CONTENT, environment).reason == (
        "the record of its trust names another file"
    )


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_store_that_others_can_write_trusts_nothing(file, environment, mode):
    record_trust(file, CONTENT, environment, NOW)
    environment.trust.chmod(mode)
    assert not is_trusted(file, CONTENT, environment)
    with pytest.raises(ConfigError, match="written by others"):
        record_trust(file, CONTENT, environment, NOW)
    environment.trust.chmod(0o700)
    assert is_trusted(file, CONTENT, environment)


def test_a_record_that_is_a_link_trusts_nothing(file, environment, tmp_path):
    record_trust(file, CONTENT, environment, NOW)
    record = stored(environment)
    record.rename(tmp_path / "elsewhere.json")
    record.symlink_to(tmp_path / "elsewhere.json")
    assert not is_trusted(file, CONTENT, environment)


def test_the_time_of_trust_is_written_in_utc(file, environment):
    there = datetime(2026, 1, 2, 4, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    assert record_trust(file, CONTENT, environment, there).trusted_at == (
        "2026-01-02T03:04:05+00:00"
    )
