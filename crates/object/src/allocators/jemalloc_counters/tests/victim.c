// Threads allocate and free random sizes, ask jemalloc for their counters, print these with their thread pointer, and wait until
// the standard input ends.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef PREFIX
#define PREFIX
#endif
#define JOIN_(prefix, name) prefix##name
#define JOIN(prefix, name) JOIN_(prefix, name)
#define CALL(name) JOIN(PREFIX, name)

enum { THREADS = 8, BLOCKS = 64, STEPS = 20000 };

int CALL(mallctl)(const char *, void *, size_t *, void *, size_t);
void *CALL(malloc)(size_t);
void *CALL(realloc)(void *, size_t);
void CALL(free)(void *);

static uint64_t counter(const char *name) {
    uint64_t value = 0;
    size_t size = sizeof value;
    if (CALL(mallctl)(name, &value, &size, NULL, 0) != 0) {
        _exit(1);
    }
    return value;
}

static void *allocate(void *seed) {
    void *blocks[BLOCKS] = {0};
    unsigned random = (unsigned)(uintptr_t)seed;
    for (int step = 0; step < STEPS; step++) {
        void **block = &blocks[rand_r(&random) % BLOCKS];
        size_t size = (size_t)rand_r(&random) % 40000 + 1;
        if (rand_r(&random) % 4 == 0) {
            *block = CALL(realloc)(*block, size);
        } else {
            CALL(free)(*block);
            *block = CALL(malloc)(size);
        }
    }
    uint64_t allocated = counter("thread.allocated"), deallocated = counter("thread.deallocated");
    char line[96];
    int length = snprintf(line, sizeof line, "%llu %llu %llu\n", (unsigned long long)__builtin_thread_pointer(),
                          (unsigned long long)allocated, (unsigned long long)deallocated);
    if (write(1, line, (size_t)length) != length) {
        _exit(1);
    }
    for (;;) {
        pause();
    }
    return NULL;
}

static void *wait_for_end(void *unused) {
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
    return unused;
}

int main(void) {
    pthread_t thread;
    for (uintptr_t seed = 1; seed <= THREADS; seed++) {
        pthread_create(&thread, NULL, allocate, (void *)seed);
    }
    pthread_create(&thread, NULL, wait_for_end, NULL);
    allocate((void *)(uintptr_t)99);
    return 0;
}
