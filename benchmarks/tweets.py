"""Measure the time and memory of reading and cleaning 1.6 million tweets: `python -m benchmarks.tweets --data DIR`.

The rows of the file in the folder (by default, of generated tweets) are repeated until there are as many as in
Sentiment140. Every copy has different accounts and adds a new word to every fourth tweet, so that the lists of accounts
and words grow as they do for the full data. The file is read in a separate process.
"""

import argparse
import csv
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from string import ascii_lowercase

NUM_ROWS = 1_600_000
TARGET_SECONDS, TARGET_GIB = 60, 2


def write_rows(source: Path, path: Path, num_rows: int) -> None:
    """Write `num_rows` copies of the rows of a CSV file, with new accounts and words in each copy."""
    from fedlatest.data.text_files import read_lines

    rows = list(csv.reader(read_lines(source, encoding="latin-1", member=".csv")))
    with path.open("w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for number in range(num_rows):
            copy, position = divmod(number, len(rows))
            *head, account, text = rows[position]
            suffix = f" {in_letters(number)}" if copy and number % 4 == 0 else ""
            writer.writerow((*head, f"{account}_{copy}" if copy else account, text + suffix))


def in_letters(number: int) -> str:
    """Return a number as a word that cleaning does not change: no letter occurs three times in a row."""
    word = ""
    while number:
        number, digit = divmod(number, 24)
        word += ascii_lowercase[digit] + "yz"[len(word) // 2 % 2]
    return word


def measure(path: Path) -> dict[str, float]:
    """Return the seconds to read and clean a file, and the peak memory of this process."""
    from fedlatest.data.sentiment140.parsing import read_tweets

    start, cpu_start = time.perf_counter(), time.process_time()
    tweets = read_tweets(path)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu_start,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "rows": len(tweets.positive),
        "words": len(tweets.texts.words),
        "accounts": len(tweets.accounts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with sentiment140/ and glove/ (default: generated tweets)")
    parser.add_argument("--rows", type=int, default=NUM_ROWS, help=f"number of tweets (default {NUM_ROWS})")
    parser.add_argument("--measure", type=Path, help="measure one file in this process and print the result as JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    from fedlatest.data.sentiment140.generated import write_generated
    from fedlatest.data.sentiment140.source_files import find_files

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.data or Path(temporary)
        if not options.data:
            write_generated(folder, 1500)
        path = Path(temporary) / "repeated.csv"
        write_rows(find_files(folder)[0].path, path, options.rows)
        command = [sys.executable, "-m", "benchmarks.tweets", "--measure", str(path)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        size = path.stat().st_size / 2**20
    print(f"{platform.machine()}, {os.cpu_count()} cores; one is used. Target: {TARGET_SECONDS} s, {TARGET_GIB} GiB\n")
    print("| tweets | MiB of CSV | words | accounts | seconds | of which CPU | peak memory, GiB |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {row['rows']:,} | {size:.0f} | {row['words']:,} | {row['accounts']:,} "
        f"| {row['seconds']:.1f} | {row['cpu']:.1f} | {row['gib']:.2f} |"
    )


if __name__ == "__main__":
    main()
