"""`paddock collector`."""

import argparse
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from paddock.apps.cli.console import EXIT_DONE, EXIT_HOST, EXIT_INTEGRITY, EXIT_NO, Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import find_project, use_project
from paddock.assembly.collecting import (
    audit_record,
    chain_of,
    ledger_keys,
    open_collector,
    push_plane,
    record_accepted,
    recorded_checkpoints,
)
from paddock.collector.accept import ChainReport, Left, OfferAnswer, accept_offers, verify_store
from paddock.collector.chains import Accepted, Chain, ChainHead, OfferRefusal, RefusalCode, Refused
from paddock.collector.store import Store
from paddock.errors import LedgerDamagedError, UsageError
from paddock.ledger.format.lines import VerifierKey
from paddock.pattern import lazy_pattern
from paddock.text.show import show_name
from paddock.values.calls import Json


def answer_json(answer: OfferAnswer) -> Json:
    """Return an answer as JSON: a claim; not accepted and without a code, the offer waits on."""
    offer, result = answer.offer, answer.result
    return {
        "host": offer.host,
        "ledger": offer.ledger,
        "start": offer.start,
        "stop": offer.stop,
        "sender": offer.sender,
        "accepted": isinstance(result, ChainHead),
        "code": result.code.value if isinstance(result, OfferRefusal) else None,
        "message": None if isinstance(result, ChainHead) else result.message,
    }


def say_answer(answer: OfferAnswer, console: Console) -> None:
    offer, result = answer.offer, answer.result
    name = f"{show_name(offer.host)} {show_name(offer.ledger)}"
    sender = show_name(offer.sender)
    if isinstance(result, Left):
        console.say(f"{name}: left to wait: {show_name(result.message)} (sent by {sender})")
    elif isinstance(result, OfferRefusal) and result.code is RefusalCode.BEHIND:
        console.say(f"{name}: nothing new: {result.message} (sent by {sender})")
    elif isinstance(result, OfferRefusal):
        console.say(f"{name}: refused: {result.code}: {result.message} (sent by {sender})")
    else:
        console.say(f"{name}: entries {offer.start} to {offer.stop - 1} are taken in")


class ChainStatus(Struct, frozen=True):
    """How far one chain came, what waits, and what was refused of it."""

    chain: Chain
    newest: Accepted | None
    waiting: int
    """Entries that were sent, by whomever, and not looked at."""
    refused: tuple[Refused, ...]

    def json(self) -> Json:
        newest = self.newest
        refused: list[Json] = [_refused_json(each) for each in self.refused]
        return {
            "host": self.chain.host,
            "ledger": self.chain.ledger,
            "entries": 0 if newest is None else newest.head.size,
            "root": None if newest is None else newest.head.root.hex(),
            "accepted_at": None if newest is None else newest.at,
            "waiting": self.waiting,
            "refused": refused,
        }

    def say(self, console: Console) -> None:
        name = f"{self.chain.host} {self.chain.ledger}"
        newest = self.newest
        if newest is None:
            console.say(f"{name}: nothing was taken in yet; {self.waiting} wait")
        else:
            console.say(
                f"{name}: {newest.head.size} entries, the last taken in {newest.at}; "
                f"{self.waiting} wait"
            )
        for each in self.refused:
            console.say(
                f"  refused {each.times} times: {each.refusal.code}; last {each.at}, sent by "
                f"{show_name(each.offer.sender)}: {each.refusal.message}"
            )


def _refused_json(refused: Refused) -> Json:
    return {
        "code": refused.refusal.code.value,
        "times": refused.times,
        "at": refused.at,
        "message": refused.refusal.message,
        "sender": refused.offer.sender,
        "note": refused.offer.note,
    }


def status_of(store: Store) -> list[ChainStatus]:
    """Of every chain that is enrolled. Raises: HostError."""
    with store.steady():
        found: list[ChainStatus] = []
        for chain in store.chains():
            newest = store.newest(chain)
            size = 0 if newest is None else newest.head.size
            waiting = max(0, store.waiting(chain) - size)
            refused = store.refused(chain.host, chain.ledger)
            found.append(ChainStatus(chain, newest, waiting, tuple(refused)))
    return found


