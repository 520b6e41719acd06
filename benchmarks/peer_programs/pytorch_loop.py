"""FedLaAvg in PyTorch as a loop over the clients of a cohort, with one thread, which is faster for small products."""

import sys

import numpy as np
import torch
from torch.nn.functional import cross_entropy, linear
from workload import BATCH, CLASSES, CLIENTS, COHORT, PIXELS, RATE, SAMPLES, STEPS, Stopwatch, make_data


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    features, labels = (torch.from_numpy(array) for array in make_data())
    rng = np.random.default_rng(1)
    model = [torch.zeros(CLASSES, PIXELS), torch.zeros(CLASSES)]
    total = [torch.zeros_like(part) for part in model]
    remembered = [torch.zeros(CLIENTS, *part.shape) for part in model]
    watch = Stopwatch()
    for _ in range(rounds + 1):
        for client in rng.choice(CLIENTS, COHORT, replace=False):
            local = [part.clone().requires_grad_() for part in model]
            optimizer = torch.optim.SGD(local, lr=RATE)
            for batch in torch.from_numpy(rng.permutation(SAMPLES))[: STEPS * BATCH].split(BATCH):
                optimizer.zero_grad()
                cross_entropy(linear(features[client][batch], *local), labels[client][batch]).backward()
                optimizer.step()
            with torch.no_grad():
                for start, part, old, sum_ in zip(model, local, remembered, total, strict=True):
                    update = part - start
                    sum_ += update - old[client]
                    old[client] = update
        model = [part + sum_ / CLIENTS for part, sum_ in zip(model, total, strict=True)]
        watch.round_done()
    watch.report()


if __name__ == "__main__":
    main(int(sys.argv[1]))
