/* Blocks of known sizes and lifetimes, some of them temporary: freed by their thread before its next allocation.
 *
 * `size_log2` has the number of blocks by the binary logarithm of their size. `late_min_ns` and `late_max_ns` bound the
 * lifetimes of the blocks of `free_late`, and `once_max_ns` those of `free_at_once`. A second thread, which runs from the
 * start, frees and allocates on request. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCKS 40
/* Longer than a pause of the scheduler is likely to be. */
#define LATE_NS 50000000

struct block {
    void *address;
    size_t size;
    int thread;
};

static uint64_t sizes[64], temporary_bytes, temporary_count, reused;
static uint64_t late_min_ns = UINT64_MAX, late_max_ns, once_max_ns;
static __thread int thread;
static __thread void *last;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static struct block counted(void *address, size_t size) {
    int log2 = 0;
    while (size >> log2 > 1)
        log2++;
    sizes[log2]++;
    last = address;
    return (struct block){address, size, thread};
}

static void count_if_temporary(struct block block) {
    if (block.thread == thread && block.address == last) {
        temporary_count++;
        temporary_bytes += block.size;
        last = NULL;
    }
}

static inline __attribute__((always_inline)) struct block take(size_t size) {
    void *address = malloc(size);
    ledger_alloc(NULL, address, size);
    return counted(address, size);
}

static inline __attribute__((always_inline)) void drop(struct block block) {
    ledger_free(block.address);
    count_if_temporary(block);
    free(block.address);
}

static inline __attribute__((always_inline)) struct block resize(struct block old, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(old.address);
    void *result = realloc(old.address, size);
    ledger_end_realloc(NULL, pending, result, size);
    if (!result)
        return old;
    count_if_temporary(old);
    return counted(result, size);
}

/* Requests to the second thread: it frees a block, or allocates one. */
static struct block request;
static int state;
enum { IDLE, FREE, ALLOCATE, STOP };

static void *serve(void *argument) {
    thread = 1;
    for (;;) {
        switch (__atomic_load_n(&state, __ATOMIC_ACQUIRE)) {
        case FREE:
            drop(request);
            break;
        case ALLOCATE:
            request = take(request.size);
            break;
        case STOP:
            return argument;
        default:
            sched_yield();
            continue;
        }
        __atomic_store_n(&state, IDLE, __ATOMIC_RELEASE);
    }
}

static struct block ask(int action, struct block block) {
    request = block;
    __atomic_store_n(&state, action, __ATOMIC_RELEASE);
    while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != IDLE)
        sched_yield();
    return request;
}

__attribute__((noinline)) static void free_at_once(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        uint64_t start = now();
        drop(take(i * i));
        uint64_t most = now() - start;
        once_max_ns = most > once_max_ns ? most : once_max_ns;
    }
}

__attribute__((noinline)) static void free_after_another(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block first = take(100 + i), second = take(500);
        drop(first);
        drop(second);
    }
}

__attribute__((noinline)) static void free_in_another_thread(void) {
    for (size_t i = 0; i < BLOCKS; i++)
        ask(FREE, take(3000 + i));
}

/* The second thread frees a block and gets its address for the next one, which this thread frees. */
__attribute__((noinline)) static void free_reused_address(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block block = take(700);
        void *address = block.address;
        ask(FREE, block);
        block = ask(ALLOCATE, block);
        reused += block.address == address;
        drop(block);
    }
}

__attribute__((noinline)) static void reallocate(void) {
    struct block block = take(10);
    for (size_t i = 1; i < BLOCKS; i++)
        block = resize(block, 10 * i);
    /* It fails: the block remains the last one. */
    block = resize(block, SIZE_MAX / 4);
    struct block other = take(9000);
    block = resize(block, 1);
    drop(other);
    drop(block);
}

/* A realloc to size 0 frees its block, and one that fails allocates none: neither changes which block is the last one. */
__attribute__((noinline)) static void reallocate_to_null(void) {
    for (size_t i = 1; i <= BLOCKS; i++) {
        struct block first = take(60 + i), second = take(800);
        ledger_free(first.address);
        count_if_temporary(first);
        if (realloc(first.address, 0) || realloc(NULL, SIZE_MAX / 4))
            abort();
        drop(second);
    }
}

__attribute__((noinline)) static void free_late(void) {
    static struct block blocks[BLOCKS];
    uint64_t begin = now();
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = take(20000);
    uint64_t allocated = now(), end;
    do {
        end = now();
    } while (end - allocated < LATE_NS);
    for (size_t i = 0; i < BLOCKS; i++)
        drop(blocks[i]);
    late_min_ns = end - allocated;
    late_max_ns = now() - begin;
}

__attribute__((noinline)) static void keep(void) {
    for (size_t i = 0; i < BLOCKS; i++)
        take(1 << (i % 12));
}

static void print(void) {
    static char extra[4096];
    int used = 0;
#define PUT(...) used += snprintf(extra + used, sizeof extra - (size_t)used, __VA_ARGS__)
    PUT("\"temporary_bytes\":%llu,", (unsigned long long)temporary_bytes);
    PUT("\"temporary_count\":%llu,", (unsigned long long)temporary_count);
    PUT("\"reused\":%llu,", (unsigned long long)reused);
    PUT("\"late_min_ns\":%llu,", (unsigned long long)late_min_ns);
    PUT("\"late_max_ns\":%llu,", (unsigned long long)late_max_ns);
    PUT("\"once_max_ns\":%llu,", (unsigned long long)once_max_ns);
    PUT("\"size_log2\":[");
    const char *separator = "";
    for (int log2 = 0; log2 < 64; log2++) {
        if (sizes[log2]) {
            PUT("%s[%d,%llu]", separator, log2, (unsigned long long)sizes[log2]);
            separator = ",";
        }
    }
    PUT("],");
    ledger_print(extra);
}

int main(void) {
    pthread_t server;
    if (pthread_create(&server, NULL, serve, NULL))
        return 2;
    ledger_start();
    free_at_once();
    free_after_another();
    free_in_another_thread();
    free_reused_address();
    reallocate();
    reallocate_to_null();
    free_late();
    keep();
    print();
    int status = wait_for_harness() ? 0 : 1;
    __atomic_store_n(&state, STOP, __ATOMIC_RELEASE);
    pthread_join(server, NULL);
    return status;
}