def say_record(problems: Sequence[str], console: Console) -> None:
    if problems:
        console.say("the record in this plane, its ledger governance: DAMAGED")
    for problem in problems:
        console.say(f"  {problem}")


def report_json(report: ChainReport) -> Json:
    return {
        "host": report.host,
        "ledger": report.ledger,
        "entries": report.entries,
        "checkpoints": report.checkpoints,
        "on_record": report.compared,
        "problems": list(report.problems),
    }


def say_report(report: ChainReport, console: Console) -> None:
    said = "DAMAGED" if report.problems else "whole"
    console.say(
        f"{show_name(report.host)} {show_name(report.ledger)}: {said}: {report.entries} entries, "
        f"{report.checkpoints} checkpoints, {report.compared} of them on record here"
    )
    for problem in report.problems:
        console.say(f"  {problem}")


VARIABLE: Final = "PADDOCK_COLLECTOR"
_HOST: Final = lazy_pattern(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


class CollectorCommand:
    summary = (
        "Keep the ledgers of many hosts in one PostgreSQL. A host pushes what is new; the\n"
        "collector takes it in where it goes on from what is there and is signed by the key\n"
        "that was enrolled, and records that in its own plane. Nothing is changed or removed."
    )
    examples = (
        "  paddock collector init --let-push web1        (on the collector)\n"
        "  paddock collector keys                        (on the host, to be enrolled)\n"
        "  paddock collector enroll web1 --key KEY       (on the collector)\n"
        "  paddock collector push web1                   (on the host)\n"
        "  paddock collector accept                      (on the collector, now and then)\n"
        "  paddock collector verify"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        made = actions.add_parser("init", help="make the tables", allow_abbrev=False)
        made.add_argument(
            "--let-push",
            metavar="ROLE",
            action="append",
            default=[],
            help="a role of the database that may push, and do nothing else; again for more",
        )
        keys = actions.add_parser(
            "keys", help="print the keys of this plane's ledgers", allow_abbrev=False
        )
        enrolled = actions.add_parser("enroll", help="let a host push", allow_abbrev=False)
        enrolled.add_argument("host", metavar="HOST", help="what the host is called here")
        enrolled.add_argument(
            "--key",
            metavar="KEY",
            action="append",
            required=True,
            help="of a ledger; again for more",
        )
        pushed = actions.add_parser(
            "push", help="send what is new, up to each ledger's checkpoint", allow_abbrev=False
        )
        pushed.add_argument("host", metavar="HOST", help="what this host is called there")
        accepted = actions.add_parser(
            "accept", help="take in what was pushed, and record it", allow_abbrev=False
        )
        shown = actions.add_parser("status", help="how far each host came", allow_abbrev=False)
        checked = actions.add_parser(
            "verify", help="compute all again, and compare with the record", allow_abbrev=False
        )
        for parsed in (made, enrolled, pushed, accepted, shown, checked):
            parsed.add_argument(
                "--dsn", help=f"the database, as libpq names it (default: {VARIABLE})"
            )
        for parsed in (made, keys, enrolled, pushed, accepted, shown, checked):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        if options.action in {"enroll", "push"}:
            _require_host(options.host)
        if options.action == "keys":
            return _keys(options, console)
        dsn = console.variables.get(VARIABLE, "") if options.dsn is None else options.dsn
        with open_collector(dsn) as store:
            if options.action == "init":
                store.prepare(options.let_push)
                return _done(options, console, "the tables are there")
            if options.action == "enroll":
                return _enroll(store, options, console)
            if options.action == "push":
                return _push(store, options, console)
            if options.action == "accept":
                return _accept(store, options, console)
            if options.action == "status":
                return _status(store, options, console)
            return _verify(store, options, console)


def _done(options: Options, console: Console, said: str) -> int:
    if options.json:
        console.write_json({"status": "ok"})
    else:
        console.say(said)
    return EXIT_DONE


def _keys(options: Options, console: Console) -> int:
    keys = ledger_keys(find_project(options, console))
    if options.json:
        console.write_json({name: str(key) for name, key in keys.items()})
    else:
        for key in keys.values():
            console.say(str(key))
    return EXIT_DONE


def _require_host(host: str) -> None:
    if not _HOST.fullmatch(host):
        raise UsageError(
            f"no name for a host: {host[:80]!a}",
            where="HOST",
            hint="lower-case letters, digits, dots, _ and -, at most 63",
        )


def _enroll(store: Store, options: Options, console: Console) -> int:
    chains = [chain_of(options.host, _parse_key(each)) for each in options.key]
    enrolled: list[Json] = []
    for chain in chains:
        is_new = store.enroll(chain)
        enrolled.append({"host": chain.host, "ledger": chain.ledger, "is_new": is_new})
        if not options.json:
            said = "may push" if is_new else "was enrolled already"
            console.say(f"{chain.host} {chain.ledger}: {said}")
    if options.json:
        console.write_json({"enrolled": enrolled})
    return EXIT_DONE


def _parse_key(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except LedgerDamagedError as fault:
        raise UsageError(
            fault.message, where="--key", hint="paddock collector keys prints them, on the host"
        ) from None


def _push(store: Store, options: Options, console: Console) -> int:
    def told(ledger: str, done: int, total: int) -> None:
        console.warn(f"{ledger}: {done} of {total} entries")

    project = find_project(options, console)
    push = push_plane(project, store, options.host, told)
    for name in push.unenrolled:
        console.warn(f"note: the ledger {name} is not enrolled for this host, and not sent")
    rows: list[Json] = []
    for each in push.pushed:
        before = each.progress
        rows.append(
            {
                "ledger": each.ledger,
                "sent": each.sent,
                "size": each.size,
                "accepted": before.accepted,
                "refused": before.refused or None,
            }
        )
        if before.refused:
            console.warn(
                f"warning: {each.ledger}: the last offer was refused: {before.refused}; "
                "paddock collector status tells more, on the collector"
            )
        if not options.json:
            console.say(
                f"{each.ledger}: {each.sent} sent, up to {each.size}; "
                f"{before.accepted} were taken in before"
            )
    if options.json:
        console.write_json({"ledgers": rows})
    return EXIT_NO if any(each.progress.refused for each in push.pushed) else EXIT_DONE


def _accept(store: Store, options: Options, console: Console) -> int:
    project = use_project(options, console)
    told: list[Json] = []
    codes: set[RefusalCode] = set()
    is_left = False
    recorded = after = 0
    # Recorded after so many, and not first when there are no more: senders can go on for ever.
    while True:
        answers = list(accept_offers(store, after))
        recorded += record_accepted(project, store)
        for answer in answers:
            after = answer.offer.number
            if isinstance(answer.result, OfferRefusal):
                codes.add(answer.result.code)
            is_left = is_left or isinstance(answer.result, Left)
            told.append(answer_json(answer))
            if not options.json:
                say_answer(answer, console)
        if not answers:
            break
    if options.json:
        console.write_json({"offers": told, "recorded": recorded})
    elif not told:
        console.say("nothing waits")
    if RefusalCode.FORKED in codes:
        return EXIT_INTEGRITY
    if is_left:
        return EXIT_HOST
    # What is here already is no fault of a host whose pushes overlapped.
    return EXIT_NO if codes - {RefusalCode.BEHIND} else EXIT_DONE


def _status(store: Store, options: Options, console: Console) -> int:
    rows = status_of(store)
    if options.json:
        console.write_json({"chains": [each.json() for each in rows]})
        return EXIT_DONE
    for each in rows:
        each.say(console)
    if not rows:
        console.say("no host is enrolled")
    return EXIT_DONE


def _verify(store: Store, options: Options, console: Console) -> int:
    project = find_project(options, console)
    wrong = audit_record(project)
    recorded = recorded_checkpoints(project)
    reports = list(verify_store(store, recorded))
    if options.json:
        chains: list[Json] = [report_json(each) for each in reports]
        console.write_json({"chains": chains, "record_problems": list(wrong)})
    else:
        say_record(wrong, console)
        for report in reports:
            say_report(report, console)
        if not reports:
            console.say("no host is enrolled")
    if not recorded:
        console.warn(
            "note: no accepted checkpoint is on record in this plane; what was cut off or put "
            "back whole does not show here"
        )
    return EXIT_INTEGRITY if wrong or any(each.problems for each in reports) else EXIT_DONE


COMMAND = CollectorCommand()
