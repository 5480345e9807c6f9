/* `calls ROUNDS SEED [THREADS ARENAS]` calls every allocator function ROUNDS times in each thread with random arguments,
 * checks each block, and prints a checksum of the results. ARENAS is the maximum number of arenas of glibc.
 *
 * The checksum depends on results, errors and contents, but not on addresses: it is the same in every run with the same
 * C library and seed. */
#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined __GLIBC__ && defined __x86_64__
/* The names that every version has, as in thread_exits.c. */
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_barrier_init, pthread_barrier_init@GLIBC_2.2.5");
__asm__(".symver pthread_barrier_wait, pthread_barrier_wait@GLIBC_2.2.5");
#endif

#define PLACES 64
#define EDGE 48
#define MAX_THREADS 16

/* C23 functions, which few C libraries have yet. */
extern void free_sized(void *block, size_t size) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));

/* A live block: its first and last bytes hold a pattern derived from its seed. */
struct place {
    unsigned char *block;
    size_t size;
    size_t alignment;
    uint32_t seed;
};

static __thread struct place places[PLACES];
static __thread uint64_t checksum = 0xcbf29ce484222325u;
static __thread uint32_t state = 2463534242u;

static uint32_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void add(uint64_t value) { checksum = (checksum ^ value) * 0x100000001b3u; }

static void expect(int condition) {
    if (!condition)
        abort();
}

static size_t edge(size_t size) { return size < EDGE ? size : EDGE; }

static unsigned char pattern(uint32_t seed, size_t at) { return (unsigned char)(seed + at * 131); }

static void check(const unsigned char *block, uint32_t seed, size_t first, size_t size) {
    for (size_t at = first; at < size; at++) {
        expect(block[at] == pattern(seed, at));
        add(block[at]);
    }
}

static size_t tail(size_t size) { return size - edge(size); }

/* Checks the alignment of a new block and keeps it. Null is a valid result. */
static void keep(struct place *place, void *block, size_t size, size_t alignment) {
    add(block != NULL);
    if (!block)
        return;
    expect((uintptr_t)block % alignment == 0);
    *place = (struct place){block, size, alignment, next_random()};
    for (size_t at = 0; at < edge(size); at++)
        place->block[at] = pattern(place->seed, at);
    for (size_t at = tail(size); at < size; at++)
        place->block[at] = pattern(place->seed, at);
}

/* Frees the block by one of the functions that the C library has. */
static void drop(struct place *place) {
    if (!place->block)
        return;
    check(place->block, place->seed, 0, edge(place->size));
    check(place->block, place->seed, tail(place->size), place->size);
    ledger_free(place->block);
    uint32_t how = next_random() % 4;
    if (how == 1 && free_sized && place->alignment == 1)
        free_sized(place->block, place->size);
    else if (how == 2 && free_aligned_sized && place->alignment > 1)
        free_aligned_sized(place->block, place->alignment, place->size);
    else
        free(place->block);
    place->block = NULL;
}

/* Mostly small, sometimes large, sometimes a mapping of its own, sometimes 0, sometimes too large to succeed. */
static size_t any_size(void) {
    uint32_t kind = next_random() % 256, size = next_random();
    if (kind == 0)
        return (size_t)PTRDIFF_MAX + 4096 + size;
    if (kind == 1)
        return 0;
    if (kind == 2 && size % 16 == 0)
        return size % 3000000;
    if (kind < 5)
        return size % 40000;
    return size % 1200;
}

static size_t any_alignment(void) { return (size_t)8 << (next_random() % 6); }

static void with_malloc(struct place *place) {
    size_t size = any_size();
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    keep(place, block, size, 1);
}

static void with_calloc(struct place *place) {
    size_t size = any_size(), count = next_random() % 5;
    /* Rarely, a product that overflows to a small number. */
    if (next_random() % 200 == 0) {
        count = SIZE_MAX / 16 + 2;
        size = 16;
    }
    unsigned char *block = calloc(count, size);
    ledger_alloc(NULL, block, count * size);
    for (size_t at = 0; block && at < count * size; at++)
        expect(block[at] == 0);
    keep(place, block, count * size, 1);
}

/* Checks the result of realloc or reallocarray. */
static void moved(struct place *place, struct place old, void *block, size_t size, int failed) {
    if (failed) {
        add(2);
        *place = old;
        return;
    }
    if (block && old.block)
        check(block, old.seed, 0, edge(size < old.size ? size : old.size));
    keep(place, block, size, 1);
}

static void with_realloc(struct place *place) {
    struct place old = *place;
    size_t size = any_size();
    struct pending_realloc pending = ledger_begin_realloc(old.block);
    void *block = realloc(old.block, size);
    ledger_end_realloc(NULL, pending, block, size);
    place->block = NULL;
    moved(place, old, block, size, !block && size != 0);
}

