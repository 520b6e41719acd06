/* Local training of a two-layer LSTM with one logit per text: all steps of many clients in one call.

   The loss is the mean logistic loss of a batch. A step is x - rate * gradient - pull * (x - start) - offset, as in
   dense.c. Besides INPUTS and HIDDEN, the compiler's command line defines BATCH, WORDS (the longest text) and ID_BYTES
   (the size of a word's number). */

#include <math.h>

#include "lstm.h"

#if ID_BYTES == 1
typedef uint8_t Word;
#elif ID_BYTES == 2
typedef uint16_t Word;
#else
typedef uint32_t Word;
#endif

/* The parts of a model in the order in which they are passed; each layer has two biases, which are added. */
typedef struct {
  float hidden[HIDDEN * GATES], hidden_bias[GATES], input[INPUTS * GATES], input_bias[GATES];
} LowerLayer;
typedef struct {
  float hidden[HIDDEN * GATES], hidden_bias[GATES], input[HIDDEN * GATES], input_bias[GATES];
} UpperLayer;
typedef struct {
  LowerLayer lower;
  float output_bias[1], output[HIDDEN];
  UpperLayer upper;
} Parameters;
#define PARTS_OF_MODEL 10
static const int64_t PART_SIZES[PARTS_OF_MODEL] = {HIDDEN * GATES, GATES, INPUTS * GATES, GATES, 1,
                                                   HIDDEN,         HIDDEN * GATES, GATES, HIDDEN * GATES, GATES};
static const int PART_RANKS[PARTS_OF_MODEL] = {2, 1, 2, 1, 1, 2, 2, 1, 2, 1};

typedef struct {
  Parameters model, gradient;
  float lower_bias[GATES], upper_bias[GATES];                             /* the sums of the two biases */
  float lower_transposed[GATES * HIDDEN], upper_transposed[GATES * 2 * HIDDEN];
  float x[(WORDS + 1) * INPUTS], traces[WORDS * TRACE], dz[2][WORDS * GATES], h[2][(WORDS + 1) * HIDDEN];
} Memory;

/* What one client trains with. */
typedef struct {
  const float *start[PARTS_OF_MODEL], *offset[PARTS_OF_MODEL]; /* the offsets may be NULL */
  const Word *ids;                                             /* [samples, WORDS] */
  const int32_t *lengths, *labels;                             /* [samples] */
  const float *table;                                          /* [words, INPUTS] */
  int64_t num_samples, num_words;
  Steps steps;
} Client;

static Client read_client(const XLA_FFI_CallFrame *frame, int64_t number) {
  const XLA_FFI_Buffer *like = result_buffer(frame, 1); /* a vector, with the axes of the batch before it */
  const int has_offset = frame->args.size > PARTS_OF_MODEL + 7, tail = (has_offset ? 2 : 1) * PARTS_OF_MODEL;
  const XLA_FFI_Buffer *ids = argument_buffer(frame, tail), *table = argument_buffer(frame, tail + 3);
  Client client = {.num_samples = ids->dims[ids->rank - 2], .num_words = table->dims[table->rank - 2]};
  read_model(frame, PARTS_OF_MODEL, PART_RANKS, has_offset, client.start, client.offset, like, 1, number);
  client.ids = (const Word *)ids->data + entry_of(ids, 2, like, 1, number) * client.num_samples * WORDS;
  client.lengths = entry(frame, tail + 1, 1, like, 1, number);
  client.labels = entry(frame, tail + 2, 1, like, 1, number);
  client.table = entry(frame, tail + 3, 2, like, 1, number);
  client.steps = read_steps(frame, tail + 4, like, 1, number);
  return client;
}

