"""A round loop with a deadline, an event log, and a state file from which a new run continues."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    job, rounds, deadline = Path(str(config["job"])), int(config["rounds"]), float(config["deadline"])
    state_file = job / "state.json"
    state: dict[str, Any] = json.loads(state_file.read_text()) if state_file.exists() else {"round": 0, "x": [0.0] * 4}
    note(job, "job", job="stub", rounds=rounds, round=state["round"], run=context.run_id)
    if config["crash"]:
        raise RuntimeError("the app was told to crash")
    for round in range(state["round"], rounds):
        note(job, "round", round=round)
        begin = time.time()
        nodes = {node.node_id: node for node in grid.get_nodes()}
        while not nodes and time.time() < begin + deadline:  # a node needs some seconds to connect
            time.sleep(0.5)
            nodes = {node.node_id: node for node in grid.get_nodes()}
        (job / "nodes.json").write_text(
            json.dumps([[n.node_id, n.name, n.public_key.hex(), n.status] for n in nodes.values()])
        )
        replies = ask(grid, round, list(nodes), np.asarray(state["x"]), deadline)
        names = [str(reply.content.config_records["about"]["name"]) for reply in replies]
        if replies:
            arrays = [reply.content.array_records["x"].to_numpy_ndarrays()[0] for reply in replies]
            state["x"] = np.mean(arrays, axis=0).tolist()
        state["round"] = round + 1
        draft = job / "state.draft"
        draft.write_text(json.dumps(state))
        draft.replace(state_file)
        note(
            job, "merged", round=round, here=names, applied=names, declined=[], late=[], refused=[],
            unanswered=[], staleness=dict.fromkeys(names, 0), train_loss=1.0 / (1.0 + state["x"][0]),
            seconds=time.time() - begin, own_seconds=0.0, asked=len(nodes),
        )  # fmt: skip
        note(job, "evaluated", round=round, test_loss=1.0 / (1.0 + state["x"][0]), test_accuracy=0.5)
    note(job, "finished", round=rounds)


def ask(grid: Grid, round: int, nodes: list[int], array: Any, deadline: float) -> list[Message]:
    end = time.time() + deadline
    messages = [
        Message(RecordDict({"x": ArrayRecord([array])}), dst_node_id=node, message_type="train", group_id=str(round))
        for node in nodes
    ]
    waiting = set(grid.push_messages(messages))
    replies: list[Message] = []
    while waiting and time.time() < end:
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            if reply.has_content():
                replies.append(reply)
        time.sleep(0.2)
    return replies


def note(folder: Path, event: str, **facts: Any) -> None:
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": time.time(), "event": event, **facts}) + "\n")
