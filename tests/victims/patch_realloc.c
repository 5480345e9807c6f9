/* Calls of the allocator that fail or overflow, and reallocs that move, shrink, and grow in place. Does all of them for each line of
 * the harness, and prints the totals. */
#define _GNU_SOURCE
#include "patch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

/* Volatile, so that the compiler cannot predict the failures. Above 2^47, 2^62 and 2^63. */
static volatile size_t too_large[] = {((size_t)1 << 47) + 4096, ((size_t)1 << 62) + 100, (size_t)PTRDIFF_MAX + 4096,
                                      SIZE_MAX - 4096};
/* `many` times `much` overflows. */
static volatile size_t many = SIZE_MAX / 4, much = 8;

#define LARGE (sizeof too_large / sizeof *too_large)

NOINLINE static void *take(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    if (block)
        fill(block, size, 7);
    return block;
}

NOINLINE static void *resize(void *old, size_t before, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(old);
    void *block = realloc(old, size);
    ledger_end_realloc(NULL, pending, block, size);
    if (block && old && before)
        check(block, before < size ? before : size, 7);
    if (block && size)
        fill(block, size, 7);
    return block;
}

NOINLINE static void *resize_array(void *old, size_t count, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(old);
    void *block = reallocarray(old, count, size);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    ledger_end_realloc(NULL, pending, block, bytes);
    return block;
}

static void release(void *block) {
    ledger_free(block);
    free(block);
}

static void grow_and_shrink(void) {
    void *block = resize(NULL, 0, 64);
    size_t before = 64;
    for (size_t size = 77; size < 3000; before = size, size += 13)
        block = resize(block, before, size);
    /* The block after it prevents growth in place. */
    for (size_t size = 4000; size < 300000; before = size, size += 9000) {
        void *fence = take(64);
        block = resize(block, before, size);
        release(fence);
    }
    for (size_t size = 290000; size > 7500; before = size, size -= 7000)
        block = resize(block, before, size);
    /* A block of its own mapping. */
    block = resize(block, before, 4 * MIB);
    block = resize(block, 4 * MIB, 9 * MIB);
    block = resize(block, 9 * MIB, 3 * MIB);
    release(block);
}

/* A failure leaves the block unchanged. Another sample follows each failure, if the thread still samples. */
static void fail_by_size(void) {
    void *block = take(5000);
    for (size_t i = 0; i < LARGE; i++) {
        expect(malloc(too_large[i]) == NULL && errno == ENOMEM, "a huge malloc has succeeded\n");
        release(take(100 + i));
        expect(calloc(1, too_large[i]) == NULL && calloc(too_large[i], 1) == NULL, "a huge calloc has succeeded\n");
        release(take(200 + i));
        expect(resize(NULL, 0, too_large[i]) == NULL, "a huge realloc has succeeded\n");
        expect(resize(block, 5000, too_large[i]) == NULL, "a huge realloc has succeeded\n");
        check(block, 5000, 7);
        release(take(300 + i));
    }
    expect(calloc(many, much) == NULL, "calloc has overflowed\n");
    expect(resize_array(block, many, much) == NULL, "reallocarray has overflowed\n");
    expect(resize_array(NULL, many, much) == NULL, "reallocarray has overflowed\n");
    check(block, 5000, 7);
    block = resize(block, 5000, 6000);
    release(block);
}

/* Returns the size of the address space (proc_pid_statm(5)). */
static size_t address_space(void) {
    char text[128] = "";
    int file = open("/proc/self/statm", O_RDONLY);
    expect(file >= 0 && read(file, text, sizeof text - 1) > 0, "the size of the address space is unknown\n");
    close(file);
    return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Failures of the kernel, at sizes that the address space could have. */
static void fail_by_limit(void) {
    void *block = take(MIB), *small = take(500);
    struct rlimit before, limited;
    expect(getrlimit(RLIMIT_AS, &before) == 0, "the limit is unknown\n");
    limited = before;
    limited.rlim_cur = address_space() + 2 * MIB;
    expect(setrlimit(RLIMIT_AS, &limited) == 0, "the limit cannot be set\n");
    for (int i = 0; i < 20; i++) {
        expect(resize(block, MIB, 1024 * MIB) == NULL, "a realloc beyond the limit has succeeded\n");
        expect(resize(small, 500, 512 * MIB) == NULL, "a realloc beyond the limit has succeeded\n");
        expect(malloc(1024 * MIB) == NULL && calloc(1024, MIB) == NULL, "a malloc beyond the limit has succeeded\n");
    }
    expect(setrlimit(RLIMIT_AS, &before) == 0, "the limit cannot be set\n");
    check(block, MIB, 7);
    check(small, 500, 7);
    block = resize(block, MIB, 2 * MIB);
    small = resize(small, 500, 64);
    release(block);
    release(small);
}

/* Size 0 frees the block and returns null, in glibc and in jemalloc on Linux. */
static void resize_to_nothing(void) {
    for (size_t size = 64; size < 600; size += 50)
        expect(resize(take(size), size, 0) == NULL, "a block of no bytes was returned\n");
    release(NULL);
    expect(resize_array(resize_array(NULL, 7, 11), 0, 11) == NULL, "a block of no bytes was returned\n");
}

static void *keep_some(void) {
    void *table = resize_array(NULL, 10, 12);
    table = resize_array(table, 1000, 12);
    return resize_array(table, 30, 12);
}

static void work(void) {
    grow_and_shrink();
    fail_by_size();
    fail_by_limit();
    resize_to_nothing();
    expect(keep_some() != NULL, "realloc has failed\n");
}

int main(int count, char **arguments) {
    free(malloc(100));
    if (count > 1 && strcmp(arguments[1], "loop") == 0) {
        for (;;) {
            grow_and_shrink();
            fail_by_size();
            fail_by_limit();
            resize_to_nothing();
            print_text("ok\n");
        }
    }
    print_ready();
    char line[LINE_SIZE];
    while (read_line(line)) {
        clear_ledger();
        work();
        ledger_print("");
    }
    return 0;
}
