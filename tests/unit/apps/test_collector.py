"""The collector at the command line: two hosts that push, and the operator who takes them in."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from tests.support.places import run_command
from tests.support.postgres import empty_database, running_server


class Machine(Struct, dict=True):
    """A home, a project, and the collector that its environment names."""

    base: Path
    dsn: str

    def __post_init__(self):
        (self.base / "project" / ".git").mkdir(parents=True)
        (self.base / "home").mkdir()

    def run(self, *arguments):
        variables = {"HOME": str(self.base / "home"), "PADDOCK_COLLECTOR": self.dsn}
        return run_command(*arguments, variables=variables, here=self.base / "project")

    def collector(self, *arguments):
        return self.run("collector", *arguments)

    def work(self, *names):
        for name in names:
            call = json.dumps({"path": name, "content": "x"})
            assert self.run("call", "create_file", call).status == 0
        return self

    def ledgers(self):
        found = self.run("where", "--json").json["ledgers"]
        return {name: Path(path) for name, path in found.items()}


@pytest.fixture(scope="module")
def socket():
    with running_server() as place:
        yield place


@pytest.fixture
def place(socket, tmp_path):
    """Makes machines that know one collector."""
    dsn = empty_database(socket)

    def machine(name):
        return Machine(tmp_path / name, dsn)

    return machine


@pytest.fixture
def operator(place):
    made = place("operator")
    assert made.collector("init").status == 0
    return made


@pytest.fixture
def web1(place, operator):
    return enrolled(place("web1").work("a", "b"), operator, "web1")


def enrolled(machine, operator, name):
    keys = machine.collector("keys").out.split()
    ran = operator.collector("enroll", name, *(word for key in keys for word in ("--key", key)))
    assert ran.status == 0, ran.err
    return machine


def rows(ran):
    return {(row["host"], row["ledger"]): row for row in ran.json["chains"]}


needs_server = pytest.mark.needs("postgresql")


@needs_server
def test_what_hosts_push_is_taken_in_recorded_and_verified(place, operator, web1):
    web2 = enrolled(place("web2").work("c"), operator, "web2")
    for name, machine in (("web1", web1), ("web2", web2)):
        ran = machine.collector("push", name)
        assert ran.status == 0, ran.err

    taken = operator.collector("accept", "--json")

    assert (taken.status, taken.err) == (0, "")
    assert [each["code"] for each in taken.json["offers"]] == [None] * 6
    assert taken.json["recorded"] == 6
    verified = operator.collector("verify", "--json")
    assert (verified.status, verified.err) == (0, "")
    for name, machine in (("web1", web1), ("web2", web2)):
        for ledger, path in machine.ledgers().items():
            if path.exists():
                assert rows(verified)[name, ledger] == {
                    "host": name,
                    "ledger": ledger,
                    "entries": path.read_bytes().count(b"\n"),
                    "checkpoints": 1,
                    "on_record": 1,
                    "problems": [],
                }


@needs_server
def test_a_push_goes_on_and_one_that_has_nothing_new_sends_nothing(operator, web1):
    first = web1.collector("push", "web1", "--json").json["ledgers"]
    again = web1.collector("push", "web1", "--json").json["ledgers"]
    operator.collector("accept")
    web1.work("c")
    ran = web1.collector("push", "web1", "--json")
    taken = operator.collector("accept", "--json").json

    assert [row["sent"] for row in again] == [0, 0, 0]
    assert [row["accepted"] for row in ran.json["ledgers"]] == [row["sent"] for row in first]
    assert "ho1m: 2 of 2 entries" in ran.err.splitlines()
    assert [each["code"] for each in taken["offers"]] == [None] * 3
    assert operator.collector("verify").status == 0
    status = rows(operator.collector("status", "--json"))
    sizes = {row["ledger"]: row["size"] for row in ran.json["ledgers"]}
    assert {ledger: status["web1", ledger]["entries"] for ledger in sizes} == sizes


@needs_server
def test_the_record_stands_in_the_collectors_own_ledger(operator, web1):
    web1.collector("push", "web1")
    operator.collector("accept")

    ran = operator.run("ledger", "query", "--type", "CHECKPOINT_ACCEPTED", "--json")
    said = [json.loads(row)["metadata"] for row in ran.out.splitlines()]

    assert [(each["host"], each["ledger"]) for each in said] == [
        ("web1", "governance"),
        ("web1", "ho1m"),
        ("web1", "ho2m"),
    ]
    for each in said:
        lines = each["note"].split("\n")
        assert (lines[0], lines[1]) == (each["origin"], str(each["size"]))
    assert operator.run("ledger", "verify").status == 0
    assert operator.collector("accept", "--json").json == {"offers": [], "recorded": 0}


@needs_server
def test_what_was_accepted_and_not_recorded_is_recorded_by_the_next_run(operator, web1):
    from paddock.assembly.push import open_collector
    from paddock.collector.accept import accept_offers

    web1.collector("push", "web1")
    with open_collector(operator.dsn) as store:
        assert len(list(accept_offers(store))) == 3

    assert operator.collector("accept", "--json").json == {"offers": [], "recorded": 3}


@needs_server
def test_a_ledger_that_went_back_is_told_where_it_is_pushed(operator, web1):
    path = web1.ledgers()["ho1m"]
    copy = path.parent.parent / "copy"
    shutil.copytree(path.parent, copy)
    web1.work("c")
    web1.collector("push", "web1")
    operator.collector("accept")
    shutil.rmtree(path.parent)
    copy.rename(path.parent)

    ran = web1.collector("push", "web1")

    assert ran.status == 4
    assert "it was rolled back" in ran.err


@needs_server
def test_a_refused_fork_is_damage_and_the_host_is_told(place, operator, web1, tmp_path):
    shutil.copytree(web1.base, tmp_path / "twin")
    web1.work("c")
    web1.collector("push", "web1")
    operator.collector("accept")
    shutil.rmtree(web1.base)
    (tmp_path / "twin").rename(web1.base)
    web1.work("d", "e")

    assert web1.collector("push", "web1").status == 0
    refused = operator.collector("accept")

    assert refused.status == 4
    assert "web1 ho1m: refused: collector.forked" in refused.out
    assert "collector.forked" in operator.collector("status").out
    again = web1.collector("push", "web1")
    assert again.status == 1
    assert "the last push was refused: collector.forked" in again.err
    assert operator.collector("verify").status == 0


@needs_server
def test_a_removed_ledger_is_no_host_that_has_nothing_to_push(operator, web1):
    web1.ledgers()["ho1m"].unlink()

    for arguments in (("keys",), ("push", "web1")):
        ran = web1.collector(*arguments)
        assert (ran.status, "the ledger ho1m is gone" in ran.err) == (4, True)


@needs_server
def test_a_removed_record_is_no_collector_that_recorded_nothing(operator, web1):
    web1.collector("push", "web1")
    assert operator.collector("accept").status == 0
    operator.ledgers()["governance"].unlink()

    ran = operator.collector("verify")

    assert (ran.status, "the ledger governance is gone" in ran.err) == (4, True)


def remove_all(path):
    """The ledger, and all that stands beside it."""
    path.unlink()
    shutil.rmtree(path.with_suffix(".d"))


@needs_server
def test_a_ledger_that_was_removed_whole_is_missed_by_what_is_kept_elsewhere(operator, web1):
    web1.collector("push", "web1")
    assert operator.collector("accept").status == 0
    remove_all(web1.ledgers()["ho1m"])
    remove_all(operator.ledgers()["governance"])

    for ran, ledger in (
        (web1.collector("keys"), "ho1m"),
        (web1.collector("push", "web1"), "ho1m"),
        (operator.collector("verify"), "governance"),
    ):
        assert (ran.status, f"the ledger {ledger} is gone" in ran.err) == (4, True)


@needs_server
def test_a_host_that_has_nothing_left_is_told_what_the_collector_has(place, operator, web1):
    web1.collector("push", "web1")
    operator.collector("accept")
    fresh = place("fresh")

    ran = fresh.collector("push", "web1")

    assert (ran.status, ran.out) == (4, "")
    assert "entries of the ledger governance, which is missing here" in ran.err


@needs_server
def test_a_host_that_pushed_nothing_yet_misses_nothing(place, operator, web1):
    ran = place("fresh").collector("push", "web1", "--json")

    assert (ran.status, ran.json) == (0, {"ledgers": []})


@needs_server
def test_a_record_that_was_cut_with_the_chain_is_damage(operator, web1):
    import psycopg

    web1.collector("push", "web1")
    operator.collector("accept")
    assert operator.collector("verify", "--json").json["record_problems"] == []
    with psycopg.connect(operator.dsn) as connection:
        for table in ("entries", "checkpoints"):
            connection.execute(f"ALTER TABLE paddock_collector.{table} DISABLE TRIGGER USER")
            connection.execute(f"DELETE FROM paddock_collector.{table} WHERE ledger = 'ho2m'")
    record = operator.ledgers()["governance"]
    lines = record.read_bytes().splitlines(keepends=True)
    (cut,) = [
        n for n, line in enumerate(lines) if b"CHECKPOINT_ACCEPTED" in line and b"ho2m" in line
    ]
    record.write_bytes(b"".join(lines[:cut]))

    ran = operator.collector("verify")
    found = operator.collector("verify", "--json")

    assert (ran.status, found.status) == (4, 4)
    assert ran.out.startswith("this plane's own record, the ledger governance: DAMAGED\n  entry ")
    assert all(not row["problems"] for row in found.json["chains"])
    assert f"{len(lines)} entries were written, {cut} are here" in found.json["record_problems"][0]


@needs_server
def test_two_pushes_at_once_are_no_refusal(operator, web1):
    import psycopg

    web1.collector("push", "web1")
    # As another push would, that began when nothing waited yet.
    with psycopg.connect(operator.dsn) as connection:
        connection.execute(
            "INSERT INTO paddock_collector.offers (batch, host, ledger, start, stop, note)"
            " SELECT gen_random_uuid(), host, ledger, start, stop, note"
            " FROM paddock_collector.offers WHERE ledger = 'ho1m'"
        )

    taken = operator.collector("accept")

    assert taken.status == 0
    assert "web1 ho1m: nothing new: 5 lines are already here (sent by paddock)" in taken.out
    again = web1.collector("push", "web1")
    assert (again.status, again.err) == (0, "")


@needs_server
def test_an_offer_that_is_left_is_told_and_the_rest_is_taken(operator, web1):
    import psycopg

    web1.collector("push", "web1")
    with psycopg.connect(operator.dsn) as connection:
        connection.execute(
            "SELECT 1 FROM paddock_collector.offers WHERE ledger = 'ho1m' FOR UPDATE"
        )
        left = operator.collector("accept", "--json")
    taken = operator.collector("accept")

    assert left.status == 5
    assert {row["ledger"]: (row["accepted"], row["code"]) for row in left.json["offers"]} == {
        "governance": (True, None),
        "ho1m": (False, None),
        "ho2m": (True, None),
    }
    assert left.json["recorded"] == 2
    assert (taken.status, taken.out) == (0, "web1 ho1m: accepted entries 0 to 4\n")


@needs_server
def test_a_changed_row_ends_with_4(operator, web1):
    import psycopg

    web1.collector("push", "web1")
    operator.collector("accept")
    with psycopg.connect(operator.dsn) as connection:
        connection.execute("ALTER TABLE paddock_collector.entries DISABLE TRIGGER USER")
        connection.execute(
            "UPDATE paddock_collector.entries SET line = 'x'"
            " WHERE host = 'web1' AND ledger = 'ho1m' AND seq = 2"
        )

    ran = operator.collector("verify")

    assert ran.status == 4
    assert "web1 ho1m: DAMAGED" in ran.out
    assert "\n  entry 2: garbage" in ran.out
    assert "web1 ho2m: whole" in ran.out


@needs_server
def test_a_database_put_back_shows_against_the_collectors_own_ledger(socket, operator, web1):
    web1.collector("push", "web1")
    operator.collector("accept")
    empty_database(socket)
    operator.collector("init")

    ran = operator.collector("verify")

    assert ran.status == 4
    assert ran.out.count("the chain is missing") == 3


@needs_server
def test_a_plane_without_a_record_says_what_it_cannot_see(operator, web1):
    web1.collector("push", "web1")
    operator.collector("accept")

    ran = web1.collector("verify")

    assert ran.status == 0
    assert "this plane has recorded no accepted checkpoint" in ran.err


@needs_server
def test_only_what_is_enrolled_is_sent(place, operator):
    web3 = place("web3").work("a")
    key = web3.collector("keys", "--json").json["ho1m"]

    assert web3.collector("push", "web3").status == 2
    assert operator.collector("enroll", "web3", "--key", key).status == 0
    ran = web3.collector("push", "web3", "--json")

    assert ran.status == 0
    assert [row["ledger"] for row in ran.json["ledgers"]] == ["ho1m"]
    assert "the ledger governance is not enrolled" in ran.err


WRONG = [
    (["enroll", "Web 1", "--key", "x"], 2, "invalid host name 'Web 1'"),
    (["enroll", "web1", "--key", "x"], 2, "not an Ed25519 verifier key: 'x'"),
    (["enroll", "web1"], 2, "required"),
    (["push", "nobody"], 2, "the collector knows no host 'nobody'"),
    (["push", "web\udcff"], 2, r"invalid host name 'web\udcff'"),
    (["status", "--dsn", "host=/x connect_timeout=abc"], 2, "the DSN of the collector cannot"),
    (["status", "--dsn", "host=\udcff"], 2, "the DSN of the collector cannot be read"),
]


@needs_server
@pytest.mark.parametrize(("arguments", "status", "said"), WRONG)
def test_what_cannot_be_done_is_said(operator, arguments, status, said):
    ran = operator.collector(*arguments)

    assert (ran.status, ran.out) == (status, "")
    assert said in ran.err


@needs_server
def test_another_key_for_an_enrolled_ledger_is_refused(place, operator, web1):
    other = place("web2").work("a").collector("keys", "--json").json["ho1m"]

    ran = operator.collector("enroll", "web1", "--key", other)

    assert ran.status == 3
    assert "with another key" in ran.err


@needs_server
def test_a_key_of_no_plane_is_refused(operator):
    from paddock.ledger.signing import make_key

    key = str(make_key("example.org/log", b"k" * 32).verifier)

    ran = operator.collector("enroll", "web1", "--key", key)

    assert ran.status == 2
    assert "does not belong to a plane's ledger" in ran.err


def test_without_a_dsn_the_way_to_one_is_said(tmp_path):
    ran = Machine(tmp_path / "x", "").collector("status")

    assert ran.status == 2
    assert "PADDOCK_COLLECTOR" in ran.err


def test_no_command_loads_the_library_before_it_needs_it():
    program = (
        "import sys\n"
        "from paddock.apps.cli import collector\n"
        "assert 'psycopg' not in sys.modules and 'paddock.collector.postgres' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "paddock.collector.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    ran = Machine(tmp_path / "x", "host=/nowhere").collector("status")

    assert ran.status == 3
    assert "pip install 'paddock[collector]'" in ran.err


@needs_server
def test_a_server_that_is_not_there_is_the_hosts_matter(tmp_path):
    dsn = f"postgresql://me:correct-horse@/x?host={tmp_path}"

    ran = Machine(tmp_path / "x", dsn).collector("status")

    assert ran.status == 5
    assert "correct-horse" not in ran.err
