"""What `paddock collector` shows: answers, the state of each chain, reports."""

from collections.abc import Sequence

from msgspec import Struct

from paddock.apps.cli.console import Console
from paddock.collector.accept import ChainReport, Left, OfferAnswer
from paddock.collector.chains import Accepted, Chain, ChainHead, OfferRefusal, RefusalCode, Refused
from paddock.collector.store import Store
from paddock.text.show import show_name
from paddock.values.calls import Json


def answer_json(answer: OfferAnswer) -> Json:
    """What came of an offer. What it says of itself is a claim.

    One that was not accepted and has no code was left, and waits on.
    """
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
        """One line, and one for each reason that offers were refused for."""
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
    """What is wrong with the collector's own record; nothing where nothing is."""
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
    """One line, and one for each problem."""
    said = "DAMAGED" if report.problems else "whole"
    console.say(
        f"{show_name(report.host)} {show_name(report.ledger)}: {said}: {report.entries} entries, "
        f"{report.checkpoints} checkpoints, {report.compared} of them on record here"
    )
    for problem in report.problems:
        console.say(f"  {problem}")
