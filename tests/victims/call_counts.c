/* Threads that count their calls of each allocator function, and the requested bytes. Prints them as one line of JSON:
 * for each function the number of calls, and the sum of the requested bytes. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2, STEPS = 1500 };
enum { MALLOC, CALLOC, REALLOC, MEMALIGN, FREE, FUNCTIONS };

static const char *const names[FUNCTIONS] = {"malloc", "calloc", "realloc", "posix_memalign", "free"};
static uint64_t counts[FUNCTIONS], bytes[FUNCTIONS];
static pthread_barrier_t begin, end;
/* Not constant, since compilers refuse such a size. */
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;

/* Is never called without arguments. */
__attribute__((noipa)) static int abandon(int status) { return status; }

static void count(int function, size_t size) {
    __atomic_fetch_add(&counts[function], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bytes[function], size, __ATOMIC_RELAXED);
}

static void step(size_t i) {
    size_t size = 1 + i * 7 % 3000;
    void *block = malloc(size);
    count(MALLOC, size);
    if (i % 2) {
        block = realloc(block, 2 * size);
        count(REALLOC, 2 * size);
    }
    free(block);
    count(FREE, 0);
    if (i % 3 == 0) {
        block = calloc(3, size);
        count(CALLOC, 3 * size);
        free(block);
        count(FREE, 0);
    }
    if (i % 5 == 0) {
        if (posix_memalign(&block, 128, size) != 0)
            abort();
        count(MEMALIGN, size);
        free(block);
        count(FREE, 0);
    }
    if (i % 7 == 0) {
        block = realloc(NULL, size);
        count(REALLOC, size);
        if (realloc(block, 0))
            abort();
        count(REALLOC, 0);
    }
    /* A free of no block is not counted. */
    free(NULL);
    if (i % 11 == 0) {
        if (malloc(too_large))
            abort();
        count(MALLOC, too_large);
    }
}

static void *run(void *argument) {
    pthread_barrier_wait(&begin);
    for (size_t i = 0; i < STEPS; i++)
        step(i + (size_t)argument);
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    char text[128];
    (void)argv;
    if (argc > 1)
        return abandon(2);
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 3;
    ledger_start();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    for (int i = 0; i < FUNCTIONS; i++) {
        /* The sum can overflow, as that of the tracer does. */
        snprintf(text, sizeof text, "%s\"%s\":[%lu,%lu]", i ? "," : "{", names[i], counts[i], bytes[i]);
        print_text(text);
    }
    print_text("}\n");
    int status = wait_for_harness() ? 0 : 1;
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return status;
}
