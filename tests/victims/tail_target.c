/* A function of another object. Functions of the victim tail_calls jump to it. */
#include <time.h>

void foreign(int span, void (*begin)(int), void (*end)(int));

void foreign(int span, void (*begin)(int), void (*end)(int)) {
    struct timespec time = {.tv_nsec = 2000000};
    begin(span);
    nanosleep(&time, NULL);
    end(span);
}
