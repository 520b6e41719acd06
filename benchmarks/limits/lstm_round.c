/* Workload S as one fused program: what a CPU can do for a round of FedLaAvg on tweets.
 *
 * COHORT clients train a two-layer LSTM (WORD_SIZE inputs, HIDDEN units per layer, one logit from the last state) for
 * STEPS steps of BATCH texts, with the gradient through all words of each text; remembered updates, their total and the
 * model then change as in logistic_round.c. Texts have their real lengths: padding costs nothing.
 *
 * Why it is fast: weights are stored by input, [inputs][GATES], so that each input scales 64 adjacent weights. A model
 * (19 KB) and the record of one text stay in the cache of a core. The gradients of the weights are taken after the
 * backward pass, a row of weights at a time, whose sums over the words stay in registers.
 *
 *   cc -O3 -march=native -ffast-math -fopenmp lstm_round.c -lm
 *   lstm_round LENGTHS REPEATS                 time blocks of 20 rounds
 *   lstm_round LENGTHS --check FILE ROUNDS     write the data, all draws, and the result of some rounds
 *
 * LENGTHS is a file of int32, the number of words of each text; client i owns equally many consecutive texts.
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
enum { WORD_SIZE = 25, HIDDEN = 16, GATES = 4 * HIDDEN, LONGEST = 64, STEPS = 10, BATCH = 2, ROUNDS_PER_BLOCK = 20 };
static const float RATE = 0.1f;
#define ALIGNED __attribute__((aligned(64)))

/* Order of the gates: input, forget, output, candidate. */
typedef struct {
    float input1[WORD_SIZE][GATES], hidden1[HIDDEN][GATES], bias1[GATES];
    float input2[HIDDEN][GATES], hidden2[HIDDEN][GATES], bias2[GATES];
    float output[HIDDEN], output_bias, unused[15];
} ALIGNED Model;
enum { PARAMETERS = sizeof(Model) / sizeof(float) };

/* What a layer computed for each word of a text: gates, cell and tanh(cell), state; and the gradient of the gates before
   their nonlinearity. Cells and states begin with the zeros before the first word. */
typedef struct {
    float gates[LONGEST][GATES], cell[LONGEST + 1][HIDDEN], tanh_cell[LONGEST][HIDDEN], state[LONGEST + 1][HIDDEN];
    float slope[LONGEST][GATES];
} ALIGNED LayerRecord;

typedef struct {
    LayerRecord lower, upper;
    Model gradient, local, change;
} ALIGNED Workspace; /* one per thread */

static int32_t *lengths; /* [num_texts] */
static int num_texts;
static float *words, *labels; /* [num_texts][LONGEST][WORD_SIZE], [num_texts] */
static Model model, total, *remembered;
static int texts_of_round[COHORT][STEPS][BATCH], cohort[COHORT];

static inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* One word in one layer. tanh(x) = 2 sigmoid(2x) - 1, so that all gates share one loop. */
static inline void cell_forward(const float *input, int inputs, const float (*weight)[GATES], const float *state,
                                const float (*hidden)[GATES], const float *bias, const float *cell, float *gates,
                                float *new_cell, float *tanh_cell, float *new_state) {
    float z[GATES] ALIGNED;
    for (int j = 0; j < GATES; j++) z[j] = bias[j];
    for (int k = 0; k < inputs; k++)
        for (int j = 0; j < GATES; j++) z[j] += input[k] * weight[k][j];
    for (int k = 0; k < HIDDEN; k++)
        for (int j = 0; j < GATES; j++) z[j] += state[k] * hidden[k][j];
    for (int j = 3 * HIDDEN; j < GATES; j++) z[j] *= 2;
    for (int j = 0; j < GATES; j++) gates[j] = sigmoid(z[j]);
    for (int j = 3 * HIDDEN; j < GATES; j++) gates[j] = 2 * gates[j] - 1;
    for (int j = 0; j < HIDDEN; j++) {
        const float c = gates[HIDDEN + j] * cell[j] + gates[j] * gates[3 * HIDDEN + j];
        const float t = 2 * sigmoid(2 * c) - 1;
        new_cell[j] = c;
        tanh_cell[j] = t;
        new_state[j] = gates[2 * HIDDEN + j] * t;
    }
}

/* Return the slope of the loss in the logit: sigmoid(logit) - label. */
static float forward(const Model *w, const float *text, int length, float label, Workspace *space) {
    LayerRecord *lower = &space->lower, *upper = &space->upper;
    for (int j = 0; j < HIDDEN; j++) lower->cell[0][j] = lower->state[0][j] = upper->cell[0][j] = upper->state[0][j] = 0;
    for (int t = 0; t < length; t++) {
        cell_forward(text + t * WORD_SIZE, WORD_SIZE, w->input1, lower->state[t], w->hidden1, w->bias1, lower->cell[t],
                     lower->gates[t], lower->cell[t + 1], lower->tanh_cell[t], lower->state[t + 1]);
        cell_forward(lower->state[t + 1], HIDDEN, w->input2, upper->state[t], w->hidden2, w->bias2, upper->cell[t],
                     upper->gates[t], upper->cell[t + 1], upper->tanh_cell[t], upper->state[t + 1]);
    }
    float logit = w->output_bias;
    for (int j = 0; j < HIDDEN; j++) logit += w->output[j] * upper->state[length][j];
    return sigmoid(logit) - label;
}

