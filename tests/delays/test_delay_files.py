"""Files of delays, and what is wrong with others."""

import gzip
from pathlib import Path

import jax.numpy as jnp
import pytest

from fedlatest.delays import read_delays
from fedlatest.errors import ConfigError, DataError


def test_columns_may_be_left_out_and_lines_repeat(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv"
    path.write_text("client,training_seconds,upload_seconds\na,4,0.5\nb,16,1\n\n")
    assert read_delays(path).num_clients == 2
    delays = read_delays(path, num_clients=3)
    assert delays.milliseconds(0, jnp.arange(3), 0).tolist() == [4500, 17000, 4500]
    assert delays.stages(0, jnp.arange(3), 0).download.tolist() == [0, 0, 0]


def test_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv.gz"
    path.write_bytes(gzip.compress(b"client,download_seconds\n0,2\n"))
    assert int(read_delays(path).milliseconds(0, 0, 0)) == 2000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line is ''"),
        ("client,seconds\n", "the first line is 'client,seconds'; it must name client and at least one of"),
        ("client,training_seconds,training_seconds\n", "each once"),
        ("training_seconds\n1\n", "must name client"),
        ("client,training_seconds\n", "holds no delays"),
        ("client,training_seconds\n0,1\n1\n", "line 3: has 1 values, the first line names 2 columns"),
        ("client,training_seconds\n0,1\n0,2\n", "line 3: client 0 is in line 2 already"),
        ("client,training_seconds\n0,-1\n", "line 2: training_seconds is '-1'; it must be a number of seconds"),
        ("client,training_seconds\n0,soon\n", "line 2: training_seconds is 'soon'"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "delays.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=f"delays.csv.*{message}"):
        read_delays(path)


def test_a_missing_file_and_a_wrong_number(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_delays(tmp_path / "no.csv")
    with pytest.raises(ConfigError, match="num_clients=0: must be at least 1"):
        read_delays(tmp_path / "no.csv", num_clients=0)


def test_clients_have_the_delays_of_their_devices(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv"
    path.write_text("client,training_seconds\na,4\nb,16\n")
    delays = read_delays(path, devices=["b", "a", None, "b"])
    assert delays.milliseconds(0, jnp.arange(4), 0).tolist() == [16000, 4000, 0, 16000]
    with pytest.raises(DataError, match=r"delays.csv: has no line for device c of the trace and 1 others"):
        read_delays(path, devices=["a", "c", "d"])
