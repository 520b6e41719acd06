/* Workload M as one fused program: what a CPU can do for a round of FedLaAvg on MNIST.
 *
 * COHORT clients train a logistic model (CLASSES x PIXELS weights and CLASSES biases) for STEPS steps of BATCH samples;
 * each remembered update is replaced by the new one, and the model moves by the mean of all remembered updates.
 *
 *   x_local <- x_local - RATE * gradient                 STEPS times, from x
 *   total   <- total + (x_local - x) - remembered;       remembered <- x_local - x
 *   x       <- x + total / NUM_CLIENTS
 *
 * Why it is fast: a batch of byte pixels is expanded to floats once and used twice. The forward product keeps BATCH x 2
 * sums in registers while it passes along the pixels, so every weight and pixel that is loaded serves several products.
 * The backward pass is BATCH multiply-adds per weight, in place. One client's weights (31 KB) stay in the cache of a
 * core. Each thread adds up its own part of the total.
 *
 * A client draws from its own samples, which lie side by side; with -DANY_SAMPLES from those of all clients, which miss
 * the cache more often.
 *
 *   cc -O3 -march=native -ffast-math -fopenmp logistic_round.c -lm
 *   logistic_round REPEATS             time blocks of 50 rounds
 *   logistic_round --check FILE ROUNDS write the data, all draws, and the result of some rounds (see tests/benchmarks/test_limits.py)
 */
#include "timing.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef NUM_CLIENTS
#define NUM_CLIENTS 1000
#endif
#ifndef COHORT
#define COHORT 100
#endif
enum { PIXELS = 784, CLASSES = 10, BATCH = 5, STEPS = 10, SAMPLES_PER_CLIENT = 60, ROUNDS_PER_BLOCK = 50 };
enum { WEIGHTS = CLASSES * PIXELS, PARAMETERS = WEIGHTS + 16 }; /* the biases fill the first 10 of 16 places */
static const float RATE = 0.01f;
#define ALIGNED __attribute__((aligned(64)))

static uint8_t *images;   /* [NUM_CLIENTS * SAMPLES_PER_CLIENT][PIXELS] */
static int *labels;       /* [NUM_CLIENTS * SAMPLES_PER_CLIENT] */
static float *remembered; /* [NUM_CLIENTS][PARAMETERS] */
static float model[PARAMETERS] ALIGNED, total[PARAMETERS] ALIGNED;
static int rows[COHORT][STEPS][BATCH]; /* the samples of a round */
static int first_of_cohort;            /* the cohort is COHORT consecutive clients */

static void expand(const int *batch, float pixels[BATCH][PIXELS]) {
    for (int b = 0; b < BATCH; b++) {
        const uint8_t *bytes = images + (size_t)batch[b] * PIXELS;
        for (int p = 0; p < PIXELS; p++) pixels[b][p] = bytes[p] * (1 / 255.0f);
    }
}

/* Two classes at a time, so that 2 x BATCH sums stay in registers. */
static void forward(const float *restrict local, float pixels[BATCH][PIXELS], float logits[BATCH][CLASSES]) {
    const float *x0 = pixels[0], *x1 = pixels[1], *x2 = pixels[2], *x3 = pixels[3], *x4 = pixels[4];
    for (int c = 0; c < CLASSES; c += 2) {
        const float *w = local + c * PIXELS, *v = w + PIXELS;
        float w0 = 0, w1 = 0, w2 = 0, w3 = 0, w4 = 0, v0 = 0, v1 = 0, v2 = 0, v3 = 0, v4 = 0;
        for (int p = 0; p < PIXELS; p++) {
            w0 += w[p] * x0[p]; w1 += w[p] * x1[p]; w2 += w[p] * x2[p]; w3 += w[p] * x3[p]; w4 += w[p] * x4[p];
            v0 += v[p] * x0[p]; v1 += v[p] * x1[p]; v2 += v[p] * x2[p]; v3 += v[p] * x3[p]; v4 += v[p] * x4[p];
        }
        const float sums[2][BATCH] = {{w0, w1, w2, w3, w4}, {v0, v1, v2, v3, v4}};
        for (int b = 0; b < BATCH; b++)
            for (int k = 0; k < 2; k++) logits[b][c + k] = sums[k][b] + local[WEIGHTS + c + k];
    }
}

/* Turn logits into RATE / BATCH times the gradient of the cross-entropy: softmax minus the label's indicator. */
static void scale_errors(const int *batch, float errors[BATCH][CLASSES]) {
    for (int b = 0; b < BATCH; b++) {
        float largest = errors[b][0], sum = 0;
        for (int c = 1; c < CLASSES; c++) largest = fmaxf(largest, errors[b][c]);
        for (int c = 0; c < CLASSES; c++) sum += errors[b][c] = expf(errors[b][c] - largest);
        for (int c = 0; c < CLASSES; c++) errors[b][c] *= RATE / (BATCH * sum);
        errors[b][labels[batch[b]]] -= RATE / BATCH;
    }
}

