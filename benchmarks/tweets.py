"""Time and memory of reading and cleaning 1.6 million tweets: `python -m benchmarks.tweets --data DIR`.

The file of the folder (without one, generated tweets) is repeated up to as many rows as Sentiment140 has. So that
repetition does not flatter, every copy has accounts of its own and ends every fourth tweet with a word of its own: the
lists of accounts and words grow as those of the full data do. Reading has a process of its own.
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
    """Copies of a CSV's rows, each copy a little different from the others."""
    from fedlatest.data.text_files import read_lines

    rows = list(csv.reader(read_lines(source, encoding="latin-1", member=".csv")))
    with path.open("w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for number in range(num_rows):
            copy, place = divmod(number, len(rows))
            *head, account, text = rows[place]
            more = f" {in_letters(number)}" if copy and number % 4 == 0 else ""
            writer.writerow((*head, f"{account}_{copy}" if copy else account, text + more))


def in_letters(number: int) -> str:
    """A number as a word that cleaning leaves as it is: no letter stands three times in a row."""
    word = ""
    while number:
        number, digit = divmod(number, 24)
        word += ascii_lowercase[digit] + "yz"[len(word) // 2 % 2]
    return word


def measure(path: Path) -> dict[str, float]:
    """Seconds to read and clean a file, and the peak memory of this process."""
    from fedlatest.data.sentiment140.parsing import read_tweets

    begun, cpu = time.perf_counter(), time.process_time()
    tweets = read_tweets(path)
    return {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "rows": len(tweets.positive),
        "words": len(tweets.texts.words),
        "accounts": len(tweets.accounts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with sentiment140/ and glove/ (default: generated tweets)")
    parser.add_argument("--rows", type=int, default=NUM_ROWS, help=f"how many tweets (default {NUM_ROWS})")
    parser.add_argument("--measure", type=Path, help="measure one file in this process and print it as JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    from fedlatest.data.sentiment140.generated import write_generated
    from fedlatest.data.sentiment140.source_files import find_files

    with tempfile.TemporaryDirectory() as place:
        folder = options.data or Path(place)
        if not options.data:
            write_generated(folder, 1500)
        path = Path(place) / "repeated.csv"
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
