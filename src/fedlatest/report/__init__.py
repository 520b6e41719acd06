"""Reports on runs: tables, figures and the HTML page, made from run folders.

Imports only `runs` of fedlatest's packages, and nothing that imports JAX.
"""

from fedlatest.report.availability_figures import draw_availability, draw_round, draw_sleep, has_sleep
from fedlatest.report.claims import Claim, write_claims
from fedlatest.report.figures import METRICS, Line, draw_curves, draw_loss_and_accuracy, draw_panels
from fedlatest.report.page import write_page
from fedlatest.report.published_curves import PublishedCurve, read_published
from fedlatest.report.run_labels import label_runs
from fedlatest.report.run_records import TITLES, RunRecord, read_runs

__all__ = [
    "METRICS",
    "TITLES",
    "Claim",
    "Line",
    "PublishedCurve",
    "RunRecord",
    "draw_availability",
    "draw_curves",
    "draw_loss_and_accuracy",
    "draw_panels",
    "draw_round",
    "draw_sleep",
    "has_sleep",
    "label_runs",
    "read_published",
    "read_runs",
    "write_claims",
    "write_page",
]