static void backward(float *restrict local, float pixels[BATCH][PIXELS], float errors[BATCH][CLASSES]) {
    const float *x0 = pixels[0], *x1 = pixels[1], *x2 = pixels[2], *x3 = pixels[3], *x4 = pixels[4];
    for (int c = 0; c < CLASSES; c++) {
        const float e0 = errors[0][c], e1 = errors[1][c], e2 = errors[2][c], e3 = errors[3][c], e4 = errors[4][c];
        float *w = local + c * PIXELS;
        for (int p = 0; p < PIXELS; p++) w[p] -= e0 * x0[p] + e1 * x1[p] + e2 * x2[p] + e3 * x3[p] + e4 * x4[p];
        local[WEIGHTS + c] -= e0 + e1 + e2 + e3 + e4;
    }
}

static void train(int slot, float *restrict local) {
    float pixels[BATCH][PIXELS] ALIGNED, errors[BATCH][CLASSES];
    memcpy(local, model, sizeof model);
    for (int step = 0; step < STEPS; step++) {
        const int *batch = rows[slot][step];
        expand(batch, pixels);
        forward(local, pixels, errors);
        scale_errors(batch, errors);
        backward(local, pixels, errors);
    }
}

static void draw(int round) {
    first_of_cohort = round % (NUM_CLIENTS / COHORT) * COHORT;
    for (int slot = 0; slot < COHORT; slot++)
        for (int i = 0; i < STEPS * BATCH; i++)
#ifdef ANY_SAMPLES
            rows[slot][i / BATCH][i % BATCH] = random_below(NUM_CLIENTS * SAMPLES_PER_CLIENT);
#else
            rows[slot][i / BATCH][i % BATCH] =
                (first_of_cohort + slot) * SAMPLES_PER_CLIENT + random_below(SAMPLES_PER_CLIENT);
#endif
}

static void run_round(int round) {
    draw(round);
#pragma omp parallel
    {
        float local[PARAMETERS] ALIGNED, change[PARAMETERS] ALIGNED;
        memset(change, 0, sizeof change);
#pragma omp for schedule(dynamic, 4) nowait
        for (int slot = 0; slot < COHORT; slot++) {
            train(slot, local);
            float *restrict old = remembered + (size_t)(first_of_cohort + slot) * PARAMETERS;
            for (int j = 0; j < PARAMETERS; j++) {
                const float update = local[j] - model[j];
                change[j] += update - old[j];
                old[j] = update;
            }
        }
#pragma omp critical
        for (int j = 0; j < PARAMETERS; j++) total[j] += change[j];
    }
    for (int j = 0; j < PARAMETERS; j++) model[j] += total[j] / NUM_CLIENTS;
}

static void make_data(void) {
    const size_t samples = (size_t)NUM_CLIENTS * SAMPLES_PER_CLIENT;
    images = aligned_alloc(64, samples * PIXELS);
    labels = malloc(samples * sizeof *labels);
    remembered = aligned_alloc(64, sizeof(float) * NUM_CLIENTS * PARAMETERS);
    memset(remembered, 0, sizeof(float) * NUM_CLIENTS * PARAMETERS);
    for (size_t i = 0; i < samples * PIXELS; i++) images[i] = random_below(256);
    for (size_t i = 0; i < samples; i++) labels[i] = random_below(CLASSES);
}

static void check(const char *path, int rounds) {
    FILE *file = fopen(path, "wb");
    if (!file) exit(1);
    write_array(file, images, (size_t)NUM_CLIENTS * SAMPLES_PER_CLIENT * PIXELS);
    write_array(file, labels, sizeof(int) * NUM_CLIENTS * SAMPLES_PER_CLIENT);
    for (int round = 0; round < rounds; round++) {
        run_round(round);
        write_array(file, rows, sizeof rows);
    }
    write_array(file, model, sizeof model);
    write_array(file, remembered, sizeof(float) * NUM_CLIENTS * PARAMETERS);
    fclose(file);
}

int main(int argc, char **argv) {
    make_data();
    if (argc == 4 && !strcmp(argv[1], "--check")) {
        check(argv[2], atoi(argv[3]));
        return 0;
    }
    time_blocks(run_round, ROUNDS_PER_BLOCK, argc > 1 ? atoi(argv[1]) : 10);
    return 0;
}
