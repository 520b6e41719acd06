"""Run folders: manifest, metrics, participation, checkpoints and final model of a run; written and read without JAX.

Imports no other fedlatest package (only the modules `errors`, `files` and `version`).
"""

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
