/* What all kernels share: SIMD vectors, the interface to XLA, and loops on XLA's threads. */

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#define INLINE inline __attribute__((always_inline))

/* The largest SIMD width that this machine supports; compilers split wider vectors into single numbers. */
#if defined(__AVX512F__)
#define MAX_LANES 16
#elif defined(__AVX__)
#define MAX_LANES 8
#else
#define MAX_LANES 4
#endif

/* ---- Interface to XLA ---- */

static inline const XLA_FFI_Buffer *argument_buffer(const XLA_FFI_CallFrame *frame, int number) {
  return (const XLA_FFI_Buffer *)frame->args.args[number];
}

static inline const XLA_FFI_Buffer *result_buffer(const XLA_FFI_CallFrame *frame, int number) {
  return (const XLA_FFI_Buffer *)frame->rets.rets[number];
}

static inline float *argument(const XLA_FFI_CallFrame *frame, int number) {
  return (float *)argument_buffer(frame, number)->data;
}

static inline float *result(const XLA_FFI_CallFrame *frame, int number) {
  return (float *)result_buffer(frame, number)->data;
}

/* Answers the initial call, in which XLA asks a handler for the API version it was compiled for. Returns whether this
   was such a call. */
static inline int answer_version_request(XLA_FFI_CallFrame *frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static inline XLA_FFI_Error *out_of_memory(const XLA_FFI_CallFrame *frame) {
  XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, "kernel: out of memory",
                                     XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
  return frame->api->XLA_FFI_Error_Create(&error);
}

/* ---- Batches: under vmap every array has leading axes, of length 1 where the array is the same for all items ---- */

/* The number of items: the product of all but the last `rank` axes of a result. */
static inline int64_t count_items(const XLA_FFI_Buffer *result, int rank) {
  int64_t items = 1;
  for (int64_t axis = 0; axis < result->rank - rank; axis++) items *= result->dims[axis];
  return items;
}

/* The number of the entry of an array with entries of `rank` axes that belongs to an item. */
static inline int64_t entry_of(const XLA_FFI_Buffer *array, int rank, const XLA_FFI_Buffer *result, int result_rank,
                               int64_t item) {
  int64_t entry = 0, stride = 1;
  for (int64_t axis = array->rank - rank - 1, other = result->rank - result_rank - 1; axis >= 0; axis--, other--) {
    if (array->dims[axis] > 1) entry += item % result->dims[other] * stride;
    stride *= array->dims[axis];
    item /= result->dims[other];
  }
  return entry;
}

/* The entry of an argument that belongs to an item. All arguments for which this is used have elements of 4 bytes. */
static inline const void *entry(const XLA_FFI_CallFrame *frame, int number, int rank, const XLA_FFI_Buffer *result,
                                int result_rank, int64_t item) {
  const XLA_FFI_Buffer *array = argument_buffer(frame, number);
  int64_t size = 4;
  for (int64_t axis = array->rank - rank; axis < array->rank; axis++) size *= array->dims[axis];
  return (const char *)array->data + size * entry_of(array, rank, result, result_rank, item);
}

/* A row number, moved into range: kernels never read outside an array. */
static inline int64_t within(int64_t row, int64_t num_rows) {
  return row < 0 ? 0 : row < num_rows ? row : num_rows - 1;
}

/* ---- Arithmetic ---- */

/* exp(y) = s (1 + q) with s = 2^k and q = exp(r) - 1, where y = k ln 2 + r. For |y| <= 87; NaN is preserved. */
typedef struct {
  float s, q;
} Exponential;

static INLINE Exponential split_exponential(float y) {
  union { float value; uint32_t bits; } s, rounded = {y * 1.44269504f + 12582912.0f}; /* its lowest bits are k */
  s.bits = (rounded.bits + 127) << 23;
  float k = rounded.value - 12582912.0f;
  float r = (y - k * 0.693359375f) + k * 2.12194440e-4f; /* ln 2 as a sum of two numbers */
  float q = 1.0f / 720.0f + r * (1.0f / 5040.0f);
  q = 1.0f / 120.0f + r * q;
  q = 1.0f / 24.0f + r * q;
  q = 1.0f / 6.0f + r * q;
  q = 0.5f + r * q;
  return (Exponential){s.value, r + r * r * q};
}

/* ---- Local training ---- */

/* The steps of one client. */
typedef struct {
  int64_t count;
  const int32_t *rows;        /* [count, batch] the samples of each step */
  const float *rates, *pulls; /* [count] */
} Steps;

/* Reads the steps from the arguments rows, rates and pulls, the first of which has the given number. */
static inline Steps read_steps(const XLA_FFI_CallFrame *frame, int number, const XLA_FFI_Buffer *result,
                               int result_rank, int64_t item) {
  const XLA_FFI_Buffer *rows = argument_buffer(frame, number);
  return (Steps){rows->dims[rows->rank - 2], entry(frame, number, 2, result, result_rank, item),
                 entry(frame, number + 1, 1, result, result_rank, item),
                 entry(frame, number + 2, 1, result, result_rank, item)};
}

/* Reads where the parts of a model start, and their offsets from the arguments after them; NULL if there are none. */
static inline void read_model(const XLA_FFI_CallFrame *frame, int parts, const int *ranks, int has_offset,
                              const float **start, const float **offset, const XLA_FFI_Buffer *result,
                              int result_rank, int64_t item) {
  for (int part = 0; part < parts; part++) {
    start[part] = entry(frame, part, ranks[part], result, result_rank, item);
    offset[part] = has_offset ? entry(frame, parts + part, ranks[part], result, result_rank, item) : NULL;
  }
}

/* x -= pull * (x - start) + offset, where offset may be NULL: the parts of a local step besides the gradient. */
static inline void shift(float *restrict x, const float *restrict start, const float *restrict offset, float pull,
                         int64_t size) {
  if (pull != 0)
    for (int64_t j = 0; j < size; j++) x[j] -= pull * (x[j] - start[j]);
  if (offset)
    for (int64_t j = 0; j < size; j++) x[j] -= offset[j];
}

/* ---- Loops on XLA's threads ---- */

typedef void Work(const void *context, int64_t item, void *scratch);

typedef struct {
  Work *work;
  const void *context; /* valid until all items are done */
  int64_t items;
  size_t scratch_bytes;
  _Atomic int64_t next, done;
  _Atomic int users; /* the caller and the tasks that XLA has not run to their end */
} Loop;

static inline void release(Loop *loop) {
  if (atomic_fetch_sub(&loop->users, 1) == 1) free(loop);
}

/* Takes items until none is left. Returns whether there was enough memory to take part. */
static inline int take_part(Loop *loop) {
  void *scratch = NULL;
  if (loop->scratch_bytes) {
    scratch = aligned_alloc(64, (loop->scratch_bytes + 63) / 64 * 64);
    if (!scratch) return 0;
  }
  for (int64_t item; (item = atomic_fetch_add(&loop->next, 1)) < loop->items;) {
    loop->work(loop->context, item, scratch);
    atomic_fetch_add(&loop->done, 1);
  }
  free(scratch);
  return 1;
}

static inline void task(void *loop) {
  if (atomic_load(&((Loop *)loop)->next) < ((Loop *)loop)->items) take_part(loop);
  release(loop);
}

static inline int64_t count_threads(const XLA_FFI_CallFrame *frame) {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args request = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, NULL, frame->ctx,
                                                &threads};
  XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_NumThreads(&request);
  if (error) { /* there is no pool */
    XLA_FFI_Error_Destroy_Args destroy = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
    frame->api->XLA_FFI_Error_Destroy(&destroy);
    return 1;
  }
  const char *limit = getenv("FEDLATEST_THREADS");
  int64_t most = limit ? atoll(limit) : 0;
  return most > 0 && most < threads ? most : threads;
}

