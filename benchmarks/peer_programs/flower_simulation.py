"""FedAvg in Flower's simulation (Ray), with its message API; clients train in NumPy. One core per client at a time."""

import sys

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import BATCH, CLASSES, CLIENTS, COHORT, PIXELS, RATE, SAMPLES, STEPS, Stopwatch, make_data

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
client_app, server_app, watch = ClientApp(), ServerApp(), Stopwatch()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train for STEPS steps on the samples of one client."""
    client = int(context.node_config["partition-id"])
    features, labels = (part[client] for part in make_data())
    weight, bias = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
    order = np.random.default_rng().permutation(SAMPLES)
    for step in range(STEPS):
        rows = order[step * BATCH : (step + 1) * BATCH]
        logits = features[rows] @ weight.T + bias
        errors = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(BATCH), labels[rows]] -= 1
        weight -= np.float32(RATE / BATCH) * (errors.T @ features[rows])
        bias -= np.float32(RATE / BATCH) * errors.sum(axis=0)
    content = RecordDict({"arrays": ArrayRecord([weight, bias]), "metrics": MetricRecord({"num-examples": SAMPLES})})
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the rounds; the evaluation at the server, which follows each round, notes its end."""
    del context
    strategy = FedAvg(fraction_train=COHORT / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    model = ArrayRecord([np.zeros((CLASSES, PIXELS), np.float32), np.zeros(CLASSES, np.float32)])

    def note_end(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        del arrays
        if server_round:
            watch.round_done()
        return MetricRecord({})

    strategy.start(grid, model, num_rounds=ROUNDS + 1, evaluate_fn=note_end)


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1}},
        verbose_logging=False,
    )
    watch.report()
