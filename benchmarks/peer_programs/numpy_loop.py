"""FedLaAvg as one would first write it: a Python loop over the cohort, NumPy inside."""

import sys

import numpy as np
from workload import BATCH, CLASSES, CLIENTS, COHORT, PIXELS, RATE, SAMPLES, STEPS, Stopwatch, make_data


def main(rounds: int) -> None:
    features, labels = make_data()
    rng = np.random.default_rng(1)
    weight, bias = np.zeros((CLASSES, PIXELS), np.float32), np.zeros(CLASSES, np.float32)
    remembered = [np.zeros((CLIENTS, *part.shape), np.float32) for part in (weight, bias)]
    total = [np.zeros_like(part) for part in (weight, bias)]
    watch = Stopwatch()
    for _ in range(rounds + 1):
        for client in rng.choice(CLIENTS, COHORT, replace=False):
            local_weight, local_bias, order = weight.copy(), bias.copy(), rng.permutation(SAMPLES)
            for step in range(STEPS):
                rows = order[step * BATCH : (step + 1) * BATCH]
                batch = features[client, rows]
                logits = batch @ local_weight.T + local_bias
                errors = np.exp(logits - logits.max(axis=1, keepdims=True))
                errors /= errors.sum(axis=1, keepdims=True)
                errors[np.arange(BATCH), labels[client, rows]] -= 1
                local_weight -= np.float32(RATE / BATCH) * (errors.T @ batch)
                local_bias -= np.float32(RATE / BATCH) * errors.sum(axis=0)
            for part, update in enumerate((local_weight - weight, local_bias - bias)):
                total[part] += update - remembered[part][client]
                remembered[part][client] = update
        weight, bias = (part + sum_ / np.float32(CLIENTS) for part, sum_ in zip((weight, bias), total, strict=True))
        watch.round_done()
    watch.report()


if __name__ == "__main__":
    main(int(sys.argv[1]))
