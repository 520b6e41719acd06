"""The client: trains and tests on its own images."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedlatest.flower import latest_mod

from .task import Net, load_part
from .task import test as test_net
from .task import train as train_net

app = ClientApp(mods=[latest_mod()])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model in the message."""
    net, loader = Net(), _data(context)
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    epochs, rate = int(context.run_config["local-epochs"]), float(msg.content["config"]["lr"])
    loss = train_net(net, loader, epochs=epochs, rate=rate)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Test the model in the message."""
    net, loader = Net(), _data(context)
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loss, accuracy = test_net(net, loader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


def _data(context: Context):
    return load_part(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
