"""A client that adds 1, and counts the messages in its state folder."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    folder = Path(str(context.node_config["state-dir"]))
    counter = folder / "count"
    count = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(count))
    [array] = message.content.array_records["x"].to_numpy_ndarrays()
    content = RecordDict(
        {
            "x": ArrayRecord([np.asarray(array) + 1]),
            "about": ConfigRecord({"name": str(context.node_config["name"]), "count": count}),
        }
    )
    return Message(content, reply_to=message)
