"""The server: runs FedLaAvg, with its ledger in a folder."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedlatest.flower import FedLaAvg, Limits, Privacy, SecureAggregation, Timeouts, from_record, to_record

from .task import evaluate, initial_model, load_test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start the job, or continue it."""
    config = context.run_config
    test = load_test()

    def evaluate_at_server(server_round: int, model: ArrayRecord) -> MetricRecord:
        return MetricRecord({**evaluate(from_record(model), *test)})

    secure: SecureAggregation | bool = bool(config["secure"])
    if secure and int(config["min-cohort"]):
        secure = SecureAggregation(min_cohort=int(config["min-cohort"]))
    privacy = None
    if float(config["epsilon"]) > 0:
        privacy = Privacy(
            epsilon=float(config["epsilon"]),
            delta=float(config["delta"]),
            clip_norm=float(config["privacy-clip"]),
            rounds=int(config["rounds"]),
            min_separation=int(config["min-separation"]),
            max_participations=int(config["max-participations"]) or None,
        )
    strategy = FedLaAvg(
        job=str(config["job"]),
        cohort_size=int(config["cohort-size"]),
        memory=str(config["memory"]),
        clip_norm=float(config["clip-norm"]) or None,
        limits=Limits(max_weight=float(config["max-weight"]) or 2.0**30, max_clients=int(config["max-clients"])),
        secure=secure,
        registered_only=bool(config["registered-only"]),
        seed=int(config["seed"]),
        min_clients=int(config["min-clients"]),
        timeouts=Timeouts(deadline=float(config["deadline"]), expire=float(config["expire"]) or None),
        evaluate_nodes_every=int(config["evaluate-nodes-every"]),
        privacy=privacy,
    )
    strategy.start(grid, to_record(initial_model()), num_rounds=int(config["rounds"]), evaluate_fn=evaluate_at_server)
