"""Complete experiments, ready to run."""

from fedlatest.recipes.dealer import Dealer
from fedlatest.recipes.experiment import Experiment, Recipe
from fedlatest.recipes.mnist import mnist
from fedlatest.recipes.quickstart import quickstart
from fedlatest.recipes.sentiment140 import sentiment140
from fedlatest.recipes.tweets import tweets

RECIPES = {recipe.name: recipe for recipe in (quickstart, mnist, tweets, sentiment140)}

__all__ = ["RECIPES", "Dealer", "Experiment", "Recipe"]
