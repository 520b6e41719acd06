"""Entry point of `python -m fedlatest`, the same as the command `fedlatest`."""

from fedlatest.cli import main

main()
