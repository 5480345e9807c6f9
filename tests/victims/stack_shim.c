/* Stands between a program and glibc's allocator, and takes the stack of every so manieth call by libgcc's unwinder: a
 * second source of truth about stacks. What is sampled is in the shared file that STACK_SHIM_FILE names. Preload it.
 *
 * A sampled call reaches the C library from a function of its own, `sampled_…`, so that it can be told from the others by
 * the frame that called the allocator. What does not allocate, and the aligned allocations, pass by the shim. */
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
    uint64_t whole; /* 1: its last frame is the outermost one; 0: of its last frame, libgcc knows no caller */
    uint64_t depth;
    struct frame frames[DEPTH];
};

/* The harness of tests reads and writes this layout: see oracle.rs. */
struct samples {
    uint64_t every, skip; /* of the calls after the first so many, every so manieth is sampled; 0: none, and none counted */
    uint64_t gated;       /* whether the first call that is not skipped waits at a barrier */
    uint64_t pid;         /* the process, the first that comes; its children are not sampled */
    uint64_t calls;
    uint64_t overflowed; /* what did not fit: the samples are worthless */
    uint64_t lock;
    uint64_t objects_used, stacks_used;
    char objects[OBJECTS][256];
    struct stack stacks[STACKS];
    uint32_t buckets[BUCKETS]; /* indices of stacks and one more, by hash */
};

/* A stack as it is taken, in memory of the thread's own. */
struct taken {
    uintptr_t calls[DEPTH];
    struct place places[DEPTH];
    size_t depth;
    int whole, too_deep;
};

static struct samples *samples;
static int opened;
/* Whether this thread is in here: what it allocates here is not sampled. */
static __thread int busy __attribute__((tls_model("initial-exec")));

static void open_samples(void) {
    if (__atomic_exchange_n(&opened, 1, __ATOMIC_ACQ_REL))
        return;
    struct samples *shared = shared_file("STACK_SHIM_FILE=", sizeof(struct samples));
    uint64_t nobody = 0;
    __atomic_compare_exchange_n(&shared->pid, &nobody, (uint64_t)getpid(), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    __atomic_store_n(&samples, shared, __ATOMIC_RELEASE);
}

/* As a victim does at its barrier, in the midst of whatever the program is doing. */
static void wait_at_barrier(void) {
    busy = 1;
    print_ready();
    if (!wait_for_harness())
        _exit(103);
    busy = 0;
}

/* Whether this call is to be sampled. */
static int is_sampled(void) {
    if (busy)
        return 0;
    open_samples();
    struct samples *shared = __atomic_load_n(&samples, __ATOMIC_ACQUIRE);
    if (!shared || !shared->every)
        return 0;
    uint64_t call = __atomic_fetch_add(&shared->calls, 1, __ATOMIC_RELAXED);
    if (call == shared->skip && shared->gated)
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
    /* Where a signal came between, the address is that of what was to run next, not of what follows a call; and so is that
     * of where the signal's handler returns to, which nobody has called either. */
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
        /* An object's name may lie where another's did; its contents tell, and where it lies in the process does not. */
        for (const char *at = taken->places[i].object; at && *at; at++)
            hash = (hash ^ (uint64_t)*at) * 0x100000001b3u;
        hash = (hash ^ taken->places[i].offset) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Books the stack of the caller, and outwards from there. */
NOINLINE static void sample(size_t bytes) {
    struct taken taken = {.depth = 0};
    busy = 1;
    _Unwind_Backtrace(visit, &taken);
    /* Before the lock is taken, since this takes one of the dynamic linker's, whose holder may be waiting in here. */
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
