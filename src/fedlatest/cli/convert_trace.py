"""The command `convert-trace`: published traces of devices as a trace that the simulator replays."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedlatest.cli.app import app, out, print_next, show_notes
from fedlatest.errors import ConfigError

ENDINGS = (".csv", ".csv.gz", ".parquet")


class Format(StrEnum):
    """The formats that can be read."""

    AUTO = "auto"
    CSV = "csv"
    FLASH = "flash"
    FEDSCALE = "fedscale"


@app.command("convert-trace")
def convert_trace(
    source: Annotated[Path, typer.Argument(help="The file to read.")],
    to: Annotated[Path, typer.Option("--out", help="The trace to write: .csv, .csv.gz or .parquet.")],
    trace_format: Annotated[
        Format, typer.Option("--format", help="Format of the source; csv includes .csv.gz and .parquet.")
    ] = Format.AUTO,
) -> None:
    """Convert a published trace to one that can be replayed.

    The result has the format that `--set availability=trace` replays. The command also describes it.
    """
    from fedlatest.availability.recorded_devices import read_devices, summarise
    from fedlatest.availability.trace_files import write_intervals

    if not to.name.endswith(ENDINGS):
        raise ConfigError(f"--out {to}: the name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    devices = read_devices(source, trace_format.value)
    show_notes(list(devices.notes))
    summary = summarise(devices)
    write_intervals(to, devices.intervals)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in (
        ("clients", f"{summary.num_devices:,}"),
        ("never available", f"{summary.num_never_available:,}"),
        ("intervals", f"{summary.num_intervals:,}"),
        ("length", f"{summary.length:,.12g}"),
        ("mean availability", f"{summary.mean_availability:.1%}"),
        ("longest absence", f"{summary.longest_absence:,.12g}"),
        ("longest absence, median over clients", f"{summary.median_longest_absence:,.12g}"),
    ):
        table.add_row(name, value)
    out.print(table)
    out.print(f"trace: {to}", soft_wrap=True)
    print_next("diagnose", to)
