/* Local training of dense models, all steps of many clients in one call, and their outputs on many samples.

   A model is one layer (multinomial logistic regression), or two layers with rectified linear units between them; the
   loss is the mean cross-entropy of a batch. A step is

       x = x - rate * gradient - pull * (x - start) - offset

   so that it serves every algorithm that declares its local step. A client's model stays in the cache while all its
   steps are computed. The compiler's command line defines INPUTS, HIDDEN (0: one layer), OUTPUTS, BATCH, and BYTES
   (1: features are bytes, multiplied by 1/255). */

#include "kernel.h"

#define LANES MAX_LANES
#define CACHE_LINE 64
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
#define PADDED(size) (((size) + LANES - 1) / LANES * LANES) /* rows are padded with zeros to whole SIMD vectors */

#define LAYERS (HIDDEN ? 2 : 1)
#define FIRST (HIDDEN ? HIDDEN : OUTPUTS) /* outputs of the first layer */
static const int64_t LAYER_INPUTS[2] = {INPUTS, HIDDEN}, LAYER_OUTPUTS[2] = {FIRST, OUTPUTS};

/* Samples and outputs are processed in tiles whose sums fit into the SIMD registers. */
#define SAMPLES (BATCH <= 5 ? BATCH : BATCH % 5 == 0 ? 5 : 4)
#define REST (BATCH % SAMPLES)

#if BYTES
typedef uint8_t Feature;
#else
typedef float Feature;
#endif

typedef struct {
  float *weight, *bias; /* [outputs, PADDED(inputs)], [outputs] */
} Layer;

/* exp(x) for x <= 0, as softmax needs it. */
static inline float fast_exp(float x) {
  const Exponential e = split_exponential(x < -87.0f ? -87.0f : x); /* comparisons with NaN are false */
  return e.s + e.s * e.q;
}

static INLINE float sum_of(Lanes lanes) {
  float total = 0;
  for (int lane = 0; lane < LANES; lane++) total += lanes[lane];
  return total;
}

/* z [samples, stride] = x W^T + bias for a tile of outputs and samples. Inlined, so that the bounds are constants. */
static INLINE void forward_tile(float *restrict z, int stride, const float *restrict W, const float *restrict bias,
                                const float *restrict x, int inputs, int outputs, int samples) {
  Lanes sums[2 * 5] = {{0}};
  for (int d = 0; d < inputs; d += LANES)
    for (int o = 0; o < outputs; o++) {
      Lanes w = *(const Lanes *)(W + o * inputs + d);
#pragma GCC unroll 5
      for (int s = 0; s < samples; s++) sums[o * 5 + s] += w * *(const Lanes *)(x + s * inputs + d);
    }
  for (int o = 0; o < outputs; o++)
    for (int s = 0; s < samples; s++) z[s * stride + o] = sum_of(sums[o * 5 + s]) + bias[o];
}

/* z [BATCH, outputs] = x [BATCH, inputs] W^T + bias, where inputs are padded. */
static INLINE void forward(float *restrict z, int stride, const Layer *layer, const float *restrict x, int inputs,
                           int outputs) {
  for (int s = 0; s + SAMPLES <= BATCH; s += SAMPLES) {
    int o = 0;
    for (; o + 2 <= outputs; o += 2)
      forward_tile(z + s * stride + o, stride, layer->weight + o * inputs, layer->bias + o, x + s * inputs, inputs, 2,
                   SAMPLES);
    if (o < outputs)
      forward_tile(z + s * stride + o, stride, layer->weight + o * inputs, layer->bias + o, x + s * inputs, inputs, 1,
                   SAMPLES);
  }
  for (int o = 0; REST && o < outputs; o++)
    forward_tile(z + (BATCH - REST) * stride + o, stride, layer->weight + o * inputs, layer->bias + o,
                 x + (BATCH - REST) * inputs, inputs, 1, REST);
}

