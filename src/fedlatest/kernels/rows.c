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

/* Some columns of the rows of a cohort, and where their sum is. */
typedef struct {
  const XLA_FFI_Buffer *rows; /* [K, ...] */
  int64_t length, first, count;
  float *total;
  const float *base; /* is subtracted from every row; NULL: nothing is */
} Columns;

/* Reads the columns of a part, and copies their total unless it is computed in place. */
static Columns read_columns(const XLA_FFI_CallFrame *frame, int64_t part, int total, int total_result, int rows,
                            int base) {
  Columns columns = {.rows = argument_buffer(frame, rows), .first = part * COLUMNS};
  columns.length = row_length(columns.rows);
  columns.count = columns.length - columns.first < COLUMNS ? columns.length - columns.first : COLUMNS;
  columns.total = result(frame, total_result) + columns.first;
  columns.base = frame->args.size > base ? argument(frame, base) + columns.first : NULL;
  const float *from = argument(frame, total) + columns.first;
  if (from != columns.total) memcpy(columns.total, from, columns.count * sizeof(float));
  return columns;
}

/* The row of a slot; minus the base, in `difference`, if there is one. */
static inline const float *read_row(const Columns *columns, int64_t slot, float *restrict difference) {
  const float *restrict row = (const float *)columns->rows->data + slot * columns->length + columns->first;
  if (!columns->base) return row;
  for (int64_t j = 0; j < columns->count; j++) difference[j] = row[j] - columns->base[j];
  return difference;
}

static XLA_FFI_Error *for_each_part(XLA_FFI_CallFrame *frame, int64_t length, Work *work) {
  return for_each(frame, (length + COLUMNS - 1) / COLUMNS, COLUMNS * sizeof(float), work, frame);
}

/* Arguments: total [...], rows [K, ...], mask [K] and optionally base [...]. Results: total plus the rows of the real
   slots, each minus the base (in place). */
static void add_part(const void *context, int64_t part, void *scratch) {
  const XLA_FFI_CallFrame *frame = context;
  const Columns columns = read_columns(frame, part, 0, 0, 1, 3);
  const uint8_t *mask = argument_buffer(frame, 2)->data;
  for (int64_t slot = 0; slot < columns.rows->dims[0]; slot++) {
    if (!mask[slot]) continue;
    const float *restrict row = read_row(&columns, slot, scratch);
    for (int64_t j = 0; j < columns.count; j++) columns.total[j] += row[j];
  }
}

XLA_FFI_Error *rows_add(XLA_FFI_CallFrame *frame) {
  if (answer_version_request(frame)) return NULL;
  return for_each_part(frame, row_length(argument_buffer(frame, 1)), add_part);
}

/* Arguments: remembered [N, ...], total [...], new [K, ...], positions [K], mask [K] and optionally base [...].
   Results, in place: remembered with the rows of the real slots replaced by the new ones, each minus the base, and
   total plus the sum of the differences of these rows. */
static void replace_part(const void *context, int64_t part, void *scratch) {
  const XLA_FFI_CallFrame *frame = context;
  const Columns columns = read_columns(frame, part, 1, 1, 2, 5);
  const XLA_FFI_Buffer *remembered = result_buffer(frame, 0);
  const int32_t *positions = argument_buffer(frame, 3)->data;
  const uint8_t *mask = argument_buffer(frame, 4)->data;
  for (int64_t slot = 0; slot < columns.rows->dims[0]; slot++) {
    if (!mask[slot] || positions[slot] < 0 || positions[slot] >= remembered->dims[0]) continue;
    const float *restrict row = read_row(&columns, slot, scratch);
    float *restrict old = (float *)remembered->data + positions[slot] * columns.length + columns.first;
    for (int64_t j = 0; j < columns.count; j++) {
      columns.total[j] += row[j] - old[j];
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
