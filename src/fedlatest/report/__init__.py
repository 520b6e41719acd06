"""Run folders -> tables, figures and one HTML page; never trains."""

from fedlatest.report.claims import Claim
from fedlatest.report.figures import draw_curves
from fedlatest.report.page import write_page
from fedlatest.report.published import PublishedCurve
from fedlatest.report.records import RunRecord, read_runs

__all__ = ["Claim", "PublishedCurve", "RunRecord", "draw_curves", "read_runs", "write_page"]
