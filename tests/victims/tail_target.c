/* A function of another object, to which functions of the victim tail_calls jump. */
#include <time.h>

void foreign(int span, void (*begin)(int), void (*end)(int));

void foreign(int span, void (*begin)(int), void (*end)(int)) {
    struct timespec time = {.tv_nsec = 2000000};
    begin(span);
    nanosleep(&time, NULL);
    end(span);
}
