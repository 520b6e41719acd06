"""A Flower app without any part of fedlatest: a client adds 1 to a vector, the server takes the mean."""
