"""Run folders -> tables and figures; never trains."""

from fedlatest.report.figures import draw_curves
from fedlatest.report.records import RunRecord, read_runs

__all__ = ["RunRecord", "draw_curves", "read_runs"]
