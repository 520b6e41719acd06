"""Secure jobs in one process: the same model as without masks, and rounds that count completely or not at all."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from fedlatest.algorithms import fedavg, fedlaavg_fresh
from fedlatest.errors import ConfigError
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, SecureAggregation, client_app
from fedlatest.flower.local_grid import ReplyHook
from fedlatest.flower.message_records import PROTOCOL, read_reply
from fedlatest.ledger import Limits
from tests.flower.small_job import INITIAL, SmallJob, Weights, lose, towards

SECURE = SecureAggregation(min_cohort=2, num_decryptors=4)


def secure_job(folder: Path, **options: Any) -> SmallJob:
    return SmallJob(folder, **{"clients": "abcde", "cohort_size": 4, "secure": SECURE, **options})


def kind_of(message: Message) -> str:
    if message.has_error() or PROTOCOL not in message.content:
        return ""
    header = str(message.content[PROTOCOL]["header"])
    return header.split('"')[3]


@pytest.mark.parametrize("algorithm", [None, fedlaavg_fresh(weighting="update"), fedavg(weighting="none")])
def test_equals_the_job_without_masks(algorithm: Any, tmp_path: Path) -> None:
    """Model, sum, number of clients and total weight are bit for bit those of the same job without masks."""
    plain, secure = (
        SmallJob(tmp_path / str(settings), clients="abcde", cohort_size=3, algorithm=algorithm, secure=settings)
        for settings in (False, True)
    )
    for online in ("abcde", "abc", "cde", "abcde", "bcde"):
        outcomes = [job.run_round(online) for job in (plain, secure)]
        assert outcomes[0].accepted == outcomes[1].accepted
        np.testing.assert_array_equal(plain.loop.model["w"], secure.loop.model["w"])
        np.testing.assert_array_equal(plain.ledger.total, secure.ledger.total)
        assert plain.ledger.sums().num_clients == secure.ledger.sums().num_clients
    if algorithm is None:
        assert plain.ledger.sums().total_weight == secure.ledger.sums().total_weight == 10
    assert secure.audit().holds


def test_the_server_learns_no_metrics(tmp_path: Path) -> None:
    job = secure_job(tmp_path)
    outcome = job.run_round()
    assert outcome.metrics == {}
    assert {client.weight for client in job.ledger.clients() if client.has_contributed} == {2.0}
    assert job.ledger.sums().total_weight == 8.0
    allowed = secure_job(tmp_path / "allowed", secure=SecureAggregation(2, 4, share_metrics=True))
    assert allowed.run_round().metrics == {"train_loss": 1.0}


def test_no_client_can_make_the_total_weight_negative(tmp_path: Path) -> None:
    """The weight is outside of the mask: one that is not in range is refused, so that each step goes the right way."""
    job = secure_job(tmp_path, limits=Limits(max_weight=4))

    def claim(weight: str) -> ReplyHook:
        def change(node: int, message: Message) -> Message:
            record = message.content[PROTOCOL]
            assert isinstance(record, ConfigRecord)
            record["header"] = str(record["header"]).replace('"weight": 2.0', f'"weight": {weight}')
            return message

        return change

    for weight in ("-1000.0", "0.0", "5.0"):
        job.change_next_upload(claim(weight), of="a")
        before = job.loop.model["w"].copy()
        while "a" not in job.run_round().asked:
            pass
        assert "weight" in job.events("refused")[-1]["why"]
        assert job.ledger.sums().total_weight in (6.0, 8.0)
        assert (job.loop.model["w"] > before).all(), "all clients train towards a larger model"
    assert job.audit().holds


def test_a_client_that_drops_out_is_left_out_of_the_sum(tmp_path: Path) -> None:
    """The others' masks with it are removed; its next upload starts from the update in the sum."""
    job = secure_job(tmp_path)
    job.run_round()
    dropped = job.run_round("abcde").accepted[0]
    job.change_next_upload(lose, of=dropped)
    outcomes = [job.run_round() for _ in range(4)]
    assert any(dropped in outcome.missed for outcome in outcomes)
    assert all(len(outcome.accepted) >= 3 for outcome in outcomes)
    assert job.audit().holds
    assert any(dropped in job.run_round().accepted for _ in range(6))
    assert job.audit().holds


