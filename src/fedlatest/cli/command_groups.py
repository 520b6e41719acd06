"""Groups of commands: their help shows whole descriptions, and an unknown command is corrected."""

from typing import Any

import typer
import typer.core

from fedlatest.suggestions import did_you_mean

GROUPS = {
    "Start": ("run", "report", "watch", "list"),
    "Compare": ("arena", "sweep", "plot", "reproduce"),
    "Understand": ("diagnose", "explain", "advise"),
    "Deploy": ("deploy", "audit", "replay", "trace", "expel", "backup", "restore", "convert-trace"),
}
"""The commands of `fedlatest` in the order of the help."""
LONGEST = 1000  # characters of a description; it is wrapped where a terminal is too narrow


class CorrectingGroup(typer.core.TyperGroup):
    """A group that suggests the command that was probably meant."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Return the command that the arguments name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not (ctx.resilient_parsing or name.startswith("-")):
            hint = did_you_mean(name, self.list_commands(ctx), listed=f"{ctx.command_path} --help")
            ctx.fail(f"{name}: no such command{hint}")
        return super().resolve_command(ctx, args)


class GroupedCommands(CorrectingGroup):
    """A group of commands whose help lists them by GROUPS."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names of the commands in the order of the help."""
        del ctx
        return [name for names in GROUPS.values() for name in names]

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write a section for each group."""
        del ctx
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(LONGEST)) for name in names]
                )
