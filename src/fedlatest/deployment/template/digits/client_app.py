"""The client: trains and evaluates on its own examples."""

from fedlatest.flower import ClientResult, ClientTask, client_app

from .task import Arrays, evaluate, load_part, train


def fit(model: Arrays, task: ClientTask) -> ClientResult:
    """Train on this client's examples."""
    number, config = int(task.node_config["partition-id"]), task.run_config
    features, labels = load_part(number, int(task.node_config["num-partitions"]))
    trained, loss = train(
        model,
        features,
        labels,
        steps=int(config["local-steps"]),
        batch_size=int(config["batch-size"]),
        rate=float(config["learning-rate"]),
        seed=(int(config["seed"]), number, task.round),
    )
    return ClientResult(len(labels), {"train_loss": loss}, trained)


def score(model: Arrays, task: ClientTask) -> ClientResult:
    """Evaluate on this client's examples."""
    features, labels = load_part(int(task.node_config["partition-id"]), int(task.node_config["num-partitions"]))
    return ClientResult(len(labels), evaluate(model, features, labels))


app = client_app(fit, evaluate=score)
