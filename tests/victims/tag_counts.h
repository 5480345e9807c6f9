/* Totals of a victim's blocks by tag. */
#ifndef TAG_COUNTS_H
#define TAG_COUNTS_H

#include "ledger.h"

#include <stdio.h>

enum { MAX_TAGS = 64, NO_TAG = MAX_TAGS - 1 };

static struct {
    uint64_t alloc_bytes, alloc_count, free_bytes, free_count;
} tag_counts[MAX_TAGS];

static void count_alloc(int tag, size_t size) {
    __atomic_fetch_add(&tag_counts[tag].alloc_bytes, size, __ATOMIC_RELAXED);
    __atomic_fetch_add(&tag_counts[tag].alloc_count, 1, __ATOMIC_RELAXED);
}

static void count_free(int tag, size_t size) {
    __atomic_fetch_add(&tag_counts[tag].free_bytes, size, __ATOMIC_RELAXED);
    __atomic_fetch_add(&tag_counts[tag].free_count, 1, __ATOMIC_RELAXED);
}

/* Prints the totals of the tags with blocks as one line of JSON. `name` returns the name of a tag. */
static void print_tags(const char *(*name)(int tag)) {
    const char *separator = "{";
    for (int tag = 0; tag < MAX_TAGS; tag++) {
        uint64_t bytes = tag_counts[tag].alloc_bytes, count = tag_counts[tag].alloc_count;
        uint64_t free_bytes = tag_counts[tag].free_bytes, free_count = tag_counts[tag].free_count;
        char text[512];
        if (count == 0)
            continue;
        snprintf(text, sizeof text,
                 "%s\"%s\":{\"alloc_bytes\":%lu,\"alloc_count\":%lu,\"free_bytes\":%lu,\"free_count\":%lu,"
                 "\"live_bytes\":%lu,\"live_count\":%lu}",
                 separator, name(tag), bytes, count, free_bytes, free_count, bytes - free_bytes, count - free_count);
        print_text(text);
        separator = ",";
    }
    print_text("}\n");
}

#endif
