"""The Flower app that `fedlatest deploy init` copies."""
