"""Our messages as Flower carries them: a header in a ConfigRecord, the model or the vector in an ArrayRecord.

The model travels under the key that Flower's own apps use, so that their training functions find it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedlatest.errors import ProtocolError
from fedlatest.ledger import Instruction, Reply, decode_instruction, decode_reply, encode
from fedlatest.ledger.fixed_point import UPLOAD_DTYPE
from fedlatest.ledger.job_config import Arrays

OURS, MODEL, CONFIG, VECTOR = "fedlatest", "arrays", "config", "vector"
METRICS, NUM_EXAMPLES, ROUND = "metrics", "num-examples", "server-round"
NUMPY_HEADER = 4096  # bytes that a saved array may have beside its numbers


def instruct(
    instruction: Instruction, *, model: ArrayRecord | None = None, config: ConfigRecord | None = None
) -> RecordDict:
    """An instruction, with the model where it is to train."""
    records = RecordDict({OURS: ConfigRecord({"header": encode(instruction)})})
    if model is not None:
        records[MODEL] = model
    records[CONFIG] = config if config is not None else ConfigRecord()
    return records


def read_instruction(message: Message) -> Instruction | None:
    """The instruction in a message; None for a message that is not ours."""
    header = _header(message)
    return None if header is None else decode_instruction(header)


def reply_with(reply: Reply, message: Message) -> Message:
    """A reply as the answer to a message."""
    records = RecordDict({OURS: ConfigRecord({"header": encode(reply)})})
    if reply.upload is not None:
        records[VECTOR] = ArrayRecord({VECTOR: Array(np.ascontiguousarray(reply.upload, UPLOAD_DTYPE))})
    return Message(records, reply_to=message)


def read_reply(message: Message, *, size: int) -> Reply:
    """The reply in a message; what is larger than `size` numbers can be is not even looked into."""
    header = _header(message)
    if header is None:
        raise ProtocolError("the reply is not one of ours: is the client wrapped with fedlatest.flower?")
    return decode_reply(header, _vector(message, size))


def to_record(arrays: Arrays) -> ArrayRecord:
    """Arrays as Flower carries them."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def from_record(record: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """Flower's arrays as NumPy's."""
    return {name: array.numpy() for name, array in record.items()}


def metrics_of(message: Message) -> dict[str, float]:
    """The numbers in a reply's first MetricRecord."""
    records = [record for record in message.content.values() if isinstance(record, MetricRecord)]
    found = dict(records[0]) if records else {}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _header(message: Message) -> str | None:
    record = message.content.get(OURS) if message.has_content() else None
    if not isinstance(record, ConfigRecord):
        return None
    header = record.get("header")
    return header if isinstance(header, str) else ""


def _vector(message: Message, size: int) -> npt.NDArray[Any] | None:
    record = message.content.get(VECTOR)
    if record is None:
        return None
    array = record.get(VECTOR) if isinstance(record, ArrayRecord) else None
    if array is None or len(record) != 1 or array.stype != "numpy.ndarray":
        raise ProtocolError("its vector is not one NumPy array")
    if len(array.data) > size * UPLOAD_DTYPE.itemsize + NUMPY_HEADER:
        raise ProtocolError(f"its vector has {len(array.data)} bytes, more than {size} numbers take")
    try:
        return array.numpy()
    except Exception as error:  # whatever a stranger's bytes make of NumPy's reader, a claim beyond all memory included
        raise ProtocolError(f"its vector cannot be read ({error})") from None
