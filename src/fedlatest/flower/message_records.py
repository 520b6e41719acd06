"""Conversion between the ledger's messages, NumPy arrays and Flower's records.

A message has a text header in a ConfigRecord, and a model or an upload in an ArrayRecord. The model uses the record
name of Flower's own apps, so their training functions find it.
"""

import io
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedlatest.errors import ProtocolError
from fedlatest.ledger import Instruction, Reply, decode_instruction, decode_reply, encode
from fedlatest.ledger.fixed_point import UPLOAD_DTYPE
from fedlatest.ledger.job_config import Arrays

# Names of records and of their entries. All but PROTOCOL and VECTOR are those of Flower's own apps.
PROTOCOL, VECTOR, MODEL, CONFIG, METRICS = "fedlatest", "vector", "arrays", "config", "metrics"
NUM_EXAMPLES, ROUND = "num-examples", "server-round"
MAX_NUMPY_HEADER = 4096  # bytes that a saved array may have in addition to its numbers


def instruction_records(
    instruction: Instruction, *, model: ArrayRecord | None = None, config: ConfigRecord | None = None
) -> RecordDict:
    """Return the content of a message with an instruction.

    Args:
        instruction: What the client is asked to do.
        model: The model, if the client is asked to train.
        config: Values for the user's training function.
    """
    records = RecordDict({PROTOCOL: _protocol_record(instruction)})
    if model is not None:
        records[MODEL] = model
    records[CONFIG] = config if config is not None else ConfigRecord()
    return records


def read_instruction(message: Message) -> Instruction | None:
    """Return the instruction in a message, or None if the message does not come from fedlatest."""
    header = _header(message)
    return None if header is None else decode_instruction(header, _payload(message), _protocol(message))


def reply_message(reply: Reply, message: Message) -> Message:
    """Return the message that answers `message` with a reply."""
    records = RecordDict({PROTOCOL: _protocol_record(reply)})
    if reply.upload is not None:
        records[VECTOR] = ArrayRecord({VECTOR: _flower_array(np.asarray(reply.upload))})
    return Message(records, reply_to=message)


def read_reply(message: Message, *, size: int, dtype: np.dtype[Any] = UPLOAD_DTYPE) -> Reply:
    """Return the reply in a message.

    Args:
        message: The message.
        size: The number of numbers in an upload.
        dtype: Their type.

    Raises:
        ProtocolError: The message is not a valid reply, or its upload is longer than `size` numbers; a longer one
            is not decoded.
    """
    header = _header(message)
    if header is None:
        raise ProtocolError("the reply does not come from fedlatest: is the client app wrapped with fedlatest.flower?")
    return decode_reply(header, _vector(message, size, dtype), _payload(message), _protocol(message))


def to_record(arrays: Arrays) -> ArrayRecord:
    """Convert named NumPy arrays to Flower's ArrayRecord."""
    return ArrayRecord({name: _flower_array(np.asarray(array)) for name, array in arrays.items()})


def from_record(record: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """Convert Flower's ArrayRecord to named NumPy arrays."""
    return {name: array.numpy() for name, array in record.items()}


def metrics_of(message: Message) -> dict[str, float]:
    """Return the numbers in the first MetricRecord of a message."""
    records = [record for record in message.content.values() if isinstance(record, MetricRecord)]
    found = dict(records[0]) if records else {}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _protocol_record(message: Instruction | Reply) -> ConfigRecord:
    payload = {"payload": message.payload} if message.payload else {}
    return ConfigRecord({"header": encode(message), "protocol": message.protocol, **payload})


def _protocol(message: Message) -> Any:
    return message.content[PROTOCOL].get("protocol", 1)  # versions before protocol 2 send no number


def _payload(message: Message) -> bytes:
    payload = message.content[PROTOCOL].get("payload", b"")
    if not isinstance(payload, bytes):
        raise ProtocolError("the payload of the message is not of type bytes")
    return payload


def _header(message: Message) -> str | None:
    record = message.content.get(PROTOCOL) if message.has_content() else None
    if not isinstance(record, ConfigRecord):
        return None
    header = record.get("header")
    return header if isinstance(header, str) else ""


def _flower_array(array: npt.NDArray[Any]) -> Array:
    """Return `Array(array)`, with one copy of the content in memory instead of three."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    data = b"".join([_numpy_header(array.dtype.str, array.shape), content])
    return Array(str(array.dtype), array.shape, "numpy.ndarray", data)


@cache
def _numpy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the first bytes of a saved array of this type and shape, in C order."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _vector(message: Message, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    record = message.content.get(VECTOR)
    if record is None:
        return None
    array = record.get(VECTOR) if isinstance(record, ArrayRecord) else None
    if array is None or len(record) != 1 or array.stype != "numpy.ndarray":
        raise ProtocolError("the upload is not one NumPy array")
    if len(array.data) > size * dtype.itemsize + MAX_NUMPY_HEADER:
        raise ProtocolError(f"the upload has {len(array.data)} bytes, more than {size} numbers take")
    header = _numpy_header(dtype.str, (size,))
    if len(array.data) == len(header) + size * dtype.itemsize and array.data.startswith(header):
        return np.frombuffer(array.data, dtype, offset=len(header))  # without a copy
    try:
        return array.numpy()
    except Exception as error:  # NumPy may raise anything on forged bytes, also MemoryError
        raise ProtocolError(f"the upload cannot be read ({error})") from None
