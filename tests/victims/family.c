/* `family ROUNDS` calls every function of an allocator and records the results. PREFIX is put before the names of the
 * standard functions; JEMALLOC and MIMALLOC add the extended functions of these allocators. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#ifndef PREFIX
#define PREFIX
#endif
#define JOINED(prefix, name) prefix##name
#define JOIN(prefix, name) JOINED(prefix, name)
#define F(name) JOIN(PREFIX, name)

extern void *F(malloc)(size_t size);
extern void *F(calloc)(size_t count, size_t size);
extern void *F(realloc)(void *old, size_t size);
extern int F(posix_memalign)(void **out, size_t alignment, size_t size);
extern void *F(aligned_alloc)(size_t alignment, size_t size);
extern void F(free)(void *block);

#define PLACES 64

static void *places[PLACES];
static uint32_t state = 88172645u;

static uint32_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void expect(int condition) {
    if (!condition)
        abort();
}

/* Mostly small, sometimes large, sometimes 0, sometimes too large to succeed. */
static size_t any_size(void) {
    uint32_t kind = next_random() % 128, size = next_random();
    if (kind == 0)
        return (size_t)PTRDIFF_MAX + 4096 + size;
    if (kind == 1)
        return 0;
    if (kind < 8)
        return size % 300000;
    return size % 900;
}

#if defined JEMALLOC || defined MIMALLOC
static size_t some_size(void) { return next_random() % 3000 + 1; }
#endif

static int place(void) { return (int)(next_random() % PLACES); }

static void keep(int at, void *block, size_t size) {
    ledger_alloc(NULL, block, size);
    places[at] = block;
}

static void drop(int at) {
    ledger_free(places[at]);
    F(free)(places[at]);
    places[at] = NULL;
}

static void empty(int at) {
    if (places[at])
        drop(at);
}

static void exchange(int at, void *new(void *, size_t), size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(places[at]);
    void *block = new(places[at], size);
    ledger_end_realloc(NULL, pending, block, size);
    if (block || size == 0)
        places[at] = block;
}

static void standard(int at, uint32_t kind) {
    size_t size = any_size();
    void *block = NULL;
    switch (kind % 6) {
    case 0:
        empty(at);
        keep(at, F(malloc)(size), size);
        break;
    case 1:
        empty(at);
        keep(at, F(calloc)(3, size), 3 * size);
        break;
    case 2:
        exchange(at, F(realloc), size);
        break;
    case 3:
        empty(at);
        if (F(posix_memalign)(&block, 64, size) != 0)
            block = NULL;
        keep(at, block, size);
        break;
    case 4:
        empty(at);
        keep(at, F(aligned_alloc)(32, size), size);
        break;
    default:
        F(free)(NULL);
        empty(at);
    }
}

#ifdef JEMALLOC
extern void *F(mallocx)(size_t size, int flags);
extern void *F(rallocx)(void *old, size_t size, int flags);
extern size_t F(xallocx)(void *block, size_t size, size_t extra, int flags);
extern void F(dallocx)(void *block, int flags);
extern void F(sdallocx)(void *block, size_t size, int flags);

/* MALLOCX_LG_ALIGN(6): an alignment of 64. */
#define ALIGNED 6

