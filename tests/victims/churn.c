/* Threads that allocate, reallocate and free without a pause until the harness stops them. Every block is checked for
 * its contents before it is freed or reallocated. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 2
#define WINDOW 64

struct block {
    unsigned char *bytes;
    size_t size;
    unsigned char mark;
};

static volatile int stop;

static void check(const struct block *block) {
    for (size_t i = 0; i < block->size; i++)
        if (block->bytes[i] != block->mark)
            abort();
}

static void make(struct block *block, size_t size, unsigned char mark) {
    *block = (struct block){.bytes = malloc(size), .size = size, .mark = mark};
    if (!block->bytes)
        abort();
    ledger_alloc(NULL, block->bytes, size);
    memset(block->bytes, mark, size);
}

static void move(struct block *block, size_t size) {
    check(block);
    struct pending_realloc pending = ledger_begin_realloc(block->bytes);
    unsigned char *moved = realloc(block->bytes, size);
    ledger_end_realloc(NULL, pending, moved, size);
    if (!moved)
        abort();
    block->bytes = moved;
    if (size < block->size)
        block->size = size;
    check(block);
    block->size = size;
    memset(moved, block->mark, size);
}

static void release(struct block *block) {
    check(block);
    ledger_free(block->bytes);
    free(block->bytes);
    block->bytes = NULL;
}

static void *run(void *argument) {
    struct block window[WINDOW] = {{0}};
    unsigned state = (unsigned)(size_t)argument;
    while (!stop) {
        state = state * 1664525u + 1013904223u;
        struct block *block = &window[state >> 26];
        size_t size = 1 + (state >> 8) % 900;
        if (!block->bytes)
            make(block, size, (unsigned char)(state >> 16));
        else if (state & 1u << 12)
            move(block, size);
        else
            release(block);
    }
    for (size_t i = 0; i < WINDOW; i++)
        if (window[i].bytes)
            release(&window[i]);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    ledger_start();
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(i + 1)) != 0)
            abort();
    int released = wait_for_harness();
    stop = 1;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (!released)
        return 1;
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
