"""Availability models: which clients are available in round r.

Holds repeating patterns, random models, recorded traces and importers of published ones, compositions of models, and a
registry of named models. May import `fedlatest.data`, `fedlatest.streams`, `fedlatest.digest`, `fedlatest.files`,
`fedlatest.paths` and `fedlatest.errors`.
"""

from fedlatest.availability.base import Assumption, Availability
from fedlatest.availability.client_info import ClientInfo
from fedlatest.availability.composition import both, either, lifetime, restrict, shift
from fedlatest.availability.named import AVAILABILITY
from fedlatest.availability.patterns import alternating, always, diurnal, windows
from fedlatest.availability.stochastic import (
    bernoulli,
    interleaved_sine,
    label_rates,
    markov,
    sine,
    staircase,
)
from fedlatest.availability.trace import devices_of_clients, trace
from fedlatest.availability.trace_files import Interval, read_trace, write_trace

__all__ = [
    "AVAILABILITY",
    "Assumption",
    "Availability",
    "ClientInfo",
    "Interval",
    "alternating",
    "always",
    "bernoulli",
    "both",
    "devices_of_clients",
    "diurnal",
    "either",
    "interleaved_sine",
    "label_rates",
    "lifetime",
    "markov",
    "read_trace",
    "restrict",
    "shift",
    "sine",
    "staircase",
    "trace",
    "windows",
    "write_trace",
]
