"""A claim, and whether what was measured bears it out."""

from typing import NamedTuple


class Claim(NamedTuple):
    """One row of the table of claims; `holds` is None where it was not judged or not run."""

    group: str
    claim: str
    measured: str
    published: str
    holds: bool | None
