/* The two limits of a roofline, measured: multiply-adds per second, and bytes per second read from memory.
 *
 *   cc -O3 -march=native -ffast-math -fopenmp machine_peak.c
 *   machine_peak          prints {"threads": ..., "gflops": ..., "gigabytes": ...}; the best of several attempts
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));
enum { SUMS = 10, REPEATS = 500000 }; /* enough independent sums to hide the latency of a multiply-add */
enum { ATTEMPTS = 60 };               /* many short ones: some of them are not interrupted by other processes */
static const size_t BYTES = 128u << 20; /* larger than the caches of most machines */

/* Return float operations per second of all threads; a multiply-add counts as two. */
static double measure_flops(void) {
    double result = 0;
    const double begun = omp_get_wtime();
#pragma omp parallel reduction(+ : result)
    {
        Lanes sums[SUMS], factor = {0}, offset = {0};
        for (int lane = 0; lane < LANES; lane++) factor[lane] = 0.999f + 1e-6f * lane, offset[lane] = 1e-3f * (lane + 1);
        for (int s = 0; s < SUMS; s++) sums[s] = factor + (float)s;
        for (int i = 0; i < REPEATS; i++)
            for (int s = 0; s < SUMS; s++) sums[s] = sums[s] * factor + offset;
        for (int s = 0; s < SUMS; s++) result += sums[s][0]; /* used below, so that the loop is not removed */
    }
    const double seconds = omp_get_wtime() - begun;
    return result == 0 ? 0 : 2.0 * LANES * SUMS * REPEATS * omp_get_max_threads() / seconds;
}

/* Return bytes per second that all threads read from an array. */
static double measure_bytes(const float *array) {
    double result = 0;
    const double begun = omp_get_wtime();
#pragma omp parallel for reduction(+ : result) schedule(static)
    for (size_t block = 0; block < BYTES / 4096; block++) {
        float sum = 0;
        for (size_t i = 0; i < 1024; i++) sum += array[block * 1024 + i];
        result += sum;
    }
    const double seconds = omp_get_wtime() - begun;
    return result == 0 ? 0 : BYTES / seconds;
}

int main(void) {
    float *array = aligned_alloc(64, BYTES);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < BYTES / sizeof(float); i++) array[i] = 1;
    double flops = 0, bytes = 0;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const double a = measure_flops(), b = measure_bytes(array);
        flops = a > flops ? a : flops;
        bytes = b > bytes ? b : bytes;
    }
    printf("{\"threads\": %d, \"gflops\": %.1f, \"gigabytes\": %.2f}\n", omp_get_max_threads(), flops * 1e-9, bytes * 1e-9);
    return 0;
}
