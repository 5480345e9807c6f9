/* Functions that are left by longjmp, from several depths, between others that return. Prints the spans as JSON: see spans.h. */
#define _GNU_SOURCE
#include "spans.h"

#include <setjmp.h>

#define NOIPA __attribute__((noipa))
/* More than the spans in one another that memtrace keeps. */
#define ROUNDS 300

static struct record record;
static jmp_buf landing;
static volatile int sink;

NOIPA static int leaves(int depth, int span) {
    volatile char room[48];
    span_entered(span);
    room[0] = (char)depth;
    if (depth == 0)
        longjmp(landing, 1);
    if (depth < 0)
        return sink;
    int inside = span_enter("function", "leaves", NO_LABEL, NULL);
    return leaves(depth - 1, inside) + room[0];
}

/* Its returns are not known, because of its jump table. */
NOIPA static int leaves_by_table(int way, int span) {
    span_entered(span);
    switch (way) {
    case 0:
        return sink + 3;
    case 1:
        return sink * 5;
    case 2:
        longjmp(landing, 1);
    case 3:
        return sink ^ 77;
    case 4:
        return sink - 9;
    case 5:
        return sink << 3;
    default:
        return sink / 7;
    }
}

NOIPA static void stays(long id, int depth, int span) {
    span_entered(span);
    if (depth > 0) {
        int inside = span_enter("function", "stays", id + 1000, NULL);
        stays(id + 1000, depth - 1, inside);
        span_left(inside);
    }
    span_leave(span);
}

NOIPA static void call_stays(long id, int depth) {
    int span = span_enter("function", "stays", id, NULL);
    stays(id, depth, span);
    span_left(span);
}

NOIPA static void call_leaves(int depth) {
    int span = span_enter("function", "leaves", NO_LABEL, NULL);
    sink = leaves(depth, span);
}

NOIPA static void call_leaves_by_table(void) {
    int span = span_enter("function", "leaves_by_table", NO_LABEL, NULL);
    sink = leaves_by_table(2, span);
}

NOIPA static void round_of(int i) {
    int open = own->open;
    if (setjmp(landing) == 0)
        call_leaves(i % 4);
    own->open = open;
    call_stays(i, 1);
    if (setjmp(landing) == 0)
        call_leaves_by_table();
    own->open = open;
}

int main(void) {
    struct record *all[] = {&record};
    ledger_start();
    start_record(&record);
    for (int i = 0; i < ROUNDS; i++) {
        round_of(i);
        call_stays(100000 + i, 0);
    }
    /* Nearly as deep as what is kept. */
    if (setjmp(landing) == 0)
        call_leaves(120);
    own->open = -1;
    call_stays(9999, 0);
    print_records(all, 1);
    return wait_for_harness() ? 0 : 1;
}
