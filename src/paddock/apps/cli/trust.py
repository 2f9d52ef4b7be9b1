"""`paddock trust`."""

import argparse

from msgspec.structs import replace

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, require_named
from paddock.apps.cli.project import environment_of
from paddock.assembly.agents import AgentStep
from paddock.assembly.trust import review_trust, trust_policy
from paddock.text.show import show_name


class Trust:
    """Show what a project's policy grants, ask, and trust exactly what was shown."""

    summary = (
        "Show what a project's policy grants beyond the defaults and, after a yes, trust it.\n"
        "Trust is in this path and these bytes: a changed file has to be trusted again."
    )
    examples = "  paddock trust\n  paddock trust path/to/clone --yes"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """DIR and --yes."""
        parser.add_argument("directory", nargs="?", metavar="DIR", help="default: here")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def run(self, options: Options, console: Console) -> int:
        """0 trusted, 1 not."""
        require_named("DIR", options.directory)
        named = options.directory or options.plane
        override = None if named is None else console.directory / named
        environment = environment_of(console)
        review = review_trust(console.directory, environment, override)
        # Whoever is asked sees what it grants, whatever the form of the answer.
        (console.warn if options.json else console.say)(review.summary)
        if review.is_trusted and not review.agents.steps:
            return self._end(options, console, "trusted already", trusted=True)
        if not options.yes and not console.agrees("trust this policy? [y/N] "):
            return self._end(options, console, "not trusted", trusted=False)
        left = {
            step.new.name for step in review.agents.steps if _is_refused(step, options, console)
        }
        review = replace(review, agents=review.agents.without(left))
        trust_policy(review, environment, by="--yes" if options.yes else "person")
        return self._end(options, console, "trusted", trusted=True)

    def _end(self, options: Options, console: Console, said: str, *, trusted: bool) -> int:
        if options.json:
            console.write_json({"status": "ok" if trusted else "error", "trusted": trusted})
        else:
            console.say(said)
        return 0 if trusted else 1


def _is_refused(step: AgentStep, options: Options, console: Console) -> bool:
    """Threat: a clone gives its agent a home directory, in a list that nobody reads to its end."""
    if not step.is_outside:
        return False
    if options.yes:
        console.warn(
            f"note: {step.new.name} is left as it is: --yes is no answer about a workspace"
            " outside of the project; paddock trust asks"
        )
        return True
    where = show_name(str(step.workspace))
    return not console.agrees(f"let {step.new.name} work in {where}, outside of it? [y/N] ")


COMMAND = Trust()