/* Calls work(context, item, scratch) for every item, on as many threads as XLA has. Every item is computed by one
   thread, so results do not depend on the number of threads. Each thread has its own scratch memory. */
static inline XLA_FFI_Error *for_each(XLA_FFI_CallFrame *frame, int64_t items, size_t scratch_bytes, Work *work,
                                      const void *context) {
  Loop *loop = malloc(sizeof(Loop));
  if (!loop) return out_of_memory(frame);
  *loop = (Loop){.work = work, .context = context, .items = items, .scratch_bytes = scratch_bytes};
  atomic_store(&loop->users, 1);
  int64_t helpers = (items > 1 ? count_threads(frame) : 1) - 1;
  for (int64_t helper = 0; helper < helpers && helper < items - 1; helper++) {
    atomic_fetch_add(&loop->users, 1);
    XLA_FFI_ThreadPool_Schedule_Args schedule = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, NULL, frame->ctx, task,
                                                 loop};
    XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_Schedule(&schedule);
    if (error) {
      XLA_FFI_Error_Destroy_Args destroy = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
      frame->api->XLA_FFI_Error_Destroy(&destroy);
      atomic_fetch_sub(&loop->users, 1);
      break;
    }
  }
  int complete = take_part(loop);
  int64_t taken = items;
  if (!complete) { /* no thread takes another item */
    taken = atomic_exchange(&loop->next, items);
    if (taken > items) taken = items;
  }
  for (int64_t turns = 0; atomic_load(&loop->done) < taken; turns++) { /* others finish their last items */
    if (turns > 10000) sched_yield(); /* there are more threads than cores */
  }
  XLA_FFI_Error *error = complete ? NULL : out_of_memory(frame);
  release(loop);
  return error;
}
