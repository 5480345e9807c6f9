/* Runs a span over and over. The first argument is its kind, the second the processors. Reads a number of spans, and prints the
 * time that they took. The function of each kind is exported, so that its probes can be found. */
#include "victim.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "memtrace.h"

#define EXPORTED __attribute__((noipa, used))

typedef void run(unsigned long long spans);

EXPORTED void task(unsigned long long spans) {
    for (unsigned long long i = 0; i < spans; i++) {
        memtrace_task_begin("task");
        memtrace_task_end();
    }
}

EXPORTED void event(unsigned long long spans) {
    for (unsigned long long i = 0; i < spans; i++)
        memtrace_event_number("event", (int64_t)i);
}

EXPORTED void lock(unsigned long long spans) {
    static int lock;
    for (unsigned long long i = 0; i < spans; i++) {
        memtrace_lock_wait(&lock, "lock");
        memtrace_lock_acquire(&lock);
        memtrace_lock_release(&lock);
    }
}

/* Its first instruction is an addition, which the kernel does not emulate. */
EXPORTED unsigned long long leaf(unsigned long long number) { return number + 1; }

/* Like most functions, it begins with a push: it keeps its argument during the call. */
EXPORTED unsigned long long call(unsigned long long number) { return number + leaf(number); }

EXPORTED void calls(unsigned long long spans) {
    for (unsigned long long i = 0; i < spans; i++)
        call(i);
}

EXPORTED void leaves(unsigned long long spans) {
    for (unsigned long long i = 0; i < spans; i++)
        leaf(i);
}

/* It neither waits nor calls the system. */
EXPORTED void compute(unsigned long long spans) {
    unsigned long long number = 1;
    for (unsigned long long i = 0; i < spans; i++)
        for (int step = 0; step < 1000; step++) {
            number = number * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(number));
        }
}

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static run *find(const char *name) {
    static const struct {
        const char *name;
        run *run;
    } all[] = {{"task", task}, {"event", event}, {"lock", lock}, {"call", calls}, {"leaf", leaves}, {"compute", compute}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].run;
    exit(2);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    run *run = find(arguments[1]);
    set_affinity(arguments[2]);
    ready();
    for (unsigned long long spans; wait_line(&spans);) {
        uint64_t start = nanoseconds();
        run(spans);
        uint64_t ns = nanoseconds() - start;
        dprintf(STDOUT_FILENO, "{\"pairs\":%llu,\"ns\":%llu,\"processors\":1}\n", spans, (unsigned long long)ns);
    }
    return 0;
}
