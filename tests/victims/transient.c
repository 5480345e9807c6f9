/* A server with a thread for each request: many short-lived threads, each of which leaves a block that the first thread can
 * free later. Prints the counters of all these threads as one line of JSON: bytes and blocks that they have allocated, that
 * were freed, and that the first thread has freed. Their blocks have sizes of their own. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 250
#define AT_ONCE 8
#define THREADS (ROUNDS * AT_ONCE)

static void *left[THREADS];
static uint64_t numbers[6];

static size_t size_of_left(size_t thread) {
    return 100 + thread % 1000;
}

static void count(int number, size_t size) {
    __atomic_add_fetch(&numbers[2 * number], size, __ATOMIC_RELAXED);
    __atomic_add_fetch(&numbers[2 * number + 1], 1, __ATOMIC_RELAXED);
}

static void *run(void *argument) {
    size_t thread = (size_t)argument, size = size_of_left(thread);
    void *own = malloc(3000);
    count(0, 3000);
    left[thread] = malloc(size);
    count(0, size);
    free(own);
    count(1, 3000);
    return NULL;
}

/* Frees each fourth block of the threads from `begin` on. */
static void free_left(size_t begin, size_t end) {
    for (size_t thread = begin; thread < end; thread++) {
        if (thread % 4 != 0 || left[thread] == NULL)
            continue;
        size_t size = size_of_left(thread);
        free(left[thread]);
        left[thread] = NULL;
        count(1, size);
        count(2, size);
    }
}

int main(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    ledger_start();
    for (size_t round = 0; round < ROUNDS; round++) {
        pthread_t threads[AT_ONCE];
        for (size_t i = 0; i < AT_ONCE; i++)
            if (pthread_create(&threads[i], &small, run, (void *)(round * AT_ONCE + i)) != 0)
                abort();
        for (size_t i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], NULL);
        if (round % 2 == 0)
            free_left(round * AT_ONCE, (round + 1) * AT_ONCE);
    }
    print_text("[]\n");
    if (!wait_for_harness())
        return 1;
    /* Most of these threads have ended long ago. */
    free_left(0, THREADS);
    static char text[512];
    snprintf(text, sizeof text, "[%lu,%lu,%lu,%lu,%lu,%lu]\n", numbers[0], numbers[1], numbers[2], numbers[3], numbers[4],
             numbers[5]);
    print_text(text);
    return wait_for_harness() ? 0 : 1;
}