def test_nothing_counts_without_enough_decryptors(tmp_path: Path) -> None:
    """All uploads arrive, but no decryptor answers: model and sum do not change, and the next round works."""
    job = secure_job(tmp_path)
    job.run_round()
    model, total = job.loop.model["w"].copy(), job.ledger.total.copy()

    def without_shares(node: int, message: Message) -> Message | None:
        return None if kind_of(message) == "unmasked" else message

    job.grid.on_reply = without_shares
    outcome = job.run_round()
    assert len(outcome.collected) == 4
    assert outcome.accepted == outcome.missed == []
    np.testing.assert_array_equal(job.loop.model["w"], model)
    np.testing.assert_array_equal(job.ledger.total, total)
    assert "too few decryptors answered" in job.events("session_failed")[-1]["why"]
    assert job.audit().holds
    job.grid.on_reply = lambda node, message: message
    assert len(job.run_round().accepted) == 4
    assert job.audit().holds


def test_one_lying_decryptor_is_tolerated(tmp_path: Path) -> None:
    """Its answer does not fit those of the others, and theirs are enough."""
    job = secure_job(tmp_path)
    lies: list[bytes] = []

    def lie_once(node: int, message: Message) -> Message:
        if kind_of(message) == "unmasked" and not lies:
            record = message.content[PROTOCOL]
            assert isinstance(record, ConfigRecord)
            answer = json.loads(cast(bytes, record["payload"]))
            lies.append(json.dumps({**answer, "keys": answer["keys"][::-1]}).encode())
            record["payload"] = lies[0]
        return message

    job.grid.on_reply = lie_once
    outcome = job.run_round()
    assert lies
    assert len(outcome.accepted) == 4
    assert job.audit().holds


def test_too_few_uploads_are_not_unmasked(tmp_path: Path) -> None:
    job = secure_job(tmp_path, clients="abc", cohort_size=3, secure=SecureAggregation(min_cohort=3, num_decryptors=3))
    job.change_next_upload(lose, of="a")
    outcome = job.run_round()
    assert outcome.accepted == []
    assert "too few to unmask" in job.events("session_failed")[-1]["why"]
    assert sorted([job.run_round().accepted for _ in range(4)][-1]) == ["a", "b", "c"]
    assert job.audit().holds


def test_no_session_with_fewer_clients_than_the_minimum(tmp_path: Path) -> None:
    job = secure_job(tmp_path, secure=SecureAggregation(min_cohort=3))
    assert job.run_round("ab").asked == []
    assert len(job.run_round("abc").accepted) == 3