/* w [inputs] -= sum over samples of g[sample * stride] x[sample], for one row of weights and a tile of samples. */
static INLINE void update_tile(float *restrict w, const float *restrict g, int stride, const float *restrict x,
                               int inputs, int samples) {
  for (int d = 0; d < inputs; d += LANES) {
    Lanes total = *(Lanes *)(w + d);
#pragma GCC unroll 5
    for (int s = 0; s < samples; s++) total -= g[s * stride] * *(const Lanes *)(x + s * inputs + d);
    *(Lanes *)(w + d) = total;
  }
}

/* Subtracts the product of g [BATCH, outputs] and x [BATCH, inputs] from the weights, the sum of g from the bias. */
static INLINE void update(Layer *layer, const float *restrict g, int stride, const float *restrict x, int inputs,
                          int outputs) {
  for (int o = 0; o < outputs; o++) {
    float *w = layer->weight + o * inputs;
    for (int s = 0; s + SAMPLES <= BATCH; s += SAMPLES)
      update_tile(w, g + s * stride + o, stride, x + s * inputs, inputs, SAMPLES);
    if (REST) update_tile(w, g + (BATCH - REST) * stride + o, stride, x + (BATCH - REST) * inputs, inputs, REST);
    for (int s = 0; s < BATCH; s++) layer->bias[o] -= g[s * stride + o];
  }
}

/* Replaces the logits z of a sample by factor * (softmax(z) - one_hot(label)). */
static inline void cross_entropy_gradient(float *restrict z, int32_t label, float factor) {
  float largest = z[0], total = 0;
  for (int o = 1; o < OUTPUTS; o++) largest = z[o] > largest ? z[o] : largest;
  for (int o = 0; o < OUTPUTS; o++) z[o] = fast_exp(z[o] - largest);
  for (int o = 0; o < OUTPUTS; o++) total += z[o];
  for (int o = 0; o < OUTPUTS; o++) z[o] *= factor / total;
  if (label >= 0 && label < OUTPUTS) z[label] -= factor;
}

#define HIDDEN_ROW PADDED(HIDDEN ? HIDDEN : 1)
#define LAST_ROW (HIDDEN ? HIDDEN_ROW : PADDED(INPUTS)) /* length of the inputs of the last layer */

typedef struct {
  float x[BATCH][PADDED(INPUTS)], hidden[BATCH][HIDDEN_ROW], dhidden[BATCH][HIDDEN_ROW], dz[BATCH][PADDED(OUTPUTS)];
  float first_bias[PADDED(FIRST)], first[FIRST][PADDED(INPUTS)], second_bias[PADDED(OUTPUTS)];
  float second[HIDDEN ? OUTPUTS : 1][HIDDEN_ROW];
} __attribute__((aligned(64))) Scratch;

/* Reads the samples of a batch. */
static inline void read_batch(float (*restrict x)[PADDED(INPUTS)], const Feature *features, int64_t num_samples,
                              const int32_t *rows) {
  for (int s = 0; s < BATCH; s++) {
    const Feature *sample = features + within(rows[s], num_samples) * INPUTS;
    for (int d = 0; d < INPUTS; d++) x[s][d] = (float)sample[d] * (BYTES ? 1.0f / 255.0f : 1.0f);
  }
}

/* Loads the samples of a batch into the cache, while another batch is being computed. */
static inline void prefetch_batch(const Feature *features, int64_t num_samples, const int32_t *rows) {
  for (int s = 0; s < BATCH; s++) {
    const char *sample = (const char *)(features + within(rows[s], num_samples) * INPUTS);
    for (size_t at = 0; at < INPUTS * sizeof(Feature); at += CACHE_LINE) __builtin_prefetch(sample + at);
  }
}

/* The gradient with respect to the inputs of the rectified linear units, multiplied as dz is. */
static inline void backward_hidden(Scratch *restrict scratch) {
  for (int s = 0; s < BATCH; s++) {
    float *restrict d = scratch->dhidden[s];
    for (int j = 0; j < HIDDEN; j++) d[j] = 0;
    for (int o = 0; o < OUTPUTS; o++)
      for (int j = 0; j < HIDDEN; j++) d[j] += scratch->dz[s][o] * scratch->second[o][j];
    for (int j = 0; j < HIDDEN; j++) d[j] = scratch->hidden[s][j] > 0 ? d[j] : 0;
  }
}

