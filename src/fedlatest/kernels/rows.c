/* Sums over the rows of a cohort, and the replacement of remembered rows.

   Sums are computed column by column in the order of the slots, so that they depend neither on the number of threads
   nor on how many slots are processed at once. */

#include "kernel.h"

#define COLUMNS 1024 /* a thread processes this many columns of all rows at a time */

static inline int64_t row_length(const XLA_FFI_Buffer *rows) {
  int64_t length = 1;
  for (int64_t axis = 1; axis < rows->rank; axis++) length *= rows->dims[axis];
  return length;
}

static XLA_FFI_Error *for_each_part(XLA_FFI_CallFrame *frame, int64_t length, Work *work) {
  return for_each(frame, (length + COLUMNS - 1) / COLUMNS, 0, work, frame);
}

/* Arguments: total [...], rows [K, ...], mask [K]. Results: total plus the rows of the real slots (in place). */
static void add_part(const void *context, int64_t part, void *scratch) {
  (void)scratch;
  const XLA_FFI_CallFrame *frame = context;
  const XLA_FFI_Buffer *rows = argument_buffer(frame, 1);
  const uint8_t *mask = argument_buffer(frame, 2)->data;
  const int64_t length = row_length(rows), first = part * COLUMNS;
  const int64_t count = length - first < COLUMNS ? length - first : COLUMNS;
  float *restrict total = result(frame, 0) + first;
  const float *from = argument(frame, 0) + first;
  if (from != total) memcpy(total, from, count * sizeof(float));
  for (int64_t slot = 0; slot < rows->dims[0]; slot++) {
    const float *restrict row = (const float *)rows->data + slot * length + first;
    if (mask[slot])
      for (int64_t j = 0; j < count; j++) total[j] += row[j];
  }
}

XLA_FFI_Error *rows_add(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  return for_each_part(frame, row_length(argument_buffer(frame, 1)), add_part);
}

/* Arguments: remembered [N, ...], total [...], new [K, ...], positions [K], mask [K]. Results, in place: remembered with the rows
   of the real slots replaced, and total plus the sum of the differences of these rows. */
static void replace_part(const void *context, int64_t part, void *scratch) {
  (void)scratch;
  const XLA_FFI_CallFrame *frame = context;
  const XLA_FFI_Buffer *remembered = result_buffer(frame, 0), *rows = argument_buffer(frame, 2);
  const int32_t *positions = argument_buffer(frame, 3)->data;
  const uint8_t *mask = argument_buffer(frame, 4)->data;
  const int64_t length = row_length(rows), first = part * COLUMNS;
  const int64_t count = length - first < COLUMNS ? length - first : COLUMNS;
  float *restrict total = result(frame, 1) + first;
  const float *from = argument(frame, 1) + first;
  if (from != total) memcpy(total, from, count * sizeof(float));
  for (int64_t slot = 0; slot < rows->dims[0]; slot++) {
    if (!mask[slot] || positions[slot] < 0 || positions[slot] >= remembered->dims[0]) continue;
    const float *restrict row = (const float *)rows->data + slot * length + first;
    float *restrict old = (float *)remembered->data + positions[slot] * length + first;
    for (int64_t j = 0; j < count; j++) {
      total[j] += row[j] - old[j];
      old[j] = row[j];
    }
  }
}

XLA_FFI_Error *rows_replace(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  const XLA_FFI_Buffer *from = argument_buffer(frame, 0), *remembered = result_buffer(frame, 0);
  if (from->data != remembered->data) /* XLA did not alias the two */
    memcpy(remembered->data, from->data, from->dims[0] * row_length(from) * sizeof(float));
  return for_each_part(frame, row_length(argument_buffer(frame, 2)), replace_part);
}
