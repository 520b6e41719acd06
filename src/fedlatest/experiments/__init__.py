"""Complete experiments, ready to run."""

from fedlatest.experiments.build_federation import FederationBuilder
from fedlatest.experiments.experiment import Experiment, Recipe
from fedlatest.experiments.mnist import mnist
from fedlatest.experiments.quickstart import quickstart
from fedlatest.experiments.sentiment140 import sentiment140
from fedlatest.experiments.tweets import tweets

RECIPES = {recipe.name: recipe for recipe in (quickstart, mnist, tweets, sentiment140)}

__all__ = ["RECIPES", "Experiment", "FederationBuilder", "Recipe"]
