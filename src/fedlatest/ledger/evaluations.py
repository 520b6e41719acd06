"""The evaluations of a job: the metrics that were measured after some of its rounds."""

import json
from collections.abc import Mapping
from typing import Any

from fedlatest.ledger.database import Database


def write_evaluation(database: Database, round: int, metrics: Mapping[str, Any]) -> None:
    """Record the metrics of the model after `round` rounds, inside a transaction of the server that owns the ledger.

    Args:
        database: the ledger's file.
        round: number of rounds before the evaluation.
        metrics: numbers by name; those that are None are left out.
    """
    known = {name: value for name, value in metrics.items() if value is not None}
    database.execute("INSERT OR REPLACE INTO evaluations VALUES (?, ?)", round, json.dumps(known))


def read_evaluations(database: Database) -> list[dict[str, Any]]:
    """Return the metrics of all evaluations, ordered by round."""
    return [json.loads(metrics) for (metrics,) in database.rows("SELECT metrics FROM evaluations ORDER BY round")]
