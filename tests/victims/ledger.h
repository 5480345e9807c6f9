/* The ledger of a victim: totals of its own allocator calls, the expected values of a test. It lies in static memory,
 * so that recording allocates nothing. */
#ifndef LEDGER_H
#define LEDGER_H

#include <stddef.h>
#include <stdint.h>

#define LEDGER_SLOTS (1u << 16)

/* A call site in the victim's source, with its own totals. */
struct site {
    const char *name;
    int line;
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
    struct site *next;
};

struct slot {
    uintptr_t block; /* 0: never used; 1: removed */
    size_t size;
    struct site *site;
};

/* The tests read and write this layout in shared memory: see src/count_shim.rs. */
struct ledger {
    uint64_t counting; /* 0: nothing is recorded; blocks allocated now count as unmatched when freed */
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
    uint64_t unmatched_frees;
    uint64_t filtered_bytes, filtered_count;
    uint64_t peak_bytes;
    uint64_t min_size, max_size; /* other sizes count as filtered, and as unmatched when freed */
    uint64_t overflowed;         /* blocks that found no slot: the ledger is invalid */
    uint64_t lock;
    struct slot slots[LEDGER_SLOTS];
};

/* The ledger in use: a static one, unless replaced before the first call. */
extern struct ledger *ledger;

/* A block that was passed to a realloc which has not returned yet. */
struct pending_realloc {
    void *block;
    size_t size;
    struct site *site;
    int tracked;
};

/* Records an allocation. Call it after the allocator; null is a failed call and counts nothing. */
void ledger_alloc(struct site *site, void *block, size_t size);
/* Records a free. Call it before the allocator. */
void ledger_free(void *block);
/* Removes the block that is about to be passed to realloc. Pass the result to ledger_end_realloc. */
struct pending_realloc ledger_begin_realloc(void *block);
/* Records the result of a realloc. Null is a free if the size is 0, otherwise a failure that restores the old block. */
void ledger_end_realloc(struct site *site, struct pending_realloc old, void *block, size_t size);

/* Records only blocks within these sizes. */
void ledger_set_size_limits(size_t min, size_t max);

/* Prints the totals as one line of JSON that starts with `extra`: members, each ending in a comma, or "". */
void ledger_print(const char *extra);

/* Prints `ready PID`. */
void print_ready(void);
/* Prints `ready PID`, waits for the harness and starts recording. */
void ledger_start(void);
/* Waits for one line from the harness; returns 0 at end of file. */
int wait_for_harness(void);
/* Writes text without allocating. */
void print_text(const char *text);

#endif
