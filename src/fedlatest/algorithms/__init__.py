"""Federated algorithms, one per file: each factory returns a frozen `Algorithm`.

To add one, write its file and import its factory here; the import registers it for the command line and for
`fedlatest.NAME`. This package imports nothing of fedlatest but `errors`, `identity` and `streams`.
"""

from inspect import isfunction

from fedlatest.algorithms.ace import ace as ace
from fedlatest.algorithms.aced import aced as aced
from fedlatest.algorithms.amplified_fedavg import amplified_fedavg as amplified_fedavg
from fedlatest.algorithms.amplified_scaffold import amplified_scaffold as amplified_scaffold
from fedlatest.algorithms.base import Algorithm as Algorithm
from fedlatest.algorithms.ca2fl import ca2fl as ca2fl
from fedlatest.algorithms.ca_fed import ca_fed as ca_fed
from fedlatest.algorithms.f3ast import f3ast as f3ast
from fedlatest.algorithms.fedadam import fedadam as fedadam
from fedlatest.algorithms.fedasync import fedasync as fedasync
from fedlatest.algorithms.fedau import fedau as fedau
from fedlatest.algorithms.fedavg import fedavg as fedavg
from fedlatest.algorithms.fedawe import fedawe as fedawe
from fedlatest.algorithms.fedbuff import fedbuff as fedbuff
from fedlatest.algorithms.feddyn import feddyn as feddyn
from fedlatest.algorithms.fedlaavg import fedlaavg as fedlaavg
from fedlatest.algorithms.fedlaavg_async import fedlaavg_async as fedlaavg_async
from fedlatest.algorithms.fedlaavg_fresh import fedlaavg_fresh as fedlaavg_fresh
from fedlatest.algorithms.fednova import fednova as fednova
from fedlatest.algorithms.fedprox import fedprox as fedprox
from fedlatest.algorithms.fedsgd import fedsgd as fedsgd
from fedlatest.algorithms.fedstale import fedstale as fedstale
from fedlatest.algorithms.fedvarp import fedvarp as fedvarp
from fedlatest.algorithms.fedyogi import fedyogi as fedyogi
from fedlatest.algorithms.flexible import flexible as flexible
from fedlatest.algorithms.focus import focus as focus
from fedlatest.algorithms.inverse_probability import inverse_probability as inverse_probability
from fedlatest.algorithms.mifa import mifa as mifa
from fedlatest.algorithms.naive import naive as naive
from fedlatest.algorithms.scaffold import scaffold as scaffold
from fedlatest.algorithms.sequential import sequential as sequential

ASYNCHRONOUS = {factory.__name__: factory for factory in (ace, aced, ca2fl, fedasync, fedbuff, fedlaavg_async)}
"""Factories of algorithms without rounds, by name; they run with a `Timing` only."""

ALGORITHMS = {
    name: value
    for name, value in globals().items()
    if isfunction(value) and value.__module__ == f"fedlatest.algorithms.{name}" and name not in ASYNCHRONOUS
}
"""Every factory of an algorithm with synchronous rounds by its name; a factory is the function that has the name of its
file."""
