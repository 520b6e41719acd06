"""Closes what a helper of a test has opened, such as the ledger of a job."""

from contextlib import ExitStack

after_test = ExitStack()  # the fixture `_close_after_test` in conftest.py closes it, and what is in it, after each test
