"""The diagnosis of a fleet: how available its clients are, what follows for training, and what to use.

NumPy only; nothing is trained. May import `files`, `runs` and `theory`.
"""

from fedlatest.diagnosis.correlation import Association, CorrelationFacts
from fedlatest.diagnosis.diagnosis import Diagnosis, Training, diagnose, read_diagnosis, write_diagnosis
from fedlatest.diagnosis.fedavg_bias import FedAvgBias, LabelShift, fedavg_weights
from fedlatest.diagnosis.fleet import Fleet, JobFacts, Spells, fleet_of_spells, fleet_of_table
from fedlatest.diagnosis.pictures import FleetPictures
from fedlatest.diagnosis.recommendation import Advice, Recommendation
from fedlatest.diagnosis.resonance import ResonanceFacts
from fedlatest.diagnosis.round_rates import RoundRate
from fedlatest.diagnosis.statistics import AvailabilityFacts

__all__ = [
    "Advice",
    "Association",
    "AvailabilityFacts",
    "CorrelationFacts",
    "Diagnosis",
    "FedAvgBias",
    "Fleet",
    "FleetPictures",
    "JobFacts",
    "LabelShift",
    "Recommendation",
    "ResonanceFacts",
    "RoundRate",
    "Spells",
    "Training",
    "diagnose",
    "fedavg_weights",
    "fleet_of_spells",
    "fleet_of_table",
    "read_diagnosis",
    "write_diagnosis",
]
