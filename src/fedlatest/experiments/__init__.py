"""Named recipes and their settings, and the simulations behind the paper's theory.

A recipe (`quickstart`, `digits`, `mnist`, `cifar10`, `tweets`, `sentiment140`) turns KEY=VALUE overrides into
experiments. May import algorithms, availability, data, models, simulation, streams and theory; not reproduction, report
or cli.
"""

from fedlatest.experiments.cifar10 import cifar10
from fedlatest.experiments.digits import digits
from fedlatest.experiments.experiment import Experiment, FederationBuilder, Recipe
from fedlatest.experiments.mnist import mnist
from fedlatest.experiments.quickstart import quickstart
from fedlatest.experiments.sentiment140 import sentiment140, tweets

RECIPES = {recipe.name: recipe for recipe in (quickstart, digits, mnist, cifar10, tweets, sentiment140)}

__all__ = ["RECIPES", "Experiment", "FederationBuilder", "Recipe"]
