"""Run folders -> tables and figures; never trains."""

from fedlatest.report.claims import Claim, write_claims
from fedlatest.report.figures import draw_curves
from fedlatest.report.published import PublishedCurve, read_published
from fedlatest.report.records import TITLES, RunRecord, read_runs

__all__ = [
    "TITLES",
    "Claim",
    "PublishedCurve",
    "RunRecord",
    "draw_curves",
    "read_published",
    "read_runs",
    "write_claims",
]
