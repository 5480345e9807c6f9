/* `nested_tasks REQUESTS` begins and ends a batch of nested tasks for each line from the harness. After each batch, it
 * prints the number and the longest duration in nanoseconds of all tasks with each name, as one line of JSON. */
#define _GNU_SOURCE
#include "spans.h"

enum { BATCH, REQUEST, PARSE, NAMES };

static const char *const names[NAMES] = {"batch", "request", "parse"};
static uint64_t counts[NAMES], longest[NAMES];

/* Returns the time before the begin. */
static uint64_t begin(int name) {
    uint64_t before = now();
    memtrace_task_begin(names[name]);
    return before;
}

static void end(int name, uint64_t before) {
    memtrace_task_end();
    uint64_t duration = now() - before;
    counts[name]++;
    if (duration > longest[name])
        longest[name] = duration;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    int requests = atoi(argv[1]);
    ledger_start();
    do {
        uint64_t batch = begin(BATCH);
        for (int i = 0; i < requests; i++) {
            uint64_t request = begin(REQUEST);
            end(PARSE, begin(PARSE));
            end(REQUEST, request);
        }
        end(BATCH, batch);
        char text[256];
        snprintf(text, sizeof text, "{\"batch\":[%lu,%lu],\"request\":[%lu,%lu],\"parse\":[%lu,%lu]}\n", counts[BATCH],
                 longest[BATCH], counts[REQUEST], longest[REQUEST], counts[PARSE], longest[PARSE]);
        print_text(text);
    } while (wait_for_harness());
    return 0;
}
