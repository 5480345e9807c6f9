/* `heaps THREADS` allocates and frees in several arenas by a fixed pattern and prints mallinfo2. */
#define _GNU_SOURCE
#include "ledger.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 4000

/* Enough for more than one heap of 64 MiB in an arena. */
#define MANY 1500

static pthread_barrier_t arrived, leave;
static size_t threads;

/* Touches the block, so that it is resident. */
static void *sized(size_t size) {
    void *block = malloc(size);
    if (!block)
        abort();
    memset(block, 1, size);
    return block;
}

static void *taken(size_t number) { return sized(1 + number * 7919 % 3000); }

/* Fragments the heap as a long run would: free blocks of every bin, including tcache and fastbins, lie between used
 * ones. */
static void pattern(size_t times) {
    for (size_t time = 0; time < times; time++) {
        void *blocks[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[i] = taken(i + time);
        for (size_t i = 0; i < BLOCKS; i += 1 + i % 3)
            free(blocks[i]);
    }
}

static void large(void) {
    /* Blocks in mappings of their own, unaligned first, then aligned. */
    size_t sizes[] = {200000, 1 << 20, 3 << 20};
    for (size_t i = 0; i < 3; i++) {
        char *block = malloc(sizes[i]);
        if (!block)
            abort();
        block[sizes[i] / 2] = 1;
    }
    size_t alignments[] = {64, 4096, 1 << 21};
    for (size_t i = 0; i < 3; i++) {
        char *block = aligned_alloc(alignments[i], 4 << 20);
        if (!block)
            abort();
        block[0] = 1;
    }
}

static void *work(void *argument) {
    size_t number = (size_t)argument;
    pattern(1 + number);
    /* The arena of the last thread needs more than one heap. */
    if (number + 1 == threads) {
        for (size_t i = 0; i < MANY; i++) {
            void *block = malloc(100000);
            if (!block)
                abort();
            memset(block, 1, i % 2 ? 100000 : 10);
            if (i % 5 == 0)
                free(block);
        }
    }
    pthread_barrier_wait(&arrived);
    pthread_barrier_wait(&leave);
    return NULL;
}

int main(int count, char **words) {
    threads = count > 1 ? strtoul(words[1], NULL, 10) : 0;
    pthread_t ids[64];
    if (threads > 64)
        return 2;
    pthread_barrier_init(&arrived, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&leave, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)i))
            return 2;
    void *small[60];
    for (size_t i = 0; i < 60; i++)
        small[i] = sized(50);
    pattern(5);
    large();
    /* More than the tcache holds: the rest goes to a fastbin. */
    for (size_t i = 0; i < 60; i++)
        free(small[i]);
    pthread_barrier_wait(&arrived);
    /* Nothing allocates from here on. */
    static char line[200];
    struct mallinfo2 info = mallinfo2();
    snprintf(line, sizeof line,
             "{\"uordblks\":%zu,\"fsmblks\":%zu,\"fordblks\":%zu,\"hblks\":%zu,\"hblkhd\":%zu,\"arena\":%zu}\n",
             info.uordblks, info.fsmblks, info.fordblks, info.hblks, info.hblkhd, info.arena);
    print_ready();
    print_text(line);
    if (!wait_for_harness())
        return 1;
    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