/* What one client trains with. */
typedef struct {
  const float *start[4], *offset[4]; /* bias and weight of each layer; the offsets may be NULL */
  const Feature *features;
  int64_t num_samples;
  const int32_t *labels; /* [samples] */
  Steps steps;
} Client;

static Client read_client(const XLA_FFI_CallFrame *frame, int64_t number) {
  static const int RANKS[4] = {1, 2, 1, 2};
  const XLA_FFI_Buffer *like = result_buffer(frame, 0);
  const int has_offset = frame->args.size > 2 * LAYERS + 5, tail = (has_offset ? 4 : 2) * LAYERS;
  const XLA_FFI_Buffer *samples = argument_buffer(frame, tail);
  Client client = {.num_samples = samples->dims[samples->rank - 2]};
  read_model(frame, 2 * LAYERS, RANKS, has_offset, client.start, client.offset, like, 1, number);
  const int64_t part = entry_of(samples, 2, like, 1, number);
  client.features = (const Feature *)samples->data + part * client.num_samples * INPUTS;
  client.labels = entry(frame, tail + 1, 1, like, 1, number);
  client.steps = read_steps(frame, tail + 2, like, 1, number);
  return client;
}

static inline void shift_layer(Layer *layer, const Client *client, int number, float pull) {
  const int64_t inputs = LAYER_INPUTS[number], outputs = LAYER_OUTPUTS[number];
  const float *start = client->start[2 * number + 1], *offset = client->offset[2 * number + 1];
  shift(layer->bias, client->start[2 * number], client->offset[2 * number], pull, outputs);
  for (int64_t o = 0; o < outputs; o++)
    shift(layer->weight + o * PADDED(inputs), start + o * inputs, offset ? offset + o * inputs : NULL, pull, inputs);
}

/* Copies [count, size] numbers between rows of different lengths. */
static inline void copy_rows(float *restrict to, int64_t to_row, const float *restrict from, int64_t from_row,
                             int64_t count, int64_t size) {
  for (int64_t row = 0; row < count; row++) memcpy(to + row * to_row, from + row * from_row, size * sizeof(float));
}

/* Copies a model to where its rows are padded with zeros. */
static void load_model(Scratch *scratch, Layer layers[2], const float *const *parts) {
  layers[0] = (Layer){scratch->first[0], scratch->first_bias};
  layers[1] = (Layer){scratch->second[0], scratch->second_bias};
  memset(scratch, 0, sizeof *scratch); /* the padding must be zero */
  for (int l = 0; l < LAYERS; l++) {
    memcpy(layers[l].bias, parts[2 * l], LAYER_OUTPUTS[l] * sizeof(float));
    copy_rows(layers[l].weight, PADDED(LAYER_INPUTS[l]), parts[2 * l + 1], LAYER_INPUTS[l], LAYER_OUTPUTS[l],
              LAYER_INPUTS[l]);
  }
}

/* Computes the outputs of the samples in scratch->x; they are in scratch->dz. */
static void forward_batch(Scratch *scratch, const Layer layers[2]) {
  if (HIDDEN) {
    forward(scratch->hidden[0], HIDDEN_ROW, &layers[0], scratch->x[0], PADDED(INPUTS), HIDDEN);
    for (int s = 0; s < BATCH; s++)
      for (int j = 0; j < HIDDEN; j++) scratch->hidden[s][j] = scratch->hidden[s][j] < 0 ? 0 : scratch->hidden[s][j];
  }
  const float *last_inputs = HIDDEN ? scratch->hidden[0] : scratch->x[0];
  forward(scratch->dz[0], PADDED(OUTPUTS), &layers[LAYERS - 1], last_inputs, LAST_ROW, OUTPUTS);
}

