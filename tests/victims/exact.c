/* A deterministic mix of all allocator functions, and three call sites with known totals. */
#define _GNU_SOURCE
#include "ledger.h"

#include <malloc.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))
#define BLOCKS 400

static struct site a = {.name = "site_a"}, b = {.name = "site_b"}, c = {.name = "site_c"};
static void *blocks[BLOCKS], *old[64];

NOINLINE static void *site_a(size_t size) {
    void *block = malloc(size); a.line = __LINE__;
    ledger_alloc(&a, block, size);
    return block;
}

NOINLINE static void *site_b(size_t count, size_t size) {
    void *block = calloc(count, size); b.line = __LINE__;
    ledger_alloc(&b, block, count * size);
    return block;
}

NOINLINE static void *site_c(void *block, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(block);
    void *grown = realloc(block, size); c.line = __LINE__;
    ledger_end_realloc(&c, pending, grown, size);
    return grown;
}

static uint32_t next_random(void) {
    static uint32_t state = 2463534242u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

NOINLINE static void release(void **place) {
    ledger_free(*place);
    free(*place);
    *place = NULL;
}

NOINLINE static void *any_function(uint32_t kind, size_t size) {
    void *block = NULL;
    switch (kind % 7) {
    case 0:
        block = malloc(size);
        break;
    case 1:
        block = calloc(size, 3);
        size *= 3;
        break;
    case 2:
        block = memalign(64, size);
        break;
    case 3:
        block = aligned_alloc(256, size);
        break;
    case 4:
        if (posix_memalign(&block, 32, size) != 0)
            block = NULL;
        break;
    case 5:
        block = reallocarray(NULL, 2, size);
        size *= 2;
        break;
    case 6:
        block = realloc(NULL, size);
        break;
    }
    ledger_alloc(NULL, block, size);
    return block;
}

NOINLINE static void mix(void) {
    for (int round = 0; round < 6000; round++) {
        void **place = &blocks[next_random() % BLOCKS];
        uint32_t kind = next_random();
        size_t size = next_random() % (kind % 50 == 0 ? 200000 : 700);
        if (!*place) {
            *place = any_function(kind, size);
        } else if (kind % 3 == 0) {
            struct pending_realloc pending = ledger_begin_realloc(*place);
            void *moved = realloc(*place, size);
            ledger_end_realloc(NULL, pending, moved, size);
            if (moved || size == 0)
                *place = moved;
        } else {
            release(place);
        }
    }
}

int main(void) {
    for (size_t i = 0; i < 64; i++)
        old[i] = malloc(i * 40);
    ledger_start();
    for (size_t i = 0; i < 50; i++)
        release(&old[i]);
    for (size_t i = 1; i <= 100; i++)
        site_a(i);
    for (size_t i = 1; i <= 10; i++)
        site_b(i, 1000);
    void *grown = NULL;
    for (size_t i = 1; i <= 20; i++)
        grown = site_c(grown, i * 3000);
    old[60] = site_c(old[60], 100);
    void *dropped = site_a(5000);
    release(&dropped);
    mix();
    free(NULL);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
