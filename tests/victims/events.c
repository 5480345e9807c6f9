/* Threads that record events in turn, so that their order is known. Prints the events as one line of JSON: TID, name, value,
 * and the times before and after. The texts of the events are cut at 63 bytes. */
#define _GNU_SOURCE
#include "spans.h"

#include <pthread.h>

enum { THREADS = 3, EVENTS = 600 };

struct event {
    int tid;
    const char *name, *text;
    int64_t value;
    uint64_t before, after;
};

static struct event events[EVENTS];
static pthread_barrier_t end;
static int turn;

static const char *const texts[] = {
    "ready", "", "grün", "[\"quoted\"]",
    "0123456789012345678901234567890123456789012345678901234567890123456789",
};

static void record(int i) {
    struct event *event = &events[i];
    event->tid = gettid();
    event->before = now();
    if (i % 2) {
        static const int64_t values[] = {0, -1, 42, INT64_MIN, INT64_MAX, INT32_MIN};
        event->name = i % 3 ? "queue" : "bytes";
        event->value = i % 5 ? values[i % 6] : -i;
        memtrace_event_number(event->name, event->value);
    } else {
        event->name = i % 3 ? "state" : "phase";
        event->text = texts[i / 2 % 5];
        memtrace_event_text(event->name, event->text);
    }
    event->after = now();
}

static void *run(void *argument) {
    int self = (int)(size_t)argument;
    for (int i = self; i < EVENTS; i += THREADS) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != i)
            sched_yield();
        record(i);
        __atomic_store_n(&turn, i + 1, __ATOMIC_RELEASE);
    }
    pthread_barrier_wait(&end);
    pthread_barrier_wait(&end);
    return NULL;
}

static void print_json_text(char *into, const char *text) {
    *into++ = '"';
    for (int i = 0; text[i] && i < 63; i++) {
        if (text[i] == '"')
            *into++ = '\\';
        *into++ = text[i];
    }
    *into++ = '"';
    *into = 0;
}

static void print_events(void) {
    char line[512], value[200];
    for (int i = 0; i < EVENTS; i++) {
        const struct event *event = &events[i];
        if (event->text)
            print_json_text(value, event->text);
        else
            snprintf(value, sizeof value, "%ld", event->value);
        snprintf(line, sizeof line, "%s[%d,\"%s\",%s,%lu,%lu]", i ? "," : "[", event->tid, event->name, value,
                 event->before, event->after);
        print_text(line);
    }
    print_text("]\n");
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&end, NULL, THREADS + 1);
    ledger_start();
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 3;
    pthread_barrier_wait(&end);
    print_events();
    int status = wait_for_harness() ? 0 : 1;
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return status;
}
