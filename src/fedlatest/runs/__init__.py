"""Runs on disk."""

from fedlatest.runs.clients import ClientRecord, Participation
from fedlatest.runs.metrics import LabelAccuracy, LabelRow, Metrics, Row
from fedlatest.runs.run_folder import RunFolder, find_runs, read_manifest

__all__ = [
    "ClientRecord",
    "LabelAccuracy",
    "LabelRow",
    "Metrics",
    "Participation",
    "Row",
    "RunFolder",
    "find_runs",
    "read_manifest",
]