/* Gradients of the gates before their nonlinearity, given that of the state; updates the gradient of the cell. */
static inline void cell_backward(const LayerRecord *layer, int t, const float *d_state, float *d_cell, float *slope) {
    const float *gates = layer->gates[t];
    for (int j = 0; j < HIDDEN; j++) {
        const float i = gates[j], f = gates[HIDDEN + j], o = gates[2 * HIDDEN + j], g = gates[3 * HIDDEN + j];
        const float tanh_cell = layer->tanh_cell[t][j];
        const float d = d_cell[j] + d_state[j] * o * (1 - tanh_cell * tanh_cell);
        slope[j] = d * g * i * (1 - i);
        slope[HIDDEN + j] = d * layer->cell[t][j] * f * (1 - f);
        slope[2 * HIDDEN + j] = d_state[j] * tanh_cell * o * (1 - o);
        slope[3 * HIDDEN + j] = d * i * (1 - g * g);
        d_cell[j] = d * f;
    }
}

static inline float dot(const float *a, const float *b) {
    float sum = 0;
    for (int j = 0; j < GATES; j++) sum += a[j] * b[j];
    return sum;
}

/* Add the gradients of the weights that follow from the slopes of all words. */
static void add_weight_gradients(const float *text, int length, const Workspace *space, Model *gradient) {
    const LayerRecord *lower = &space->lower, *upper = &space->upper;
    for (int k = 0; k < WORD_SIZE; k++) {
        float row[GATES] ALIGNED;
        memcpy(row, gradient->input1[k], sizeof row);
        for (int t = 0; t < length; t++)
            for (int j = 0; j < GATES; j++) row[j] += text[t * WORD_SIZE + k] * lower->slope[t][j];
        memcpy(gradient->input1[k], row, sizeof row);
    }
    for (int k = 0; k < HIDDEN; k++) {
        float hidden1[GATES] ALIGNED, input2[GATES] ALIGNED, hidden2[GATES] ALIGNED;
        memcpy(hidden1, gradient->hidden1[k], sizeof hidden1);
        memcpy(input2, gradient->input2[k], sizeof input2);
        memcpy(hidden2, gradient->hidden2[k], sizeof hidden2);
        for (int t = 0; t < length; t++) {
            const float before = lower->state[t][k], now = lower->state[t + 1][k], above = upper->state[t][k];
            for (int j = 0; j < GATES; j++) {
                hidden1[j] += before * lower->slope[t][j];
                input2[j] += now * upper->slope[t][j];
                hidden2[j] += above * upper->slope[t][j];
            }
        }
        memcpy(gradient->hidden1[k], hidden1, sizeof hidden1);
        memcpy(gradient->input2[k], input2, sizeof input2);
        memcpy(gradient->hidden2[k], hidden2, sizeof hidden2);
    }
    float bias1[GATES] ALIGNED, bias2[GATES] ALIGNED;
    memcpy(bias1, gradient->bias1, sizeof bias1);
    memcpy(bias2, gradient->bias2, sizeof bias2);
    for (int t = 0; t < length; t++)
        for (int j = 0; j < GATES; j++) {
            bias1[j] += lower->slope[t][j];
            bias2[j] += upper->slope[t][j];
        }
    memcpy(gradient->bias1, bias1, sizeof bias1);
    memcpy(gradient->bias2, bias2, sizeof bias2);
}

static void backward(const Model *w, const float *text, int length, float d_logit, Workspace *space) {
    LayerRecord *lower = &space->lower, *upper = &space->upper;
    Model *gradient = &space->gradient;
    float d_state1[HIDDEN] ALIGNED = {0}, d_cell1[HIDDEN] ALIGNED = {0}, d_state2[HIDDEN] ALIGNED,
          d_cell2[HIDDEN] ALIGNED = {0};
    for (int j = 0; j < HIDDEN; j++) {
        d_state2[j] = d_logit * w->output[j];
        gradient->output[j] += d_logit * upper->state[length][j];
    }
    gradient->output_bias += d_logit;
    for (int t = length - 1; t >= 0; t--) {
        cell_backward(upper, t, d_state2, d_cell2, upper->slope[t]);
        for (int k = 0; k < HIDDEN; k++) {
            d_state2[k] = dot(w->hidden2[k], upper->slope[t]);
            d_state1[k] += dot(w->input2[k], upper->slope[t]);
        }
        cell_backward(lower, t, d_state1, d_cell1, lower->slope[t]);
        for (int k = 0; k < HIDDEN; k++) d_state1[k] = dot(w->hidden1[k], lower->slope[t]);
    }
    add_weight_gradients(text, length, space, gradient);
}

