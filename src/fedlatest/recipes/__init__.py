"""Complete experiments, ready to run."""

from fedlatest.recipes.experiment import Dealer, Experiment, Recipe
from fedlatest.recipes.mnist import mnist
from fedlatest.recipes.quickstart import quickstart

RECIPES = {recipe.name: recipe for recipe in (quickstart, mnist)}

__all__ = ["RECIPES", "Dealer", "Experiment", "Recipe"]
