"""Who is here in round r: patterns, chance, traces, and compositions of them."""

from fedlatest.availability.base import Assumption, Availability
from fedlatest.availability.composition import both, either, lifetime, restrict, shift
from fedlatest.availability.named import AVAILABILITY, ClientInfo
from fedlatest.availability.patterns import alternating, always, diurnal, windows
from fedlatest.availability.stochastic import bernoulli, label_rates, markov, sine
from fedlatest.availability.trace import Interval, read_trace, trace, write_trace

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
    "diurnal",
    "either",
    "label_rates",
    "lifetime",
    "markov",
    "read_trace",
    "restrict",
    "shift",
    "sine",
    "trace",
    "windows",
    "write_trace",
]
