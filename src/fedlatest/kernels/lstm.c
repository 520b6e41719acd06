/* The recurrence of a two-layer LSTM for many models and texts, and its gradient. Axes: [models, texts, words, ...]. */

#include "lstm.h"

typedef struct {
  int64_t models, texts, words;
} Shape;

static Shape read_shape(XLA_FFI_CallFrame *frame) { /* from the word vectors [..., texts, words, INPUTS] */
  XLA_FFI_Buffer *vectors = (XLA_FFI_Buffer *)frame->args.args[6];
  Shape shape = {1, vectors->dims[vectors->rank - 3], vectors->dims[vectors->rank - 2]};
  for (int64_t axis = 0; axis < vectors->rank - 3; axis++) shape.models *= vectors->dims[axis];
  return shape;
}

static const int64_t SIZES[6] = {INPUTS * GATES, HIDDEN * GATES, GATES, HIDDEN * GATES, HIDDEN * GATES, GATES};

static void read_weights(XLA_FFI_CallFrame *frame, int64_t model, Layer w[2]) {
  const float *p[6];
  for (int part = 0; part < 6; part++) p[part] = argument(frame, part) + model * SIZES[part];
  w[0] = (Layer){p[0], p[1], p[2]};
  w[1] = (Layer){p[3], p[4], p[5]};
}

/* Arguments: six weights, vectors, lengths. Results: last hidden states [..., texts, HIDDEN] and optional traces. */
XLA_FFI_Error *lstm_forward(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  Shape shape = read_shape(frame);
  const int32_t *lengths = (const int32_t *)argument(frame, 7);
  for (int64_t model = 0; model < shape.models; model++) {
    Layer w[2];
    read_weights(frame, model, w);
    for (int64_t text = model * shape.texts; text < (model + 1) * shape.texts; text++)
      forward_text(w, argument(frame, 6) + text * shape.words * INPUTS, lengths[text], result(frame, 0) + text * HIDDEN,
                   frame->rets.size > 1 ? result(frame, 1) + text * shape.words * TRACE : NULL);
  }
  return NULL;
}

/* Arguments: six weights, vectors, lengths, traces, gradient of the last hidden states. Results: gradients of the six
   weights. */
XLA_FFI_Error *lstm_backward(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  Shape shape = read_shape(frame);
  const int32_t *lengths = (const int32_t *)argument(frame, 7);
  float *memory =
      malloc(sizeof(float) * (2 * shape.words * GATES + 2 * (shape.words + 1) * HIDDEN + 3 * HIDDEN * GATES));
  if (!memory) return out_of_memory(frame);
  Scratch s = {{memory, memory + shape.words * GATES}, {NULL, NULL}};
  s.h[0] = s.dz[1] + shape.words * GATES;
  s.h[1] = s.h[0] + (shape.words + 1) * HIDDEN;
  float *lower_transposed = s.h[1] + (shape.words + 1) * HIDDEN, *upper_transposed = lower_transposed + HIDDEN * GATES;
  memset(s.h[0], 0, HIDDEN * sizeof(float));
  memset(s.h[1], 0, HIDDEN * sizeof(float));
  for (int64_t model = 0; model < shape.models; model++) {
    Layer w[2];
    read_weights(frame, model, w);
    transpose(lower_transposed, HIDDEN, w[0].hidden, HIDDEN);
    transpose(upper_transposed, 2 * HIDDEN, w[1].input, HIDDEN);
    transpose(upper_transposed + HIDDEN, 2 * HIDDEN, w[1].hidden, HIDDEN);
    float *p[6];
    for (int part = 0; part < 6; part++) {
      p[part] = result(frame, part) + model * SIZES[part];
      memset(p[part], 0, SIZES[part] * sizeof(float));
    }
    Gradient d[2] = {{p[0], p[1], p[2]}, {p[3], p[4], p[5]}};
    for (int64_t text = model * shape.texts; text < (model + 1) * shape.texts; text++)
      backward_text(lower_transposed, upper_transposed, argument(frame, 6) + text * shape.words * INPUTS, lengths[text],
                    argument(frame, 8) + text * shape.words * TRACE, argument(frame, 9) + text * HIDDEN, d, &s);
  }
  free(memory);
  return NULL;
}
