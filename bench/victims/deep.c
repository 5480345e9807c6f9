/* `deep PROCESSORS`: malloc and free below a number of nested functions, which are the same for each pair.
 *
 * Frame sizes vary and are about those of real programs, because the unwinder reads memory in proportion to them. */
#include "depth.h"

static __attribute__((noinline)) uint64_t loop(unsigned long long pairs) {
    uint64_t start = nanoseconds();
    for (unsigned long long i = 0; i < pairs; i++) {
        void *block = malloc(SIZE);
        if (!block)
            abort();
        free(block);
    }
    return nanoseconds() - start;
}

/* A function that calls `next` until the requested depth. Its frame has `words` words and the saved registers, including
 * rbp, which code without frame pointers uses as a general register. */
#define DESCENT(name, words, next)                                                                                      \
    static __attribute__((noinline, noclone)) uint64_t name(unsigned long long nested, unsigned long long pairs) {      \
        volatile uint64_t frame[words];                                                                                 \
        frame[0] = nested;                                                                                              \
        frame[1] = pairs;                                                                                               \
        uint64_t took = nested > 1 ? next(nested - 1, pairs) : loop(pairs);                                             \
        return took + (frame[0] - nested) + (frame[1] - pairs);                                                         \
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

static inline __attribute__((always_inline)) uint64_t descend(unsigned long long nested, unsigned long long pairs) {
    return nested > 0 ? first(nested, pairs) : loop(pairs);
}

int main(int count, char **arguments) { return serve(count, arguments, descend); }
