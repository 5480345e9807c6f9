/* Records of the spans of a victim's threads, by its own clocks, and their print as JSON. C11 and C++17.
 *
 * A span has four times: before and after the step that begins it, and before and after the step that ends it. A tracer
 * that sees the steps must see times in between. */
#ifndef SPANS_H
#define SPANS_H

#include "memtrace.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#include "ledger.h"
}
#else
#include "ledger.h"
#endif

#define MAX_SPANS 4000
#define NO_LABEL (-1)

struct span {
    const char *kind, *name, *text;
    long label;
    int parent;
    uint64_t at[4], cpu[4], bytes;
};

struct record {
    int tid, open, count;
    uint64_t allocated;
    struct span spans[MAX_SPANS];
};

static __thread struct record *own;

static inline uint64_t read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static inline uint64_t now(void) { return read_clock(CLOCK_MONOTONIC); }

/* The CPU time is read outside the times before a step, and inside those after it. */
static inline void stamp(struct span *span, int moment) {
    if (moment % 2 == 0) {
        span->cpu[moment] = read_clock(CLOCK_THREAD_CPUTIME_ID);
        span->at[moment] = now();
    } else {
        span->at[moment] = now();
        span->cpu[moment] = read_clock(CLOCK_THREAD_CPUTIME_ID);
    }
}

static inline void start_record(struct record *record) {
    own = record;
    own->tid = gettid();
    own->open = -1;
}

/* Before a span begins. Returns its number. */
static inline int span_enter(const char *kind, const char *name, long label, const char *text) {
    if (own->count == MAX_SPANS)
        abort();
    int number = own->count++;
    struct span *span = &own->spans[number];
    span->kind = kind;
    span->name = name;
    span->label = label;
    span->text = text;
    span->parent = own->open;
    span->bytes = own->allocated;
    own->open = number;
    stamp(span, 0);
    return number;
}

static inline void span_entered(int number) { stamp(&own->spans[number], 1); }

static inline void span_leave(int number) { stamp(&own->spans[number], 2); }

static inline void span_left(int number) {
    struct span *span = &own->spans[number];
    stamp(span, 3);
    span->bytes = own->allocated - span->bytes;
    own->open = span->parent;
}

static inline void print_four(char *text, size_t *used, size_t room, const uint64_t *values) {
    *used += (size_t)snprintf(text + *used, room - *used, ",[%lu,%lu,%lu,%lu]", values[0], values[1], values[2], values[3]);
}

/* Prints the records as one line of JSON: a list of threads. Spans that were not left have zeros at their end. */
static inline void print_records(struct record *const *records, int count) {
    char text[1024];
    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%s{\"tid\":%d,\"spans\":[", i ? "," : "[", records[i]->tid);
        print_text(text);
        for (int j = 0; j < records[i]->count; j++) {
            const struct span *span = &records[i]->spans[j];
            size_t used = (size_t)snprintf(text, sizeof text, "%s[\"%s\",\"%s\"", j ? "," : "", span->kind, span->name);
            if (span->text)
                used += (size_t)snprintf(text + used, sizeof text - used, ",\"%s\"", span->text);
            else if (span->label != NO_LABEL)
                used += (size_t)snprintf(text + used, sizeof text - used, ",%ld", span->label);
            else
                used += (size_t)snprintf(text + used, sizeof text - used, ",null");
            if (span->parent >= 0)
                used += (size_t)snprintf(text + used, sizeof text - used, ",%d", span->parent);
            else
                used += (size_t)snprintf(text + used, sizeof text - used, ",null");
            print_four(text, &used, sizeof text, span->at);
            print_four(text, &used, sizeof text, span->cpu);
            snprintf(text + used, sizeof text - used, ",%lu]", span->bytes);
            print_text(text);
        }
        print_text("]}");
    }
    print_text("]\n");
}

#endif
