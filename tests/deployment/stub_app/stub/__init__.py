"""A Flower app that does not use fedlatest: a client adds 1 to a vector, and the server computes the mean."""