/* Adds the gradient of one sample, multiplied by factor. */
static void add_gradient(Memory *m, const Client *client, int64_t sample, float factor) {
  const int32_t given = client->lengths[sample];
  const int length = given < 0 ? 0 : given > WORDS ? WORDS : given;
  for (int t = 0; t < length; t++)
    memcpy(m->x + t * INPUTS, client->table + within(client->ids[sample * WORDS + t], client->num_words) * INPUTS,
           INPUTS * sizeof(float));
  const Layer layers[2] = {{m->model.lower.input, m->model.lower.hidden, m->lower_bias},
                           {m->model.upper.input, m->model.upper.hidden, m->upper_bias}};
  float last[HIDDEN], dlast[HIDDEN], logit = m->model.output_bias[0];
  forward_text(layers, m->x, length, last, m->traces);
  for (int j = 0; j < HIDDEN; j++) logit += m->model.output[j] * last[j];
  const float dlogit = factor * (1.0f / (1.0f + expf(-logit)) - (float)client->labels[sample]);
  m->gradient.output_bias[0] += dlogit;
  for (int j = 0; j < HIDDEN; j++) {
    m->gradient.output[j] += dlogit * last[j];
    dlast[j] = dlogit * m->model.output[j];
  }
  Gradient d[2] = {{m->gradient.lower.input, m->gradient.lower.hidden, m->gradient.lower.hidden_bias},
                   {m->gradient.upper.input, m->gradient.upper.hidden, m->gradient.upper.hidden_bias}};
  Scratch scratch = {{m->dz[0], m->dz[1]}, {m->h[0], m->h[1]}};
  backward_text(m->lower_transposed, m->upper_transposed, m->x, length, m->traces, dlast, d, &scratch);
}

static void train_client(const void *context, int64_t number, void *memory) {
  const XLA_FFI_CallFrame *frame = context;
  const Client client = read_client(frame, number);
  Memory *m = memory;
  float *model = (float *)&m->model, *gradient = (float *)&m->gradient;
  for (int64_t part = 0, first = 0; part < PARTS_OF_MODEL; first += PART_SIZES[part++])
    memcpy(model + first, client.start[part], PART_SIZES[part] * sizeof(float));
  for (int layer = 0; layer < 2; layer++) memset(m->h[layer], 0, HIDDEN * sizeof(float)); /* before the first word */
  for (int64_t step = 0; step < client.steps.count; step++) {
    memset(gradient, 0, sizeof m->gradient);
    for (int k = 0; k < GATES; k++) {
      m->lower_bias[k] = m->model.lower.input_bias[k] + m->model.lower.hidden_bias[k];
      m->upper_bias[k] = m->model.upper.input_bias[k] + m->model.upper.hidden_bias[k];
    }
    transpose(m->lower_transposed, HIDDEN, m->model.lower.hidden, HIDDEN);
    transpose(m->upper_transposed, 2 * HIDDEN, m->model.upper.input, HIDDEN);
    transpose(m->upper_transposed + HIDDEN, 2 * HIDDEN, m->model.upper.hidden, HIDDEN);
    for (int sample = 0; sample < BATCH; sample++)
      add_gradient(m, &client, within(client.steps.rows[step * BATCH + sample], client.num_samples), 1.0f / BATCH);
    memcpy(m->gradient.lower.input_bias, m->gradient.lower.hidden_bias, GATES * sizeof(float));
    memcpy(m->gradient.upper.input_bias, m->gradient.upper.hidden_bias, GATES * sizeof(float));
    for (int64_t part = 0, first = 0; part < PARTS_OF_MODEL; first += PART_SIZES[part++])
      shift(model + first, client.start[part], client.offset[part], client.steps.pulls[step], PART_SIZES[part]);
    const float rate = client.steps.rates[step];
    for (size_t j = 0; j < sizeof m->model / sizeof(float); j++) model[j] -= rate * gradient[j];
  }
  for (int64_t part = 0, first = 0; part < PARTS_OF_MODEL; first += PART_SIZES[part++])
    memcpy(result(frame, (int)part) + number * PART_SIZES[part], model + first, PART_SIZES[part] * sizeof(float));
}

/* Arguments: the ten parts of the model at the start, optionally those of the offsets, then word numbers
   [samples, WORDS], lengths [samples], labels [samples], table [words, INPUTS], rows [steps, BATCH], rates [steps] and
   pulls [steps]. Results: the parts of the model after the last step. */
XLA_FFI_Error *lstm_training_train(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  return for_each(frame, count_items(result_buffer(frame, 1), 1), sizeof(Memory), train_client, frame);
}
