"""GloVe word vectors from their text format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.data.progress import Told
from fedlatest.data.text_files import read_lines
from fedlatest.errors import DataError

DIMENSIONS = 25
MOST_MALFORMED = 0.01  # of the lines


def read_glove(
    path: Path, words: Sequence[str], *, dimensions: int = DIMENSIONS, told: Told | None = None
) -> npt.NDArray[np.float32]:
    """[words, dimensions] the vectors of some words; a word that the file does not hold gets zeros.

    The file (plain, .gz, or the member of a .zip that ends in `DIMENSIONSd.txt`) is streamed: what is not asked for is
    not kept. A word whose line makes no sense counts as unknown; more than 1% of such is an error showing the first.
    """
    wanted = {word: number for number, word in enumerate(words)}
    vectors = np.zeros((len(words), dimensions), np.float32)
    found, problems = 0, list[str]()
    lines = read_lines(path, encoding="utf-8", member=f"{dimensions}d.txt", told=told)
    for number, line in enumerate(lines, 1):
        word, _, rest = line.partition(" ")
        if word in wanted:
            try:
                vectors[wanted[word]] = _vector(rest, dimensions)
                found += 1
            except ValueError as error:
                problems.append(f"{path}: line {number}: {error}")
    if len(problems) > MOST_MALFORMED * (found + len(problems)):
        raise DataError(problems[0])
    if words and not found:
        raise DataError(f"{path}: holds none of the {len(words)} words that were asked for; is it a GloVe text file?")
    return vectors


def check_glove(path: Path, *, dimensions: int = DIMENSIONS, told: Told | None = None) -> None:
    """Read a file to its end; an error if more than 1% of its lines are not a word and so many numbers."""
    num_lines, num_malformed, first = 0, 0, ""
    for line in read_lines(path, encoding="utf-8", member=f"{dimensions}d.txt", told=told):
        num_lines += 1
        if line.count(" ") != dimensions:
            num_malformed += 1
            first = first or f" (first line {num_lines}: {line[:100].rstrip()})"
    if not num_lines or num_malformed > MOST_MALFORMED * num_lines:
        raise DataError(f"{path}: {num_malformed} of {num_lines} lines are not a word and {dimensions} numbers{first}")


def _vector(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    try:
        values = [float(part) for part in text.split()]
    except ValueError as error:
        raise ValueError(f"is not a word and its vector ({error})") from None
    with np.errstate(over="ignore"):
        vector = np.array(values, np.float32)
    if len(values) != dimensions or not np.isfinite(vector).all():
        raise ValueError(f"holds {len(values)} numbers, expected {dimensions} finite ones")
    return vector
