/* Wraps glibc's allocator and takes the stack of every Nth call with libgcc's unwinder: reference stacks. The samples
 * are in the shared file STACK_SHIM_FILE. Preload it.
 *
 * A sampled call enters the C library from a function named `sampled_…`, so that the calling frame distinguishes it
 * from other calls. Frees and aligned allocations are not wrapped. */
#define _GNU_SOURCE
#include "ledger.h"
#include "places.h"
#include "shared_file.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

#define PUBLIC __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline))

#define DEPTH 300
#define OBJECTS 256
#define STACKS (1u << 15)
#define BUCKETS (2 * STACKS)
#define NO_OBJECT UINT64_MAX

struct frame {
    uint64_t object; /* an index, or NO_OBJECT */
    uint64_t offset; /* of the call */
};

struct stack {
    uint64_t hash, count, bytes;
    uint64_t whole; /* 1: the last frame is the outermost; 0: libgcc found no caller of the last frame */
    uint64_t depth;
    struct frame frames[DEPTH];
};

/* The tests read and write this layout: see src/oracle/samples.rs. */
struct samples {
    uint64_t every, skip; /* skip the first `skip` calls, then sample one in `every`; 0: sample and count none */
    uint64_t waits;       /* 1: the first call that is not skipped waits for the harness */
    uint64_t pid;         /* the first process that calls; its children are not sampled */
    uint64_t calls;
    uint64_t overflowed; /* stacks that did not fit: the samples are invalid */
    uint64_t lock;
    uint64_t objects_used, stacks_used;
    char objects[OBJECTS][256];
    struct stack stacks[STACKS];
    uint32_t buckets[BUCKETS]; /* hash table of stack indices plus 1 */
};

/* A stack while it is taken, in the thread's own memory. */
struct taken {
    uintptr_t calls[DEPTH];
    struct place places[DEPTH];
    size_t depth;
    int whole, too_deep;
};

static struct samples *samples;
static int opened;
/* 1 while this thread is inside the shim, whose own allocations are not sampled. */
static __thread int busy __attribute__((tls_model("initial-exec")));

static void open_samples(void) {
    if (__atomic_exchange_n(&opened, 1, __ATOMIC_ACQ_REL))
        return;
    struct samples *shared = shared_file("STACK_SHIM_FILE=", sizeof(struct samples));
    uint64_t unset = 0;
    __atomic_compare_exchange_n(&shared->pid, &unset, (uint64_t)getpid(), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    __atomic_store_n(&samples, shared, __ATOMIC_RELEASE);
}

/* Waits like a victim, in the middle of the traced work. */
static void wait_at_barrier(void) {
    busy = 1;
    print_ready();
    if (!wait_for_harness())
        _exit(103);
    busy = 0;
}

static int is_sampled(void) {
    if (busy)
        return 0;
    open_samples();
    struct samples *shared = __atomic_load_n(&samples, __ATOMIC_ACQUIRE);
    if (!shared || !shared->every)
        return 0;
    uint64_t call = __atomic_fetch_add(&shared->calls, 1, __ATOMIC_RELAXED);
    if (call == shared->skip && shared->waits)
        wait_at_barrier();
    return call >= shared->skip && (call - shared->skip) % shared->every == 0 && shared->pid == (uint64_t)getpid();
}

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
    struct taken *taken = argument;
    int before = 0;
    uintptr_t ip = _Unwind_GetIPInfo(context, &before);
    taken->whole = ip == 0;
    taken->too_deep = !taken->whole && taken->depth == DEPTH;
    if (taken->whole || taken->too_deep)
        return _URC_END_OF_STACK;
    /* In an interrupted frame the address is that of the next instruction, not one after a call. The same holds for the
     * return address of the signal handler, which no call has pushed. */
    if (before && taken->depth > 0)
        taken->calls[taken->depth - 1]++;
    taken->calls[taken->depth++] = before ? ip : ip - 1;
    return _URC_NO_REASON;
}

static uint64_t intern(const char *name) {
    if (!name)
        return NO_OBJECT;
    for (uint64_t i = 0; i < samples->objects_used; i++)
        if (strcmp(samples->objects[i], name) == 0)
            return i;
    if (samples->objects_used == OBJECTS || strlen(name) >= sizeof samples->objects[0]) {
        samples->overflowed++;
        return NO_OBJECT;
    }
    strcpy(samples->objects[samples->objects_used], name);
    return samples->objects_used++;
}

static struct stack *insert(const struct taken *taken, uint64_t hash) {
    struct stack *stack = &samples->stacks[samples->stacks_used];
    *stack = (struct stack){.hash = hash, .whole = (uint64_t)taken->whole, .depth = taken->depth};
    for (size_t i = 0; i < taken->depth; i++)
        stack->frames[i] = (struct frame){intern(taken->places[i].object), taken->places[i].offset};
    samples->stacks_used++;
    return stack;
}

static struct stack *find(const struct taken *taken, uint64_t hash) {
    for (size_t i = hash % BUCKETS;; i = (i + 1) % BUCKETS) {
        uint32_t *bucket = &samples->buckets[i];
        if (*bucket && samples->stacks[*bucket - 1].hash == hash)
            return &samples->stacks[*bucket - 1];
        if (*bucket)
            continue;
        if (samples->stacks_used == STACKS)
            return NULL;
        *bucket = (uint32_t)samples->stacks_used + 1;
        return insert(taken, hash);
    }
}

static uint64_t hash_of(const struct taken *taken) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < taken->depth; i++) {
        /* Hash the contents of the name: its address may be reused for another object. */
        for (const char *at = taken->places[i].object; at && *at; at++)
            hash = (hash ^ (uint64_t)*at) * 0x100000001b3u;
        hash = (hash ^ taken->places[i].offset) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Records the stack, from the caller outwards. */
NOINLINE static void sample(size_t bytes) {
    struct taken taken = {.depth = 0};
    busy = 1;
    _Unwind_Backtrace(visit, &taken);
    /* Before taking the lock: this takes a lock of the dynamic linker, and a thread that holds that may wait for ours.
     * */
    find_places(taken.calls, taken.depth, taken.places);
    uint64_t hash = hash_of(&taken);
    while (__atomic_exchange_n(&samples->lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    struct stack *stack = taken.too_deep ? NULL : find(&taken, hash);
    if (stack) {
        stack->count++;
        stack->bytes += bytes;
    } else {
        samples->overflowed++;
    }
    __atomic_store_n(&samples->lock, 0, __ATOMIC_RELEASE);
    busy = 0;
}

NOINLINE static void *sampled_malloc(size_t size) {
    void *block = __libc_malloc(size);
    if (block)
        sample(size);
    return block;
}

NOINLINE static void *sampled_calloc(size_t count, size_t size) {
    void *block = __libc_calloc(count, size);
    if (block)
        sample(count * size);
    return block;
}

NOINLINE static void *sampled_realloc(void *old, size_t size) {
    void *block = __libc_realloc(old, size);
    if (block)
        sample(size);
    return block;
}

PUBLIC void *malloc(size_t size) { return is_sampled() ? sampled_malloc(size) : __libc_malloc(size); }

PUBLIC void *calloc(size_t count, size_t size) {
    return is_sampled() ? sampled_calloc(count, size) : __libc_calloc(count, size);
}

PUBLIC void *realloc(void *old, size_t size) {
    return is_sampled() ? sampled_realloc(old, size) : __libc_realloc(old, size);
}
