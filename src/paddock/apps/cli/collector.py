"""`paddock collector`."""

import re
from collections.abc import Callable
from typing import Final

from paddock.apps import command
from paddock.apps.console import EXIT_DONE, EXIT_HOST, EXIT_INTEGRITY, EXIT_NO, Console
from paddock.assembly import push
from paddock.collector.accept import Left, OfferAnswer, accept_offers, verify_store
from paddock.collector.chains import (
    Accepted,
    Chain,
    ChainHead,
    OfferRefusal,
    RefusalCode,
    Refused,
    Store,
)
from paddock.errors import LedgerDamagedError, UsageError
from paddock.ledger.format.lines import VerifierKey
from paddock.pattern import lazy_pattern
from paddock.text.show import show_name
from paddock.values.calls import Json

VARIABLE: Final = "PADDOCK_COLLECTOR"
_HOST: Final = lazy_pattern(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


def _stored(
    do: Callable[[Store, command.Options, Console], command.Reply],
) -> Callable[[command.Options, Console], command.Reply]:
    """`do` with the store that is named. A host's name is looked at before it is opened."""

    def work(options: command.Options, console: Console) -> command.Reply:
        host = getattr(options, "host", None)
        if host is not None and not _HOST.fullmatch(host):
            raise UsageError(
                f"no name for a host: {host[:80]!a}",
                where="HOST",
                hint="lower-case letters, digits, dots, _ and -, at most 63",
            )
        with push.open_collector(_dsn(options, console)) as store:
            return do(store, options, console)

    return work


def _dsn(options: command.Options, console: Console) -> str:
    return console.variables.get(VARIABLE, "") if options.dsn is None else options.dsn


def _init(options: command.Options, console: Console) -> command.Reply:
    with push.open_collector(_dsn(options, console)) as store:
        store.prepare(options.let_push)
    return command.Reply({"status": "ok"}, "the tables are there")


def _keys(options: command.Options, console: Console) -> command.Reply:
    keys = {
        name: str(key)
        for name, key in push.ledger_keys(command.find_project(options, console)).items()
    }
    return command.Reply(dict[str, Json](keys), keys.values())


def _enroll(store: Store, options: command.Options, console: Console) -> command.Reply:
    del console
    chains = [push.chain_of(options.host, _parse_key(each)) for each in options.key]
    enrolled: list[Json] = []
    text: list[str] = []
    for chain in chains:
        is_new = store.enroll(chain)
        enrolled.append({"host": chain.host, "ledger": chain.ledger, "is_new": is_new})
        said = "may push" if is_new else "was enrolled already"
        text.append(f"{chain.host} {chain.ledger}: {said}")
    return command.Reply({"enrolled": enrolled}, text)


def _parse_key(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except LedgerDamagedError as fault:
        raise UsageError(
            fault.message, where="--key", hint="paddock collector keys prints them, on the host"
        ) from None


def _push(store: Store, options: command.Options, console: Console) -> command.Reply:
    def told(ledger: str, done: int, total: int) -> None:
        console.warn(f"{ledger}: {done} of {total} entries")

    outcome = push.push_plane(command.find_project(options, console), store, options.host, told)
    for name in outcome.unenrolled:
        console.warn(f"note: the ledger {name} is not enrolled for this host, and not sent")
    rows: list[Json] = []
    text: list[str] = []
    for each in outcome.pushed:
        before = each.progress
        row: dict[str, Json] = {"ledger": each.ledger, "sent": each.sent, "size": each.size}
        rows.append({**row, "accepted": before.accepted, "refused": before.refused or None})
        if before.refused:
            console.warn(
                f"warning: {each.ledger}: the last offer was refused: {before.refused}; "
                "paddock collector status tells more, on the collector"
            )
        text.append(
            f"{each.ledger}: {each.sent} sent, up to {each.size}; "
            f"{before.accepted} were taken in before"
        )
    is_refused = any(each.progress.refused for each in outcome.pushed)
    return command.Reply({"ledgers": rows}, text, EXIT_NO if is_refused else EXIT_DONE)


def _accept(store: Store, options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    told: list[Json] = []
    codes: set[RefusalCode] = set()
    is_left = False
    recorded = after = 0
    # Recorded after so many, and not first when there are no more: senders can go on for ever.
    while True:
        answers = list(accept_offers(store, after))
        recorded += push.record_accepted(project, store)
        for answer in answers:
            after = answer.offer.number
            if isinstance(answer.result, OfferRefusal):
                codes.add(answer.result.code)
            is_left = is_left or isinstance(answer.result, Left)
            told.append(_answer_json(answer))
            if not options.json:
                console.say(_answer_text(answer))
        if not answers:
            break
    # What is here already is no fault of a host whose pushes overlapped.
    status = EXIT_NO if codes - {RefusalCode.BEHIND} else EXIT_DONE
    status = EXIT_HOST if is_left else status
    status = EXIT_INTEGRITY if RefusalCode.FORKED in codes else status
    text = () if told else ("nothing waits",)
    return command.Reply({"offers": told, "recorded": recorded}, text, status)


def _answer_json(answer: OfferAnswer) -> Json:
    offer, result = answer.offer, answer.result
    return {
        **command.fields(offer, "host", "ledger", "start", "stop", "sender"),
        "accepted": isinstance(result, ChainHead),
        "code": result.code.value if isinstance(result, OfferRefusal) else None,
        "message": None if isinstance(result, ChainHead) else result.message,
    }


def _answer_text(answer: OfferAnswer) -> str:
    offer, result = answer.offer, answer.result
    name, sender = f"{show_name(offer.host)} {show_name(offer.ledger)}", show_name(offer.sender)
    if isinstance(result, Left):
        return f"{name}: left to wait: {show_name(result.message)} (sent by {sender})"
    if isinstance(result, OfferRefusal):
        said = "nothing new" if result.code is RefusalCode.BEHIND else f"refused: {result.code}"
        return f"{name}: {said}: {result.message} (sent by {sender})"
    return f"{name}: entries {offer.start} to {offer.stop - 1} are taken in"


def _status(store: Store, options: command.Options, console: Console) -> command.Reply:
    del options, console
    chains: list[Json] = []
    text: list[str] = []
    with store.steady():
        for chain in store.chains():
            newest = store.newest(chain)
            size = 0 if newest is None else newest.head.size
            # Entries that were sent, by whomever, and not looked at.
            waiting = max(0, store.waiting(chain) - size)
            refused = list(store.refused(chain.host, chain.ledger))
            chains.append(_chain_json(chain, newest, waiting, refused))
            came = "nothing was taken in yet"
            if newest is not None:
                came = f"{size} entries, the last taken in {newest.at}"
            text.append(f"{chain.host} {chain.ledger}: {came}; {waiting} wait")
            text += [
                f"  refused {each.times} times: {each.refusal.code}; last {each.at}, sent by "
                f"{show_name(each.offer.sender)}: {each.refusal.message}"
                for each in refused
            ]
    return command.Reply({"chains": chains}, text or "no host is enrolled")


def _chain_json(
    chain: Chain, newest: Accepted | None, waiting: int, refused: list[Refused]
) -> Json:
    return {
        **command.fields(chain, "host", "ledger"),
        "entries": 0 if newest is None else newest.head.size,
        "root": None if newest is None else newest.head.root.hex(),
        "accepted_at": None if newest is None else newest.at,
        "waiting": waiting,
        "refused": [
            {
                "code": each.refusal.code.value,
                **command.fields(each, "times", "at"),
                "message": each.refusal.message,
                **command.fields(each.offer, "sender", "note"),
            }
            for each in refused
        ],
    }


def _verify(store: Store, options: command.Options, console: Console) -> command.Reply:
    project = command.find_project(options, console)
    wrong = push.audit_record(project)
    recorded = push.recorded_checkpoints(project)
    reports = list(verify_store(store, recorded))
    chains: list[Json] = []
    text = ["the record in this plane, its ledger governance: DAMAGED"] if wrong else []
    text += [f"  {problem}" for problem in wrong]
    for report in reports:
        named = command.fields(report, "host", "ledger", "entries", "checkpoints")
        on_record = {"on_record": report.compared, "problems": list(report.problems)}
        chains.append({**named, **on_record})
        said = "DAMAGED" if report.problems else "whole"
        text.append(
            f"{show_name(report.host)} {show_name(report.ledger)}: {said}: {report.entries} "
            f"entries, {report.checkpoints} checkpoints, {report.compared} of them on record here"
        )
        text += [f"  {problem}" for problem in report.problems]
    if not reports:
        text.append("no host is enrolled")
    if not recorded:
        console.warn(
            "note: no accepted checkpoint is on record in this plane; what was cut off or put "
            "back whole does not show here"
        )
    is_damaged = bool(wrong) or any(each.problems for each in reports)
    value: dict[str, Json] = {"chains": chains, "record_problems": list(wrong)}
    return command.Reply(value, text, EXIT_INTEGRITY if is_damaged else EXIT_DONE)


_DSN = command.opt("--dsn", None, f"the database, as libpq names it (default: {VARIABLE})")

COMMAND = command.Command(
    "Keep the ledgers of many hosts in one PostgreSQL. A host pushes what is new; the\n"
    "collector takes it in where it goes on from what is there and is signed by the key\n"
    "that was enrolled, and records that in its own plane. Nothing is changed or removed.",
    "  paddock collector init --let-push web1        (on the collector)\n"
    "  paddock collector keys                        (on the host, to be enrolled)\n"
    "  paddock collector enroll web1 --key KEY       (on the collector)\n"
    "  paddock collector push web1                   (on the host)\n"
    "  paddock collector accept                      (on the collector, now and then)\n"
    "  paddock collector verify",
    command.Part(
        "init",
        "make the tables",
        _init,
        command.opt(
            "--let-push",
            "ROLE",
            "a role of the database that may push, and do nothing else; again for more",
            action="append",
            default=[],
        ),
        _DSN,
    ),
    command.Part("keys", "print the keys of this plane's ledgers", _keys),
    command.Part(
        "enroll",
        "let a host push",
        _stored(_enroll),
        command.opt("host", "HOST", "what the host is called here"),
        command.opt("--key", "KEY", "of a ledger; again for more", action="append", required=True),
        _DSN,
    ),
    command.Part(
        "push",
        "send what is new, up to each ledger's checkpoint",
        _stored(_push),
        command.opt("host", "HOST", "what this host is called there"),
        _DSN,
    ),
    command.Part("accept", "take in what was pushed, and record it", _stored(_accept), _DSN),
    command.Part("status", "how far each host came", _stored(_status), _DSN),
    command.Part(
        "verify", "compute all again, and compare with the record", _stored(_verify), _DSN
    ),
)
