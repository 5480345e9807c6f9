/* malloc and free at the bottom of a stack as deep as asked, called by the same functions each time: `deep PROCESSORS`.
 *
 * Frames are of many sizes, about as large as those of real programs: how much of a stack has to be read depends on it. */
#include "depth.h"

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

static work first;
DESCENT(eighth, 4, first)
DESCENT(seventh, 18, eighth)
DESCENT(sixth, 2, seventh)
DESCENT(fifth, 10, sixth)
DESCENT(fourth, 6, fifth)
DESCENT(third, 14, fourth)
DESCENT(second, 3, third)
DESCENT(first, 8, second)

static inline __attribute__((always_inline)) uint64_t descend(unsigned long long deeper, unsigned long long pairs) {
    return deeper > 0 ? first(deeper, pairs) : loop(pairs);
}

int main(int count, char **arguments) { return obey(count, arguments, descend); }
