/* Threads with nested tasks and nested calls of functions that sleep, spin and allocate. Prints the spans as JSON: see spans.h.
 *
 * The first argument is the number of rounds of each thread. The threads start and exit during the trace. */
#define _GNU_SOURCE
#include "spans.h"

#include <pthread.h>
#include <string.h>

#define NOIPA __attribute__((noipa))
#define THREADS 3

static struct record records[THREADS];
static pthread_barrier_t end;
static int rounds;
static volatile int sink;

static void allocate(size_t size) {
    void *block;
    switch (size % 4) {
    case 0:
        block = malloc(size);
        break;
    case 1:
        block = calloc(1, size);
        break;
    case 2:
        block = realloc(malloc(size), 2 * size);
        own->allocated += 2 * size;
        break;
    default:
        if (posix_memalign(&block, 64, size) != 0)
            abort();
    }
    if (!block)
        abort();
    own->allocated += size;
    free(block);
}

static void spin(uint64_t ns) {
    uint64_t until = read_clock(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (read_clock(CLOCK_THREAD_CPUTIME_ID) < until)
        sink++;
}

static void pause_for(uint64_t ns) {
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
}

/* The first argument is the label. It returns from several places. */
NOIPA static int inner(long id, int span) {
    span_entered(span);
    if (id % 3 == 0) {
        span_leave(span);
        return 3;
    }
    allocate(100 + (size_t)id);
    if (id % 3 == 1)
        spin(3000000);
    else
        pause_for(4000000);
    allocate(1000 + (size_t)id);
    span_leave(span);
    return (int)id;
}

static int call_inner(long id) {
    int span = span_enter("function", "inner", id, NULL);
    int result = inner(id, span);
    span_left(span);
    return result;
}

/* The compiler makes a jump table of it, so that its return instructions are not known. */
NOIPA static int switched(int span, int way) {
    span_entered(span);
    int result;
    switch (way) {
    case 0:
        result = sink + 3;
        break;
    case 1:
        result = sink * 5;
        break;
    case 2:
        allocate(40);
        result = sink;
        break;
    case 3:
        result = call_inner(3);
        break;
    case 4:
        result = sink - 9;
        break;
    case 5:
        result = call_inner(6) + call_inner(9);
        break;
    case 6:
        allocate(77);
        result = sink ^ 4;
        break;
    default:
        result = sink / 7;
    }
    span_leave(span);
    return result;
}

static int call_switched(int way) {
    int span = span_enter("function", "switched", NO_LABEL, NULL);
    int result = switched(span, way);
    span_left(span);
    return result;
}

NOIPA static int named(const char *name, int span) {
    span_entered(span);
    allocate(strlen(name));
    span_leave(span);
    return sink;
}

static int call_named(const char *name) {
    int span = span_enter("function", "named", NO_LABEL, name);
    int result = named(name, span);
    span_left(span);
    return result;
}

static int call_outer(int depth, int round);

/* Calls itself. */
NOIPA static int outer(int depth, int round, int span) {
    span_entered(span);
    int result = call_inner(depth + round) + call_switched((depth + round) % 8);
    allocate(500);
    if (depth > 0)
        result += call_outer(depth - 1, round) + call_inner(3 * depth);
    allocate(301);
    span_leave(span);
    return result;
}

static int call_outer(int depth, int round) {
    int span = span_enter("function", "outer", NO_LABEL, NULL);
    int result = outer(depth, round, span);
    span_left(span);
    return result;
}

/* Work in a task. */
static void task(const char *name, int depth, int round) {
    int span = span_enter("task", name, NO_LABEL, NULL);
    memtrace_task_begin(name);
    span_entered(span);
    allocate(64 + (size_t)depth);
    if (depth > 0)
        task(depth % 2 ? "parse" : "store", depth - 1, round);
    if (depth == 1)
        sink += call_outer(2, round);
    else if (depth == 2)
        spin(2000000);
    sink += call_named(depth % 2 ? "odd depth" : "even depth");
    span_leave(span);
    memtrace_task_end();
    span_left(span);
}

static void *run(void *argument) {
    start_record(argument);
    for (int round = 0; round < rounds; round++) {
        task("request", 3, round);
        call_outer(1, round);
        call_inner(round);
        allocate(4000);
    }
    pthread_barrier_wait(&end);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    struct record *all[THREADS];
    if (argc != 2)
        return 2;
    rounds = atoi(argv[1]);
    pthread_barrier_init(&end, NULL, THREADS);
    ledger_start();
    for (int i = 0; i < THREADS; i++) {
        all[i] = &records[i];
        if (pthread_create(&threads[i], NULL, run, all[i]) != 0)
            return 3;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    print_records(all, THREADS);
    return wait_for_harness() ? 0 : 1;
}