static void train_client(const void *context, int64_t number, void *memory) {
  const XLA_FFI_CallFrame *frame = context;
  const Client client = read_client(frame, number);
  Scratch *scratch = memory;
  Layer layers[2], *last = &layers[LAYERS - 1];
  if (client.steps.count > 0) prefetch_batch(client.features, client.num_samples, client.steps.rows);
  load_model(scratch, layers, client.start);
  const float *last_inputs = HIDDEN ? scratch->hidden[0] : scratch->x[0];
  for (int64_t step = 0; step < client.steps.count; step++) {
    const int32_t *batch = client.steps.rows + step * BATCH;
    read_batch(scratch->x, client.features, client.num_samples, batch);
    if (step + 1 < client.steps.count) prefetch_batch(client.features, client.num_samples, batch + BATCH);
    forward_batch(scratch, layers);
    for (int s = 0; s < BATCH; s++)
      cross_entropy_gradient(scratch->dz[s], client.labels[within(batch[s], client.num_samples)],
                             client.steps.rates[step] / BATCH);
    if (HIDDEN) backward_hidden(scratch);
    for (int l = 0; l < LAYERS; l++) shift_layer(&layers[l], &client, l, client.steps.pulls[step]);
    update(last, scratch->dz[0], PADDED(OUTPUTS), last_inputs, LAST_ROW, OUTPUTS);
    if (HIDDEN) update(&layers[0], scratch->dhidden[0], HIDDEN_ROW, scratch->x[0], PADDED(INPUTS), HIDDEN);
  }
  for (int l = 0; l < LAYERS; l++) {
    memcpy(result(frame, 2 * l) + number * LAYER_OUTPUTS[l], layers[l].bias, LAYER_OUTPUTS[l] * sizeof(float));
    copy_rows(result(frame, 2 * l + 1) + number * LAYER_OUTPUTS[l] * LAYER_INPUTS[l], LAYER_INPUTS[l],
              layers[l].weight, PADDED(LAYER_INPUTS[l]), LAYER_OUTPUTS[l], LAYER_INPUTS[l]);
  }
}

/* Arguments: bias and weight of each layer at the start, optionally the same of the offsets, then features
   [samples, INPUTS], labels [samples], rows [steps, BATCH], rates [steps] and pulls [steps]. Results: bias and weight
   of each layer after the last step. */
XLA_FFI_Error *dense_train(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  return for_each(frame, count_items(result_buffer(frame, 0), 1), sizeof(Scratch), train_client, frame);
}

#define AT_ONCE 500 /* samples; a thread computes the outputs of this many at a time */

static void output_samples(const void *context, int64_t part, void *memory) {
  const XLA_FFI_CallFrame *frame = context;
  const XLA_FFI_Buffer *samples = argument_buffer(frame, 2 * LAYERS);
  const int64_t num_samples = samples->dims[0], first = part * AT_ONCE;
  const int64_t end = first + AT_ONCE < num_samples ? first + AT_ONCE : num_samples;
  const float *parts[4];
  Scratch *scratch = memory;
  Layer layers[2];
  for (int number = 0; number < 2 * LAYERS; number++) parts[number] = argument(frame, number);
  load_model(scratch, layers, parts);
  for (int64_t begin = first; begin < end; begin += BATCH) {
    int32_t rows[BATCH];
    for (int s = 0; s < BATCH; s++) rows[s] = (int32_t)within(begin + s, num_samples);
    read_batch(scratch->x, samples->data, num_samples, rows);
    forward_batch(scratch, layers);
    const int64_t count = end - begin < BATCH ? end - begin : BATCH;
    copy_rows(result(frame, 0) + begin * OUTPUTS, OUTPUTS, scratch->dz[0], PADDED(OUTPUTS), count, OUTPUTS);
  }
}

/* Arguments: bias and weight of each layer, features [samples, INPUTS]. Result: the outputs [samples, OUTPUTS]. */
XLA_FFI_Error *dense_outputs(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  const int64_t num_samples = result_buffer(frame, 0)->dims[0];
  return for_each(frame, (num_samples + AT_ONCE - 1) / AT_ONCE, sizeof(Scratch), output_samples, frame);
}
