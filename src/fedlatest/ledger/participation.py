"""Limits on the rounds of a private job and on the participation of its clients; the guarantee rests on them.

The noise of a private job is calculated for a number of rounds, and for clients that take part in at most
`max_participations` of them, with at least `min_separation` rounds from one to the next. The ledger enforces all three
exactly.

What is a participation? The guarantee is about the released models, and these depend on a client's data through the
sums of committed rounds only. So each upload that is applied is a participation, in the round in which it is applied:

- A late reply is applied in a later round than the one in which the client was asked; the later one counts.
- A rebase counts although the client has not trained again: its data enters another sum.
- An upload that was refused or lost, or whose round was not committed, has changed no model and does not count.
- A goodbye does not count. Without remembered updates it is zero. With remembered updates, each released total
  contains one update of norm at most `clip_norm` per client or none, and the noise is calculated for any such
  sequence: removing an update, a new epoch or a lost disk changes the share of a client to another allowed value.

The last point is also why epochs need no further rule: only the number of releases must continue, and it does. (A
mechanism with noise that is correlated over the differences of remembered updates would need one: there, each of
these events is one more difference.)

The counts belong to the client's id and are never reset: not by a new epoch, leaving, expiring, being expelled and
readmitted, nor by the loss of the client's disk. A client with another id is another client.

A ledger that is restored from a backup has forgotten what was released after the backup. `restore` in `job_folder.py`
carries the number of releases over from the ledger that it replaces. In addition, each client keeps its own count, of
the uploads that it has sent, and declines. It cannot know whether an upload was applied, so it counts all of them.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fedlatest.errors import BudgetError, ConfigError, DeclinedError, ProtocolError

if TYPE_CHECKING:
    from fedlatest.ledger.client_table import ClientRow

REQUIRED = ("rounds", "min_separation", "max_participations")


class ParticipationLimits(NamedTuple):
    """How often clients may take part in a job.

    Args:
        rounds: number of rounds for which the noise was calculated; the job has no more.
        min_separation: least difference between the numbers of two rounds in which a client takes part.
        max_participations: largest number of rounds in which a client takes part.
    """

    rounds: int
    min_separation: int
    max_participations: int

    @classmethod
    def of(cls, privacy: Mapping[str, Any] | None) -> "ParticipationLimits | None":
        """Return the limits among the privacy settings of a job; None if the job has none."""
        return None if privacy is None else cls(*(privacy[name] for name in REQUIRED))

    def allow(self, participations: int, last: int | None, round: int) -> bool:
        """Return whether a client may take part in a round.

        Args:
            participations: number of rounds in which it has taken part.
            last: the last of them; None if there is none.
            round: number of the round.

        >>> ParticipationLimits(100, min_separation=3, max_participations=5).allow(1, 10, 12)
        False
        """
        return participations < self.max_participations and (last is None or round - last >= self.min_separation)

    def check_upload(self, client: "ClientRow", round: int) -> None:
        """Raise ProtocolError if the client may not take part in a round."""
        if not self.allow(client.participations, client.last_participation, round):
            raise ProtocolError(f"the client {self._describe(client.participations, client.last_participation)}")

    def check_own_count(self, participations: int, last: int | None, round: int) -> None:
        """Raise DeclinedError if a client has sent too many uploads, or one too recently, for another in a round.

        With a separation of 1, only the number is checked: a client that is asked again in the same round, such as
        after a crash of the server, uploads again.
        """
        if not self.allow(participations, last if self.min_separation > 1 else None, round):
            raise DeclinedError(f"this client {self._describe(participations, last)}")

    def check_round(self, releases: int, clients: "Iterable[ClientRow]") -> None:
        """Raise BudgetError if no further round is allowed, or if no client may ever take part again.

        Args:
            releases: number of rounds that were committed so far, including those that a restore has undone.
            clients: the clients of the job.
        """
        if releases >= self.rounds:
            raise BudgetError(
                f"the privacy budget is spent: {releases} rounds were released, {self.rounds} are allowed; the model "
                "is final. A new job in another folder has a budget of its own, which adds to this one"
            )
        counts = [client.participations for client in clients]
        if counts and min(counts) >= self.max_participations:
            raise BudgetError(
                f"the privacy budget is spent: each of the {len(counts)} clients has taken part in "
                f"{self.max_participations} rounds, which is the maximum, after {releases} of {self.rounds} rounds; "
                "the model is final unless other clients join"
            )

    def _describe(self, participations: int, last: int | None) -> str:
        if participations >= self.max_participations:
            return f"has taken part in {participations} rounds; at most {self.max_participations} are allowed"
        return f"took part in round {last}; it may again from round {(last or 0) + self.min_separation} on"


def check_privacy(privacy: Mapping[str, Any], clip_norm: float | None) -> None:
    """Raise ConfigError unless the privacy settings of a job are complete.

    Args:
        privacy: the settings.
        clip_norm: the largest norm of an update.
    """
    for name in REQUIRED:
        value = privacy.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"privacy: {name}={value!r}: must be an integer, at least 1")
    if clip_norm is None:
        raise ConfigError("clip_norm=None: privacy needs a bound on the norm of an update")


def shares_metrics(privacy: Mapping[str, Any] | None, secure: Mapping[str, Any] | None = None) -> bool:
    """Return whether clients send metrics and training seconds: in a private or secure job only if it allows that.

    >>> shares_metrics(None), shares_metrics(None, {"share_metrics": False}), shares_metrics({"share_metrics": True})
    (True, False, True)
    """
    return all(settings is None or bool(settings.get("share_metrics")) for settings in (privacy, secure))