static void with_reallocarray(struct place *place) {
    struct place old = *place;
    size_t size = any_size(), count = next_random() % 4, product;
    if (next_random() % 200 == 0)
        count = SIZE_MAX / 2;
    struct pending_realloc pending = ledger_begin_realloc(old.block);
    void *block = reallocarray(old.block, count, size);
    if (__builtin_mul_overflow(count, size, &product))
        product = SIZE_MAX;
    ledger_end_realloc(NULL, pending, block, product);
    place->block = NULL;
    moved(place, old, block, product, !block && product != 0);
}

static void with_posix_memalign(struct place *place) {
    size_t size = any_size(), alignment = next_random() % 100 == 0 ? 12 : any_alignment();
    void *block = NULL;
    int error = posix_memalign(&block, alignment, size);
    add((uint64_t)error);
    expect(error == 0 || block == NULL);
    ledger_alloc(NULL, block, size);
    keep(place, block, size, alignment);
}

static void with_aligned_alloc(struct place *place) {
    size_t size = any_size(), alignment = any_alignment();
    void *block = aligned_alloc(alignment, size);
    ledger_alloc(NULL, block, size);
    keep(place, block, size, alignment);
}

static void with_memalign(struct place *place) {
    size_t size = any_size(), alignment = any_alignment();
    void *block = memalign(alignment, size);
    ledger_alloc(NULL, block, size);
    keep(place, block, size, alignment);
}

static void with_valloc(struct place *place) {
    size_t size = any_size();
    void *block = valloc(size);
    ledger_alloc(NULL, block, size);
    keep(place, block, size, 4096);
}

#ifdef __GLIBC__
static void with_pvalloc(struct place *place) {
    size_t size = any_size();
    void *block = pvalloc(size);
    ledger_alloc(NULL, block, size);
    keep(place, block, size, 4096);
}
#endif

static void with_free_of_null(struct place *place) {
    (void)place;
    free(NULL);
}

typedef void call(struct place *place);

static call *const calls[] = {
    with_malloc,
    with_calloc,
    with_realloc,
    with_reallocarray,
    with_posix_memalign,
    with_aligned_alloc,
    with_memalign,
    with_valloc,
#ifdef __GLIBC__
    with_pvalloc,
#endif
    with_free_of_null,
};

static size_t rounds;
static uint32_t seed;
static pthread_barrier_t at_start, at_end;
static uint64_t checksums[MAX_THREADS];

static void work(uint32_t thread) {
    state ^= seed + thread * 65537;
    for (size_t round = 0; round < rounds; round++) {
        for (size_t kind = 0; kind < sizeof calls / sizeof *calls; kind++) {
            struct place *place = &places[next_random() % PLACES];
            if (calls[kind] != with_realloc && calls[kind] != with_reallocarray)
                drop(place);
            calls[kind](place);
        }
    }
    checksums[thread] = checksum;
}

/* Since glibc 2.42, if the first call of a thread is a free, it creates the tcache and restarts the free of the same
 * block (malloc/malloc.c, `tcache_free_init`): a probe would see it twice. */
static void create_cache(void) { free(malloc(16)); }

static void *run(void *number) {
    create_cache();
    pthread_barrier_wait(&at_start);
    work((uint32_t)(uintptr_t)number);
    pthread_barrier_wait(&at_end);
    return NULL;
}

int main(int count, char **arguments) {
    expect(count == 3 || count == 5);
    rounds = strtoul(arguments[1], NULL, 10);
    seed = (uint32_t)strtoul(arguments[2], NULL, 10);
    uint32_t threads = 1;
    if (count == 5) {
        threads = (uint32_t)strtoul(arguments[3], NULL, 10);
        expect(threads > 0 && threads <= MAX_THREADS);
#ifdef __GLIBC__
        expect(mallopt(M_ARENA_MAX, (int)strtoul(arguments[4], NULL, 10)));
#endif
    }
    create_cache();
    pthread_barrier_init(&at_start, NULL, threads);
    pthread_barrier_init(&at_end, NULL, threads);
    for (uint32_t thread = 1; thread < threads; thread++) {
        pthread_t created;
        expect(pthread_create(&created, NULL, run, (void *)(uintptr_t)thread) == 0);
    }
    ledger_start();
    pthread_barrier_wait(&at_start);
    work(0);
    pthread_barrier_wait(&at_end);
    checksum = 0;
    for (uint32_t thread = 0; thread < threads; thread++)
        checksum ^= checksums[thread];
    char sum[48] = "\"checksum\":", *end = sum + strlen(sum);
    char digits[24];
    size_t length = 0;
    do {
        digits[length++] = (char)('0' + checksum % 10);
        checksum /= 10;
    } while (checksum);
    while (length)
        *end++ = digits[--length];
    memcpy(end, ",", 2);
    ledger_print(sum);
    return wait_for_harness() ? 0 : 1;
}
