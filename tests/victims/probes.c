/* Threads that set tags by the probes of memtrace.h, and count the blocks of each tag. C99, and with a C++ compiler C++11.
 *
 * The first argument is a list of letters:
 *   n  names, i  numbers, c  computed names, p  blocks of other threads are claimed
 * Prints the tags with their allocated and live bytes and blocks as one line of JSON. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memtrace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
#include <string>
extern "C" {
#include "ledger.h"
}
#else
#include "ledger.h"
#endif

enum { THREADS = 4, OF_KIND = 20, TAGS = 3 * OF_KIND, SLOTS = 512, LEVELS = 5 };

struct counters {
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
};

/* The beginning of each block. */
struct header {
    uint32_t size;
    int32_t tag;
};

/* The last entry is for blocks without a tag. */
static struct counters counters[TAGS + 1];
static char names[OF_KIND][16];
static struct header *slots[SLOTS];
static pthread_barrier_t begin, end;
static int steps, claims, kinds[3], kind_count;
static __thread int current = TAGS;

static void add(uint64_t *to, uint64_t value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

static void count_alloc(struct header *block, uint32_t size) {
    block->size = size;
    block->tag = current;
    add(&counters[current].alloc_bytes, size);
    add(&counters[current].alloc_count, 1);
}

static void count_free(const struct header *block) {
    add(&counters[block->tag].free_bytes, block->size);
    add(&counters[block->tag].free_count, 1);
}

static void release(struct header *block) {
    if (!block)
        return;
    count_free(block);
    free(block);
}

static void replace(uint32_t random) {
    struct header **slot = &slots[random % SLOTS];
    struct header *block = __atomic_exchange_n(slot, (struct header *)NULL, __ATOMIC_ACQ_REL);
    uint32_t size = 16 + (random >> 12) % 3000;
    if (block && claims && random >> 30 == 0) {
        memtrace_claim(block);
        count_free(block);
        count_alloc(block, block->size);
    } else if (block && random >> 30 == 1) {
        count_free(block);
        block = (struct header *)realloc(block, size);
        count_alloc(block, size);
    } else {
        release(block);
        block = (struct header *)malloc(size);
        count_alloc(block, size);
    }
    release(__atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL));
}

static uint32_t next(uint32_t *random) { return *random = *random * 1664525 + 1013904223; }

static void nest(uint32_t *random, int level);

static void work(uint32_t *random, int level, int tag) {
    int outer = current;
    current = tag;
    replace(next(random));
    if (level < LEVELS && next(random) >> 31)
        nest(random, level + 1);
    replace(next(random));
    current = outer;
}

static void nest(uint32_t *random, int level) {
    int number = (int)(next(random) >> 8) % OF_KIND, kind = kinds[(next(random) >> 8) % (uint32_t)kind_count];
    int tag = kind * OF_KIND + number;
#ifdef __cplusplus
    if (kind == 0) {
        memtrace::tag scope(names[number]);
        work(random, level, tag);
    } else if (kind == 1) {
        memtrace::tag scope(static_cast<uint64_t>(tag));
        work(random, level, tag);
    } else {
        memtrace::computed_tag scope([=] { return std::string("user ") + std::to_string(number); });
        work(random, level, tag);
    }
#else
    if (kind == 0) {
        memtrace_tag_begin(names[number]);
    } else if (kind == 1) {
        memtrace_tag_begin_id((uint64_t)tag);
    } else {
        char name[16];
        if (!MEMTRACE_TAG_ENABLED())
            abort();
        snprintf(name, sizeof name, "user %d", number);
        memtrace_tag_begin(name);
    }
    work(random, level, tag);
    memtrace_tag_end();
#endif
}

static void *run(void *argument) {
    uint32_t random = 4711 + 977 * (uint32_t)(size_t)argument;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < steps; i++) {
        nest(&random, 0);
        replace(next(&random));
    }
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

static void print_tags(void) {
    const char *separator = "{";
    for (int i = 0; i <= TAGS; i++) {
        const struct counters *tag = &counters[i];
        char name[32], text[256];
        if (tag->alloc_count == 0)
            continue;
        if (i == TAGS)
            strcpy(name, "[no tag]");
        else if (i < OF_KIND)
            strcpy(name, names[i]);
        else if (i < 2 * OF_KIND)
            snprintf(name, sizeof name, "%d", i);
        else
            snprintf(name, sizeof name, "user %d", i - 2 * OF_KIND);
        snprintf(text, sizeof text,
                 "%s\"%s\":{\"alloc_bytes\":%lu,\"alloc_count\":%lu,\"free_bytes\":%lu,\"free_count\":%lu,"
                 "\"live_bytes\":%lu,\"live_count\":%lu}",
                 separator, name, tag->alloc_bytes, tag->alloc_count, tag->free_bytes, tag->free_count,
                 tag->alloc_bytes - tag->free_bytes, tag->alloc_count - tag->free_count);
        print_text(text);
        separator = ",";
    }
    print_text("}\n");
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    if (argc != 3)
        return 2;
    for (int i = 0; i < 3; i++)
        if (strchr(argv[1], "nic"[i]))
            kinds[kind_count++] = i;
    claims = strchr(argv[1], 'p') != NULL;
    steps = atoi(argv[2]);
    if (MEMTRACE_TAG_ENABLED())
        return 3;
    for (int i = 0; i < OF_KIND; i++)
        snprintf(names[i], sizeof names[i], "name %d", i);
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 4;
    ledger_start();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    print_tags();
    if (!wait_for_harness())
        return 1;
    /* memtrace has left: nothing is computed for it. */
    if (MEMTRACE_TAG_ENABLED())
        return 5;
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
