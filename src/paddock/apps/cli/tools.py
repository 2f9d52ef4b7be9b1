"""`paddock tools`."""

import argparse

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import use_project
from paddock.assembly.runtimes import tools_of

_PROVIDERS = ("anthropic", "openai", "openai-responses", "mcp")


class ListTools:
    """The tools of one agent, as a table or as a provider's schemas."""

    summary = "List the tools that an agent has, or print them as a provider's schemas."
    examples = "  paddock tools\n  paddock tools --provider anthropic"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """--agent and --provider."""
        parser.add_argument("--agent", metavar="NAME", help="whose tools (default: main, or admin)")
        parser.add_argument("--provider", choices=_PROVIDERS, help="print that one's schemas")

    def run(self, options: Options, console: Console) -> int:
        """Print them."""
        registry = tools_of(use_project(options, console), options.agent)
        if options.provider is not None:
            console.write_json(registry.for_provider(options.provider))
            return 0
        specs = [tool.spec for tool in registry.list_all()]
        if options.json:
            rows = [
                {
                    "name": spec.name,
                    "title": spec.title,
                    "toolset": spec.toolset,
                    "reads_only": spec.effects.reads_only,
                    "description": spec.description,
                }
                for spec in specs
            ]
            console.write_json(rows)
            return 0
        for spec in specs:
            kind = "reads" if spec.effects.reads_only else "writes"
            console.say(f"{spec.name:<16}{spec.toolset:<12}{kind:<8}{spec.title}")
        return 0


COMMAND = ListTools()