static void train(int slot, Workspace *space) {
    float *local = (float *)&space->local, *gradient = (float *)&space->gradient;
    space->local = model;
    for (int step = 0; step < STEPS; step++) {
        memset(gradient, 0, sizeof(Model));
        for (int b = 0; b < BATCH; b++) {
            const int number = texts_of_round[slot][step][b];
            const float *text = words + (size_t)number * LONGEST * WORD_SIZE;
            const float d_logit = forward(&space->local, text, lengths[number], labels[number], space);
            backward(&space->local, text, lengths[number], d_logit, space);
        }
        for (int j = 0; j < PARAMETERS; j++) local[j] -= RATE / BATCH * gradient[j];
    }
}

/* Draw a cohort without replacement (the first places of a shuffle), and texts of each of its clients. */
static void draw(void) {
    static int order[NUM_CLIENTS];
    const int each = num_texts / NUM_CLIENTS;
    if (order[0] == order[NUM_CLIENTS - 1])
        for (int client = 0; client < NUM_CLIENTS; client++) order[client] = client;
    for (int slot = 0; slot < COHORT; slot++) {
        const int other = slot + random_below(NUM_CLIENTS - slot), chosen = order[other];
        order[other] = order[slot];
        order[slot] = cohort[slot] = chosen;
        for (int i = 0; i < STEPS * BATCH; i++)
            texts_of_round[slot][i / BATCH][i % BATCH] = chosen * each + random_below(each);
    }
}

static Workspace *workspaces;

static void run_round(int round) {
    (void)round;
    draw();
    float *x = (float *)&model, *sum = (float *)&total;
#pragma omp parallel
    {
        Workspace *space = workspaces + omp_get_thread_num();
        float *change = (float *)&space->change, *local = (float *)&space->local;
        memset(change, 0, sizeof(Model));
#pragma omp for schedule(dynamic, 1) nowait
        for (int slot = 0; slot < COHORT; slot++) {
            train(slot, space);
            float *restrict old = (float *)(remembered + cohort[slot]);
            for (int j = 0; j < PARAMETERS; j++) {
                const float update = local[j] - x[j];
                change[j] += update - old[j];
                old[j] = update;
            }
        }
#pragma omp critical
        for (int j = 0; j < PARAMETERS; j++) sum[j] += change[j];
    }
    for (int j = 0; j < PARAMETERS; j++) x[j] += sum[j] / NUM_CLIENTS;
}

static void read_lengths(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(1);
    num_texts = (int)(ftell(file) / sizeof *lengths) / NUM_CLIENTS * NUM_CLIENTS;
    lengths = malloc(num_texts * sizeof *lengths);
    rewind(file);
    if (num_texts == 0 || fread(lengths, sizeof *lengths, num_texts, file) != (size_t)num_texts) exit(1);
    fclose(file);
    for (int i = 0; i < num_texts; i++)
        if (lengths[i] < 1 || lengths[i] > LONGEST) {
            fprintf(stderr, "text %d has %d words; 1 .. %d are supported\n", i, lengths[i], LONGEST);
            exit(1);
        }
}

static void make_data(void) {
    words = aligned_alloc(64, sizeof(float) * num_texts * LONGEST * WORD_SIZE);
    labels = malloc(sizeof(float) * num_texts);
    remembered = aligned_alloc(64, sizeof(Model) * NUM_CLIENTS);
    workspaces = aligned_alloc(64, sizeof(Workspace) * omp_get_max_threads());
    memset(remembered, 0, sizeof(Model) * NUM_CLIENTS);
    memset(&model, 0, sizeof model);
    float *x = (float *)&model;
    for (float *each = x; each <= &model.output_bias; each++) *each = 0.5f * (float)random_uniform() - 0.25f;
    for (int i = 0; i < num_texts; i++) {
        labels[i] = (float)random_below(2);
        for (int j = 0; j < lengths[i] * WORD_SIZE; j++)
            words[(size_t)i * LONGEST * WORD_SIZE + j] = 2 * (float)random_uniform() - 1;
    }
}

static void check(const char *path, int rounds) {
    FILE *file = fopen(path, "wb");
    if (!file) exit(1);
    for (int i = 0; i < num_texts; i++)
        write_array(file, words + (size_t)i * LONGEST * WORD_SIZE, sizeof(float) * lengths[i] * WORD_SIZE);
    write_array(file, labels, sizeof(float) * num_texts);
    write_array(file, &model, sizeof model);
    for (int round = 0; round < rounds; round++) {
        run_round(round);
        write_array(file, cohort, sizeof cohort);
        write_array(file, texts_of_round, sizeof texts_of_round);
    }
    write_array(file, &model, sizeof model);
    write_array(file, remembered, sizeof(Model) * NUM_CLIENTS);
    fclose(file);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    read_lengths(argv[1]);
    make_data();
    if (argc == 5 && !strcmp(argv[2], "--check")) {
        check(argv[3], atoi(argv[4]));
        return 0;
    }
    time_blocks(run_round, ROUNDS_PER_BLOCK, atoi(argv[2]));
    return 0;
}