def test_a_server_that_stops_between_collecting_and_unmasking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new server has nothing of the session; no client has lost its update, and the next round works."""
    job = secure_job(tmp_path)
    job.run_round()
    total = job.ledger.total.copy()

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    assert job.ledger.secure is not None
    monkeypatch.setattr(job.ledger.secure, "requests", stop)
    with pytest.raises(KeyboardInterrupt):
        job.run_round()
    job.ledger.close()
    job.reopen()
    np.testing.assert_array_equal(job.ledger.total, total)
    assert job.audit().holds
    assert len(job.run_round().accepted) == 4
    assert job.audit().holds


@pytest.mark.parametrize("restarts", [True, False])
def test_a_client_that_leaves_is_removed_with_a_new_epoch(restarts: bool, tmp_path: Path) -> None:
    """The server learns that it leaves from its hello, or when it asks the client to train."""
    job = secure_job(tmp_path)
    for _ in range(3):
        job.run_round()
    assert job.ledger.sums().total_weight == 10.0
    assert job.store("a").leave(job.ledger.job)
    if restarts:
        job.messages.forget("a")  # as if its node had restarted
    outcomes = [job.run_round() for _ in range(4)]
    assert restarts == (["a"] not in [outcome.left for outcome in outcomes])
    assert [event["why"] for event in job.events("resync")] == ["a: the client had asked to leave"]
    assert [event["client"] for event in job.events("left")] == ["a"]
    assert all(outcome.accepted for outcome in outcomes)
    assert job.ledger.sums().total_weight == 8.0
    audit = job.audit()
    assert audit.holds
    assert sorted(audit.in_sum) == ["b", "c", "d", "e"]


def test_a_lost_disk_starts_a_new_epoch(tmp_path: Path) -> None:
    """The sum is empty then, and clients come back by training."""
    job = secure_job(tmp_path)
    for _ in range(2):
        job.run_round()
    for path in sorted((tmp_path / "nodes/a/state").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    job.messages.forget("a")
    for _ in range(4):
        job.run_round()
    assert job.events("resync")
    audit = job.audit()
    assert audit.holds
    assert len(audit.in_sum) == 5
    assert job.ledger.sums().total_weight == 10.0


def test_a_late_upload_does_not_count(tmp_path: Path) -> None:
    """Its session has ended; the client's next upload starts from the update in the sum."""
    job = secure_job(tmp_path)
    held: list[Message] = []

    def hold(node: int, message: Message) -> Message | None:
        if node == job.nodes["a"] and kind_of(message) == "upload":
            held.append(message)
            return None
        return message

    job.grid.on_reply = hold
    while not held:
        job.run_round()
    job.grid.on_reply = lambda node, message: message
    reply = read_reply(held[0], size=INITIAL["w"].size, dtype=np.dtype("<u8"))
    verdict = job.ledger.handle_reply(reply)
    assert (verdict.outcome, verdict.why) == ("refused", "the session of the upload has ended")
    assert job.audit().holds


def test_a_client_that_requires_secure_aggregation(tmp_path: Path) -> None:
    """Its node config sets the smallest cohort; it does not join a job that allows a smaller one."""
    job = SmallJob(tmp_path / "plain", clients="abc")
    job.add("d", client_app(towards(4)), node_config={"min-cohort": 2})
    job.run_round()
    assert sorted(client.id for client in job.ledger.clients()) == ["a", "b", "c"]
    assert "requires secure aggregation over 2" in job.events("failed")[-1]["why"]
    secure = secure_job(tmp_path / "secure")
    secure.add("f", client_app(towards(4)), node_config={"min-cohort": 2})
    secure.run_round()
    assert "f" in [client.id for client in secure.ledger.clients()]


def test_the_reason_of_a_failed_training_stays_on_the_client(tmp_path: Path) -> None:
    """An update out of range is reported with its size in a job without masks; a secure job gets no number."""

    def diverges(weights: Weights, task: ClientTask) -> ClientResult:
        return ClientResult(2, {}, {name: part + 1e12 for name, part in weights.items()})

    job = secure_job(tmp_path)
    job.add("f", client_app(diverges))
    while not job.events("failed"):
        job.run_round()
    [failed, *_] = job.events("failed")
    assert failed["client"] == "f"
    assert failed["why"] == "training failed (ConfigError); the client's log has the reason"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secure": True, "cohort_size": 2}, r"cohort_size=2: a round of a secure job needs at least min_cohort=3"),
        ({"secure": True, "memory": "server"}, "memory='server': with secure aggregation"),
        ({"secure": True, "evaluate_nodes_every": 1}, "evaluate_nodes_every=1: an evaluation on the clients"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        FedLaAvg(job=tmp_path, **{"cohort_size": 3, **options})


@pytest.mark.parametrize(("name", "value"), [("min_cohort", 1), ("num_decryptors", 2)])
def test_wrong_settings(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value}: must be at least"):
        SecureAggregation(**cast(Any, {name: value}))
