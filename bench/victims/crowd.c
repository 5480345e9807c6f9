/* `crowd PROCESSORS THREADS BUSY`: THREADS threads, BUSY of which allocate and free without a pause. The others wait. It ends at the
 * end of its input. */
#include "victim.h"

#include <pthread.h>

static __attribute__((noreturn)) void *run(void *is_busy) {
    for (;;) {
        if (!is_busy) {
            pause();
            continue;
        }
        allocate_and_free(64);
    }
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    set_affinity(arguments[1]);
    int threads = atoi(arguments[2]), busy = atoi(arguments[3]);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    /* The main thread is the last one: it reads its input, or it is the only busy one. */
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, run, i <= busy ? &threads : NULL) != 0)
            abort();
    }
    ready();
    unsigned long long ignored;
    if (threads == 1 && busy > 0)
        run(&threads);
    while (wait_line(&ignored)) {
    }
    return 0;
}
