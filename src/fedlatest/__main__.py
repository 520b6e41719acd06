"""`python -m fedlatest` is the command line."""

from fedlatest.cli import main

main()
