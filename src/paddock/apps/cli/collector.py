"""`paddock collector`: push ledgers to a collector, and accept and verify them there."""

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
    """Wrap `do` to get the opened store. The host's name is checked before it is opened."""

    def work(options: command.Options, console: Console) -> command.Reply:
        host = getattr(options, "host", None)
        if host is not None and not _HOST.fullmatch(host):
            raise UsageError(
                f"invalid host name {host[:80]!a}",
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
    return command.Reply({"status": "ok"}, "the tables are ready")


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
            fault.message, where="--key", hint="on the host, paddock collector keys prints them"
        ) from None


def _push(store: Store, options: command.Options, console: Console) -> command.Reply:
    def progress(ledger: str, done: int, total: int) -> None:
        console.warn(f"{ledger}: {done} of {total} entries")

    outcome = push.push_plane(command.find_project(options, console), store, options.host, progress)
    for name in outcome.unenrolled:
        console.warn(f"note: the ledger {name} is not enrolled for this host: not sent")
    rows: list[Json] = []
    text: list[str] = []
    for each in outcome.pushed:
        before = each.progress
        row: dict[str, Json] = {"ledger": each.ledger, "sent": each.sent, "size": each.size}
        rows.append({**row, "accepted": before.accepted, "refused": before.refused or None})
        if before.refused:
            console.warn(
                f"warning: {each.ledger}: the last push was refused: {before.refused}; "
                "for details, on the collector: paddock collector status"
            )
        text.append(
            f"{each.ledger}: {each.sent} sent, up to {each.size}; "
            f"{before.accepted} were accepted before"
        )
    is_refused = any(each.progress.refused for each in outcome.pushed)
    return command.Reply({"ledgers": rows}, text, EXIT_NO if is_refused else EXIT_DONE)


def _accept(store: Store, options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    offers: list[Json] = []
    codes: set[RefusalCode] = set()
    is_left = False
    recorded = after = 0
    # Record after each batch, not only when none is left: senders could continue for ever.
    while True:
        answers = list(accept_offers(store, after))
        recorded += push.record_accepted(project, store)
        for answer in answers:
            after = answer.offer.number
            if isinstance(answer.result, OfferRefusal):
                codes.add(answer.result.code)
            is_left = is_left or isinstance(answer.result, Left)
            offers.append(_answer_json(answer))
            if not options.json:
                console.say(_answer_text(answer))
        if not answers:
            break
    # Overlapping pushes of one host repeat entries; that is not an error.
    status = EXIT_NO if codes - {RefusalCode.BEHIND} else EXIT_DONE
    status = EXIT_HOST if is_left else status
    status = EXIT_INTEGRITY if RefusalCode.FORKED in codes else status
    text = () if offers else ("nothing was pushed",)
    return command.Reply({"offers": offers, "recorded": recorded}, text, status)


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
        return f"{name}: left waiting: {show_name(result.message)} (sent by {sender})"
    if isinstance(result, OfferRefusal):
        said = "nothing new" if result.code is RefusalCode.BEHIND else f"refused: {result.code}"
        return f"{name}: {said}: {result.message} (sent by {sender})"
    return f"{name}: accepted entries {offer.start} to {offer.stop - 1}"


def _status(store: Store, options: command.Options, console: Console) -> command.Reply:
    del options, console
    chains: list[Json] = []
    text: list[str] = []
    with store.steady():
        for chain in store.chains():
            newest = store.newest(chain)
            size = 0 if newest is None else newest.head.size
            # Entries that were pushed, by any sender, and not yet judged.
            waiting = max(0, store.waiting(chain) - size)
            refused = list(store.refused(chain.host, chain.ledger))
            chains.append(_chain_json(chain, newest, waiting, refused))
            came = "nothing accepted yet"
            if newest is not None:
                came = f"{size} entries, the last accepted {newest.at}"
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
    text = ["this plane's own record, the ledger governance: DAMAGED"] if wrong else []
    text += [f"  {problem}" for problem in wrong]
    for report in reports:
        named = command.fields(report, "host", "ledger", "entries", "checkpoints")
        on_record = {"on_record": report.compared, "problems": list(report.problems)}
        chains.append({**named, **on_record})
        said = "DAMAGED" if report.problems else "whole"
        text.append(
            f"{show_name(report.host)} {show_name(report.ledger)}: {said}: {report.entries} "
            f"entries, {report.checkpoints} checkpoints, {report.compared} of them recorded here"
        )
        text += [f"  {problem}" for problem in report.problems]
    if not reports:
        text.append("no host is enrolled")
    if not recorded:
        console.warn(
            "note: this plane has recorded no accepted checkpoint, so entries that were cut off "
            "or rolled back cannot be detected"
        )
    is_damaged = bool(wrong) or any(each.problems for each in reports)
    value: dict[str, Json] = {"chains": chains, "record_problems": list(wrong)}
    return command.Reply(value, text, EXIT_INTEGRITY if is_damaged else EXIT_DONE)


_DSN = command.opt("--dsn", None, f"libpq connection string of the database (default: {VARIABLE})")

COMMAND = command.Command(
    "Collect the ledgers of many hosts in one PostgreSQL database. A host pushes new\n"
    "entries; the collector accepts them if they extend what it has and are signed by the\n"
    "enrolled key, and records that in its own plane. Accepted entries are never changed.",
    "  paddock collector init --let-push web1        (on the collector)\n"
    "  paddock collector keys                        (on the host, to be enrolled)\n"
    "  paddock collector enroll web1 --key KEY       (on the collector)\n"
    "  paddock collector push web1                   (on the host)\n"
    "  paddock collector accept                      (on the collector, regularly)\n"
    "  paddock collector verify",
    command.Part(
        "init",
        "create the tables",
        _init,
        command.opt(
            "--let-push",
            "ROLE",
            "a database role that may only push; may be repeated",
            action="append",
            default=[],
        ),
        _DSN,
    ),
    command.Part("keys", "print the keys of this plane's ledgers", _keys),
    command.Part(
        "enroll",
        "register a host and the keys of its ledgers",
        _stored(_enroll),
        command.opt("host", "HOST", "a name for the host"),
        command.opt(
            "--key", "KEY", "key of a ledger; may be repeated", action="append", required=True
        ),
        _DSN,
    ),
    command.Part(
        "push",
        "send new entries, up to each ledger's checkpoint",
        _stored(_push),
        command.opt("host", "HOST", "this host's name on the collector"),
        _DSN,
    ),
    command.Part(
        "accept", "judge what was pushed, accept it and record it", _stored(_accept), _DSN
    ),
    command.Part("status", "show how many entries each host has sent", _stored(_status), _DSN),
    command.Part(
        "verify", "check all entries again, and against this plane's record", _stored(_verify), _DSN
    ),
)
