/* A two-layer LSTM over one text: its last hidden state, and the gradient of its weights.

   Texts are processed one at a time and without their padding; the weights of a model stay in the L1 cache while its
   texts are processed. The compiler's command line defines INPUTS and HIDDEN. The order of the gates is input, forget,
   candidate, output. */

#include "kernel.h"

#define GATES (4 * HIDDEN)
#define TRACE (12 * HIDDEN) /* values kept per word for the backward pass: gates, cell, tanh(cell) of two layers */

/* LANES is the largest SIMD width that divides HIDDEN. */
#define LANES (HIDDEN % MAX_LANES == 0 ? MAX_LANES : MAX_LANES > 8 && HIDDEN % 8 == 0 ? 8 : HIDDEN % 4 == 0 ? 4 : 1)
#define PARTS (GATES / LANES) /* SIMD vectors in a row of gates */
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

typedef struct {
  const float *input, *hidden, *bias; /* [inputs, GATES], [HIDDEN, GATES], [GATES] */
} Layer;

typedef struct {
  float *input, *hidden, *bias;
} Gradient;

/* tanh(x) = e / (e + 2) with e = exp(2x) - 1 = s q + (s - 1). */
static inline float fast_tanh(float x) {
  float y = 2.0f * x;
  y = y > 20.0f ? 20.0f : y; /* comparisons with NaN are false, so NaN is preserved */
  y = y < -20.0f ? -20.0f : y;
  const Exponential exponential = split_exponential(y);
  float e = exponential.s * exponential.q + (exponential.s - 1.0f);
  return e / (e + 2.0f);
}

/* total [width] += v [count] W [count, width], where width is HIDDEN, 2 HIDDEN or GATES. Each addition depends on the
   previous one of the same sum. To have enough independent sums, GATES / width rows of W are summed separately; count
   is a multiple of this number. Inlined, so that count and width are constants and the sums stay in registers. */
static INLINE void add_product(float *restrict total, const float *restrict v, const float *restrict W, int count,
                                int width) {
  const int rows = GATES / width, parts = width / LANES;
  Lanes sums[PARTS] = {{0}};
  for (int j = 0; j < count; j += rows)
    for (int row = 0; row < rows; row++)
      for (int part = 0; part < parts; part++)
        sums[row * parts + part] += v[j + row] * *(const Lanes *)(W + (j + row) * width + part * LANES);
  for (int row = 0; row < rows; row++)
    for (int part = 0; part < parts; part++) *(Lanes *)(total + part * LANES) += sums[row * parts + part];
}

/* One word in one layer: writes the gates, the new cell and its tanh to trace [6 * HIDDEN], and the new state to h. */
static inline void step(const Layer *w, const float *restrict v, int inputs, const float *restrict c,
                        float *restrict h, float *restrict trace) {
  float z[GATES];
  memcpy(z, w->bias, sizeof z);
  add_product(z, v, w->input, inputs, GATES);
  add_product(z, h, w->hidden, HIDDEN, GATES);
  for (int k = 0; k < GATES; k++) { /* sigmoid(z) = (1 + tanh(z / 2)) / 2 */
    int candidate = k >= 2 * HIDDEN && k < 3 * HIDDEN;
    float t = fast_tanh(candidate ? z[k] : 0.5f * z[k]);
    trace[k] = candidate ? t : 0.5f + 0.5f * t;
  }
  const float *i = trace, *f = i + HIDDEN, *g = f + HIDDEN, *o = g + HIDDEN;
  float *cell = trace + GATES, *tanh_cell = cell + HIDDEN;
  for (int j = 0; j < HIDDEN; j++) {
    cell[j] = f[j] * c[j] + i[j] * g[j];
    tanh_cell[j] = fast_tanh(cell[j]);
    h[j] = o[j] * tanh_cell[j];
  }
}

/* Processes one text; writes the last hidden state of the upper layer to `last` and, unless NULL, all traces. */
static void forward_text(const Layer w[2], const float *x, int length, float *last, float *traces) {
  float h[2][HIDDEN] = {{0}}, scratch[2][TRACE] = {{0}}, zeros[HIDDEN] = {0};
  const float *previous = NULL;
  for (int t = 0; t < length; t++) {
    float *trace = traces ? traces + t * TRACE : scratch[t & 1];
    step(&w[0], x + t * INPUTS, INPUTS, previous ? previous + GATES : zeros, h[0], trace);
    step(&w[1], h[0], HIDDEN, previous ? previous + TRACE / 2 + GATES : zeros, h[1], trace + TRACE / 2);
    previous = trace;
  }
  memcpy(last, h[1], sizeof h[1]);
}

/* Backward pass of one word in one layer: from dh and dc of the new state, computes dz of the gates and dc of the old
   state. */
