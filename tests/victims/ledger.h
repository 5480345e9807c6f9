/* A victim's own books: what it asked its allocator for, kept in static memory so that keeping them allocates nothing. */
#ifndef LEDGER_H
#define LEDGER_H

#include <stddef.h>
#include <stdint.h>

#define LEDGER_SLOTS (1u << 16)

/* A named place in the victim's source, with books of its own. */
struct site {
    const char *name;
    int line;
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
    struct site *next;
};

struct slot {
    uintptr_t block; /* 0: never used; 1: used and empty again */
    size_t size;
    struct site *site;
};

/* The harness of tests reads and writes this layout in shared memory: see counts.rs. */
struct ledger {
    uint64_t counting; /* 0: nothing is booked, and what is allocated now is unknown when it is freed */
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
    uint64_t unmatched_frees;
    uint64_t filtered_bytes, filtered_count;
    uint64_t peak_bytes;
    uint64_t min_size, max_size; /* sizes outside are filtered: not booked, and unknown when freed */
    uint64_t overflowed;         /* blocks for which the table had no slot: the books are worthless */
    uint64_t lock;
    struct slot slots[LEDGER_SLOTS];
};

/* The books in use; static ones unless something else is put here before the first call. */
extern struct ledger *ledger;

/* A block given up by a realloc that has not returned yet. */
struct pending_realloc {
    void *block;
    size_t size;
    struct site *site;
    int tracked;
};

/* `block` was handed out; null is a failed call and counts nothing. Call it after the allocator. */
void ledger_alloc(struct site *site, void *block, size_t size);
/* `block` is about to be freed. Call it before the allocator. */
void ledger_free(void *block);
/* `block` is about to be given to a realloc; then say what came of it with ledger_end_realloc. */
struct pending_realloc ledger_begin_realloc(void *block);
/* realloc returned `block` for the pending one: null and a size of 0 is a free, null and another size a failure. */
void ledger_end_realloc(struct site *site, struct pending_realloc old, void *block, size_t size);

/* Books only what lies between these sizes. */
void ledger_set_size_limits(size_t min, size_t max);

/* Writes the books as one line of JSON, with `extra` (members, each ending in a comma, or "") first. */
void ledger_print(const char *extra);

/* Prints `ready PID`. */
void print_ready(void);
/* Says that it is ready, waits until the harness says go, and begins to book. */
void ledger_start(void);
/* Waits for one line from the harness; 0 at the end of its patience (end of file). */
int wait_for_harness(void);
/* Writes text without an allocator's help. */
void print_text(const char *text);

#endif
