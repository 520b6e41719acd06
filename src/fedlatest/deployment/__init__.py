"""A federation of real processes on one machine: starting, supervising, fault injection, certificates and keys.

May import `availability` and `ledger`, and starts Flower's programs. The app in `template` uses `flower`.
"""
