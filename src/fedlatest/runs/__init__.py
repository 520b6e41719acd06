"""Runs on disk."""

from fedlatest.runs.clients import ClientRecord
from fedlatest.runs.folder import RunFolder, find_runs, read_manifest
from fedlatest.runs.labels import LabelAccuracy, LabelRow
from fedlatest.runs.metrics import Metrics, Row
from fedlatest.runs.model import TrainedModel, load_model
from fedlatest.runs.participation import Participation

__all__ = [
    "ClientRecord",
    "LabelAccuracy",
    "LabelRow",
    "Metrics",
    "Participation",
    "Row",
    "RunFolder",
    "TrainedModel",
    "find_runs",
    "load_model",
    "read_manifest",
]
