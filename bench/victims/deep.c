/* malloc and free at the bottom of a stack as deep as asked: `deep PROCESSORS`.
 *
 * Reads two numbers at a time, how many functions to call one inside the other and how many pairs to do there, and says
 * how long the pairs took. Frames are of many sizes, about as large as those of real programs: how much of a stack has
 * to be read depends on it. */
#include "victim.h"

#include <stdint.h>
#include <time.h>

#define SIZE 64

typedef uint64_t descent(unsigned long long deeper, unsigned long long pairs);

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static __attribute__((noinline)) uint64_t loop(unsigned long long pairs) {
    uint64_t began = nanoseconds();
    for (unsigned long long i = 0; i < pairs; i++) {
        void *block = malloc(SIZE);
        if (!block)
            abort();
        free(block);
    }
    return nanoseconds() - began;
}

/* A function that calls `next` until it is deep enough. Its frame has so many words besides the registers that it saves,
 * among them the frame pointer, which a program without frame pointers uses like any other. */
#define DESCENT(name, words, next)                                                                                      \
    static __attribute__((noinline, noclone)) uint64_t name(unsigned long long deeper, unsigned long long pairs) {      \
        volatile uint64_t frame[words];                                                                                 \
        frame[0] = deeper;                                                                                              \
        frame[1] = pairs;                                                                                               \
        uint64_t took = deeper > 1 ? next(deeper - 1, pairs) : loop(pairs);                                             \
        return took + (frame[0] - deeper) + (frame[1] - pairs);                                                         \
    }

static descent first;
DESCENT(eighth, 4, first)
DESCENT(seventh, 18, eighth)
DESCENT(sixth, 2, seventh)
DESCENT(fifth, 10, sixth)
DESCENT(fourth, 6, fifth)
DESCENT(third, 14, fourth)
DESCENT(second, 3, third)
DESCENT(first, 8, second)

/* Whoever is in the middle of an event when another program gets the processor has its time counted as the event's. */
static void go_first(void) {
    struct sched_param priority = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
        perror("measuring with an everyday priority: sched_setscheduler");
}

/* Allocates nothing: every allocation is to be one of the pairs', and dprintf has a buffer of its own. */
static void say(unsigned long long pairs, uint64_t took) {
    char line[100];
    int length = snprintf(line, sizeof line, "{\"pairs\":%llu,\"ns\":%llu,\"processors\":1}\n", pairs,
                          (unsigned long long)took);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    keep_to(arguments[1]);
    go_first();
    ready();
    for (unsigned long long deeper, pairs; wait_line(&deeper) && wait_line(&pairs);) {
        uint64_t took = deeper > 0 ? first(deeper, pairs) : loop(pairs);
        say(pairs, took);
    }
    return 0;
}
