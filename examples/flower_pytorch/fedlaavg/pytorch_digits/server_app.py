"""The server: an initial model, a strategy, and a test after every round."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedlatest.flower import FedLaAvg

from .task import Net, load_test, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train and save the model."""
    config = context.run_config
    strategy = FedLaAvg(job=config["job"], cohort_size=2)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["rounds"],
        evaluate_fn=evaluate,
    )
    torch.save(result.arrays.to_torch_state_dict(), "model.pt")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the loss and the accuracy on test images, which no client has."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(net, load_test())
    return MetricRecord({"loss": loss, "accuracy": accuracy})
