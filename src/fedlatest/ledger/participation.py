"""Limits on how often and how closely together a client takes part: what differential privacy rests on.

The noise of a private job is calculated for clients that take part in at most `max_participations` rounds, with at
least `min_separation` rounds from one to the next. The ledger enforces both for every client, exactly.

What is a participation? The guarantee is about the released models, and these depend on a client's data through the
sum only. So each committed round in which a client's data changes the sum of its epoch is a participation:

- an upload after training, in the round in which it is applied. A late reply is applied in a later round than the one
  in which the client was asked; the later one counts;
- a rebase, which adds the update to the sum of the new epoch, although the client has not trained again;
- a goodbye that removes an update from the sum: the change is the negative of the update. A goodbye that removes
  nothing is zero and does not count.

An upload that was refused or lost, or whose round was not committed, has changed no model and does not count.

What happens at a change of the epoch? The sum becomes zero without any upload. If the noise continued, the next model
would show the negative of every update in the sum: a participation of all clients at once, at any distance from their
last one. Therefore each epoch has its own sequence of noise, which starts with its first round: the old sum is not
compared with the new one in any released model. The counts continue over epochs. That is safe: let C be the matrix of
the noise plan, with z = noise of the rounds and C^-1 z the noise in the differences. A new sequence replaces C by its
diagonal blocks, one per epoch. All entries of C are at least 0, so no sensitivity increases.

The counts belong to the client's id and are never reset: not by an epoch, a resync, leaving, expiring, being expelled
and readmitted, nor by the loss of the client's disk. A client that has changed its id is another client.

A ledger restored from a backup has forgotten the participations after the backup. As a second line of defence, a client
keeps its own count, of the uploads that it has sent, and declines. It cannot know whether an upload was applied, so it
also counts those that were lost.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fedlatest.errors import BudgetError, ConfigError, DeclinedError, ProtocolError

if TYPE_CHECKING:
    from fedlatest.ledger.client_table import ClientRow
    from fedlatest.ledger.messages import Reply

REQUIRED = ("rounds", "min_separation", "max_participations")
SHARE_METRICS = "share_metrics"  # whether clients send their metrics, which have no noise


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
        """Raise DeclinedError if a client has sent too many uploads, or one too recently, for another in a round."""
        if not self.allow(participations, last, round):
            raise DeclinedError(f"this client {self._describe(participations, last)}")

    def check_round(self, round: int, clients: "Iterable[ClientRow]") -> None:
        """Raise BudgetError if a round would exceed the rounds of the plan, or no client may ever take part again."""
        if round >= self.rounds:
            raise BudgetError(
                f"the privacy budget is spent: {round} rounds of {self.rounds} are done; the model is final. For more "
                "rounds, start a new job with a new budget, which adds to this one for the same clients"
            )
        counts = [client.participations for client in clients]
        if counts and min(counts) >= self.max_participations:
            raise BudgetError(
                f"the privacy budget is spent: each of the {len(counts)} clients has taken part in "
                f"{self.max_participations} rounds, which is the maximum, after {round} of {self.rounds} rounds; the "
                "model is final unless other clients join"
            )

    def _describe(self, participations: int, last: int | None) -> str:
        if participations >= self.max_participations:
            return f"has taken part in {participations} rounds; at most {self.max_participations} are allowed"
        return f"took part in round {last}; it may again from round {(last or 0) + self.min_separation} on"


def is_participation(reply: "Reply") -> bool:
    """Return whether an upload depends on the client's data; a goodbye that removes nothing does not."""
    return reply.kind == "upload" or reply.base is not None


def check_privacy(privacy: Mapping[str, Any], memory: str, clip_norm: float | None) -> None:
    """Raise ConfigError unless privacy settings of a job are complete and the job can keep them.

    Args:
        privacy: the settings.
        memory: where updates are stored, as in `JobConfig`.
        clip_norm: the largest norm of an update.
    """
    for name in REQUIRED:
        value = privacy.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"privacy: {name}={value!r}: must be an integer, at least 1")
    if memory == "server":
        raise ConfigError(
            "memory='server': with privacy the server must not be able to remove one update from the sum (that would "
            "be a participation at a time that nobody planned); choose memory='client'"
        )
    if clip_norm is None:
        raise ConfigError("clip_norm=None: privacy needs a bound on the norm of an update")


def client_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a job that clients need, from `JobConfig.as_dict`: without the server's noise plan."""
    privacy = config.get("privacy")
    if privacy is None:
        return dict(config)
    return {**config, "privacy": {name: privacy[name] for name in (*REQUIRED, SHARE_METRICS) if name in privacy}}


def shares_metrics(settings: Mapping[str, Any]) -> bool:
    """Return whether clients send the metrics of their training: in a private job only if it allows that."""
    privacy = settings.get("privacy")
    return privacy is None or bool(privacy.get(SHARE_METRICS))
