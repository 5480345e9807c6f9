/* `jemalloc_threads THREADS`, with jemalloc preloaded: threads that allocate, and read the counters that jemalloc keeps for
 * each of them. Prints for each thread its ID, and the bytes allocated and freed. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_THREADS 64

/* Of jemalloc. */
int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size) __attribute__((weak));

static pthread_barrier_t ready, begin, worked, leave;
static uint64_t counts[MOST_THREADS][3];

static uint64_t counter(const char *name) {
    uint64_t value = 0;
    size_t size = sizeof value;
    if (!mallctl || mallctl(name, &value, &size, NULL, 0) != 0)
        exit(3);
    return value;
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    uint32_t random = 7919u * (uint32_t)self + 1;
    void *blocks[100] = {0};
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&begin);
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525 + 1013904223;
        void **place = &blocks[(random >> 8) % 100];
        free(*place);
        *place = malloc((random >> 12) % 5000);
    }
    counts[self][0] = (uint64_t)gettid();
    counts[self][1] = counter("thread.allocated");
    counts[self][2] = counter("thread.deallocated");
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&leave);
    return NULL;
}

int main(int count, char **arguments) {
    size_t threads = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    if (threads > MOST_THREADS)
        return 2;
    pthread_barrier_t *barriers[] = {&ready, &begin, &worked, &leave};
    for (size_t i = 0; i < 4; i++)
        pthread_barrier_init(barriers[i], NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)i) != 0)
            abort();
        pthread_detach(thread);
    }
    pthread_barrier_wait(&ready);
    ledger_start();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&worked);
    char text[100];
    print_text("[");
    for (size_t i = 0; i < threads; i++) {
        snprintf(text, sizeof text, "%s[%lu,%lu,%lu]", i ? "," : "", counts[i][0], counts[i][1], counts[i][2]);
        print_text(text);
    }
    print_text("]\n");
    wait_for_harness();
    return 0;
}
