"""Runs on disk."""

from fedlatest.runs.clients import ClientRecord, Participation
from fedlatest.runs.metrics import LabelAccuracy, LabelRow, Metrics, Row
from fedlatest.runs.run_folder import RunFolder, find_runs, read_manifest
from fedlatest.simulation.trained_model import TrainedModel, load_model

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