static inline void step_back(const float *restrict trace, const float *restrict c, const float *restrict dh,
                             float *restrict dc, float *restrict dz) {
  const float *i = trace, *f = i + HIDDEN, *g = f + HIDDEN, *o = g + HIDDEN, *tanh_cell = trace + GATES + HIDDEN;
  for (int j = 0; j < HIDDEN; j++) {
    float d = dc[j] + dh[j] * o[j] * (1.0f - tanh_cell[j] * tanh_cell[j]);
    dz[j] = d * g[j] * i[j] * (1.0f - i[j]);
    dz[HIDDEN + j] = d * c[j] * f[j] * (1.0f - f[j]);
    dz[2 * HIDDEN + j] = d * i[j] * (1.0f - g[j] * g[j]);
    dz[3 * HIDDEN + j] = dh[j] * tanh_cell[j] * o[j] * (1.0f - o[j]);
    dc[j] = d * f[j];
  }
}

/* dW [rows, GATES] += sum over words t of v_t[row] dz_t, for at most ROWS rows, so that the sums fit 16 registers. */
#define ROWS (PARTS < 16 ? 16 / PARTS : 1)
static INLINE void add_rows(float *restrict dW, const float *restrict v, int stride, int rows, const float *restrict dz,
                             int length) {
  Lanes sums[ROWS * PARTS];
  memcpy(sums, dW, rows * GATES * sizeof(float));
  for (int t = 0; t < length; t++)
    for (int row = 0; row < rows; row++)
      for (int part = 0; part < PARTS; part++)
        sums[row * PARTS + part] += v[t * stride + row] * *(const Lanes *)(dz + t * GATES + part * LANES);
  memcpy(dW, sums, rows * GATES * sizeof(float));
}

/* dW [count, GATES] += sum over words t of the outer product of v_t [count] and dz_t [GATES]. */
static INLINE void add_outer(float *restrict dW, const float *restrict v, int stride, int count,
                              const float *restrict dz, int length) {
  const int whole = count - count % ROWS;
  for (int j = 0; j < whole; j += ROWS) add_rows(dW + j * GATES, v + j, stride, ROWS, dz, length);
  add_rows(dW + whole * GATES, v + whole, stride, count % ROWS, dz, length);
}

static void transpose(float *restrict to, int stride, const float *restrict W, int count) {
  for (int j = 0; j < count; j++)
    for (int k = 0; k < GATES; k++) to[k * stride + j] = W[j * GATES + k];
}

typedef struct {
  float *dz[2], *h[2]; /* per layer: [words, GATES], and [words + 1, HIDDEN] with h[0] = 0 */
} Scratch;

/* Backward pass of one text; adds the gradients of the weights to d. */
static void backward_text(const float *lower_transposed, const float *upper_transposed, const float *x, int length,
                          const float *traces, const float *dlast, Gradient d[2], Scratch *s) {
  float dh[2][HIDDEN] = {{0}}, dc[2][HIDDEN] = {{0}}, zeros[HIDDEN] = {0};
  memcpy(dh[1], dlast, sizeof dh[1]);
  for (int t = length - 1; t >= 0; t--) {
    const float *trace = traces + t * TRACE, *upper = trace + TRACE / 2, *previous = t ? trace - TRACE : NULL;
    float *lower_dz = s->dz[0] + t * GATES, *upper_dz = s->dz[1] + t * GATES, products[2 * HIDDEN] = {0};
    step_back(upper, previous ? previous + TRACE / 2 + GATES : zeros, dh[1], dc[1], upper_dz);
    add_product(products, upper_dz, upper_transposed, GATES, 2 * HIDDEN);
    for (int j = 0; j < HIDDEN; j++) dh[0][j] += products[j];
    memcpy(dh[1], products + HIDDEN, sizeof dh[1]);
    step_back(trace, previous ? previous + GATES : zeros, dh[0], dc[0], lower_dz);
    memset(dh[0], 0, sizeof dh[0]);
    add_product(dh[0], lower_dz, lower_transposed, GATES, HIDDEN);
    for (int l = 0; l < 2; l++) {
      const float *layer = trace + l * TRACE / 2;
      for (int j = 0; j < HIDDEN; j++)
        s->h[l][(t + 1) * HIDDEN + j] = layer[3 * HIDDEN + j] * layer[GATES + HIDDEN + j];
    }
  }
  add_outer(d[0].input, x, INPUTS, INPUTS, s->dz[0], length);
  add_outer(d[1].input, s->h[0] + HIDDEN, HIDDEN, HIDDEN, s->dz[1], length);
  for (int l = 0; l < 2; l++) {
    add_outer(d[l].hidden, s->h[l], HIDDEN, HIDDEN, s->dz[l], length);
    for (int t = 0; t < length; t++)
      for (int k = 0; k < GATES; k++) d[l].bias[k] += s->dz[l][t * GATES + k];
  }
}
