/* Times blocks of rounds and prints them as one line of JSON. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int ascending(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The processor time of all threads, which other processes on the machine change less than the time of the clock. */
static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Run one block that is not timed and `repeats` blocks that are; print the median and the best time of a round, and the
   median of its processor time, in milliseconds. */
static void time_blocks(void (*run_round)(int round), int rounds_per_block, int repeats) {
    double *wall = malloc(sizeof(double) * repeats), *cpu = malloc(sizeof(double) * repeats);
    for (int block = -1; block < repeats; block++) {
        const double begun = omp_get_wtime(), cpu_begun = cpu_seconds();
        for (int round = 0; round < rounds_per_block; round++) run_round((block + 1) * rounds_per_block + round);
        if (block < 0) continue;
        wall[block] = (omp_get_wtime() - begun) * 1e3 / rounds_per_block;
        cpu[block] = (cpu_seconds() - cpu_begun) * 1e3 / rounds_per_block;
    }
    qsort(wall, repeats, sizeof(double), ascending);
    qsort(cpu, repeats, sizeof(double), ascending);
    printf("{\"threads\": %d, \"median\": %.4f, \"best\": %.4f, \"cpu\": %.4f}\n", omp_get_max_threads(),
           wall[repeats / 2], wall[0], cpu[repeats / 2]);
    free(wall);
    free(cpu);
}

/* xorshift64: a small generator for made-up data and for the draws of a round. */
static unsigned long long random_state = 88172645463325252ULL;
static unsigned random_below(unsigned limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 33) % limit);
}
static double random_uniform(void) { return (random_below(1u << 30) + 0.5) / (1u << 30); }

static void write_array(FILE *file, const void *data, size_t bytes) {
    if (fwrite(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "cannot write the file of --check\n");
        exit(1);
    }
}