static void extended(int at, uint32_t kind) {
    size_t size = some_size();
    struct pending_realloc pending;
    void *block;
    size_t extra, real;
    switch (kind % 4) {
    case 0:
        empty(at);
        keep(at, F(mallocx)(size, kind & 8 ? ALIGNED : 0), size);
        break;
    case 1:
        if (!places[at])
            break;
        pending = ledger_begin_realloc(places[at]);
        block = F(rallocx)(places[at], size, 0);
        ledger_end_realloc(NULL, pending, block, size);
        expect(block != NULL);
        places[at] = block;
        break;
    case 2:
        if (!places[at])
            break;
        extra = next_random() % 200;
        pending = ledger_begin_realloc(places[at]);
        real = F(xallocx)(places[at], size, extra, 0);
        if (real < size)
            ledger_end_realloc(NULL, pending, NULL, 1);
        else
            ledger_end_realloc(NULL, pending, places[at], real < size + extra ? real : size + extra);
        break;
    default:
        empty(at);
        block = F(mallocx)(size, 0);
        ledger_alloc(NULL, block, size);
        ledger_free(block);
        if (kind & 8)
            F(dallocx)(block, 0);
        else
            F(sdallocx)(block, size, 0);
    }
}
#elif defined MIMALLOC
extern void *mi_zalloc(size_t size);
extern void *mi_malloc_small(size_t size);
extern void *mi_mallocn(size_t count, size_t size);
extern void *mi_reallocn(void *old, size_t count, size_t size);
extern void *mi_rezalloc(void *old, size_t size);
extern void *mi_expand(void *block, size_t size);
extern void *mi_malloc_aligned(size_t size, size_t alignment);
extern void *mi_zalloc_aligned(size_t size, size_t alignment);
extern void *mi_realloc_aligned(void *old, size_t size, size_t alignment);
extern void mi_free_size(void *block, size_t size);
extern void mi_free_aligned(void *block, size_t alignment);
extern void *mi_heap_get_default(void);
extern void *mi_heap_malloc(void *heap, size_t size);
extern void *mi_heap_calloc(void *heap, size_t count, size_t size);
extern void *mi_heap_realloc(void *heap, void *old, size_t size);
extern void *mi_new(size_t size);

static void *realloc_aligned(void *old, size_t size) { return mi_realloc_aligned(old, size, 64); }

static void *realloc_thrice(void *old, size_t size) { return mi_reallocn(old, 3, size / 3); }

static void *realloc_in_heap(void *old, size_t size) { return mi_heap_realloc(mi_heap_get_default(), old, size); }

static void extended(int at, uint32_t kind) {
    size_t size = some_size();
    void *block;
    switch (kind % 14) {
    case 0:
        empty(at);
        keep(at, mi_zalloc(size), size);
        break;
    case 1:
        empty(at);
        keep(at, mi_malloc_small(size % 1000), size % 1000);
        break;
    case 2:
        empty(at);
        keep(at, mi_mallocn(size, 3), size * 3);
        break;
    case 3:
        exchange(at, realloc_thrice, size / 3 * 3);
        break;
    case 4:
        exchange(at, mi_rezalloc, size);
        break;
    case 5:
        if (places[at])
            exchange(at, mi_expand, size);
        break;
    case 6:
        empty(at);
        keep(at, mi_malloc_aligned(size, 64), size);
        break;
    case 7:
        empty(at);
        keep(at, mi_zalloc_aligned(size, 256), size);
        break;
    case 8:
        empty(at);
        keep(at, mi_malloc_aligned(size, 64), size);
        exchange(at, realloc_aligned, size * 2);
        break;
    case 9:
        empty(at);
        keep(at, mi_heap_malloc(mi_heap_get_default(), size), size);
        break;
    case 10:
        empty(at);
        keep(at, mi_heap_calloc(mi_heap_get_default(), 5, size), 5 * size);
        break;
    case 11:
        exchange(at, realloc_in_heap, size);
        break;
    case 12:
        empty(at);
        keep(at, mi_new(size), size);
        break;
    default:
        empty(at);
        block = mi_malloc_aligned(size, 16);
        ledger_alloc(NULL, block, size);
        ledger_free(block);
        if (kind & 16)
            mi_free_size(block, size);
        else
            mi_free_aligned(block, 16);
    }
}
#else
static void extended(int at, uint32_t kind) { standard(at, kind); }
#endif

int main(int count, char **arguments) {
    expect(count == 2);
    size_t rounds = strtoul(arguments[1], NULL, 10);
    /* The first call may allocate internal structures; make it before recording starts. */
    F(free)(F(malloc)(16));
    ledger_start();
    for (size_t round = 0; round < rounds; round++) {
        standard(place(), next_random());
        extended(place(), next_random());
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
