"""What a job's event log says: how far it is, how well it does, and who took part."""

from dataclasses import dataclass, field

from fedlatest.ledger.events import Event


@dataclass
class JobView:
    """A job as seen from outside, event by event; see `fedlatest.flower` for the events."""

    rounds: int | None = None
    round: int | None = None
    finished: bool = False
    runs: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # in the present round
    staleness: dict[str, int] = field(default_factory=dict)
    num_applied: dict[str, int] = field(default_factory=dict)
    merged_rounds: int = 0
    seconds: float = 0.0  # that merged rounds took, together
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None

    def hear(self, event: Event) -> None:
        """Take in one event; events and facts that it does not know are left alone."""
        match event["event"]:
            case "job":
                self.rounds, self.finished = event.get("rounds"), False
                self.runs.append(event.get("run", 0))
            case "round":
                self.round, self.asked = event["round"], []
            case "asked":
                self.asked = list(event["clients"])
            case "merged":
                self._merged(event)
            case "evaluated":
                self.test_loss, self.test_accuracy = event.get("test_loss"), event.get("test_accuracy")
            case "finished":
                self.finished = True

    def _merged(self, event: Event) -> None:
        self.merged_rounds += 1
        self.seconds += event.get("seconds", 0.0)
        if event.get("train_loss") is not None:
            self.train_loss = event["train_loss"]
        self.staleness.update(event.get("staleness", {}))
        for client in event.get("applied", []):
            self.num_applied[client] = self.num_applied.get(client, 0) + 1
