/* A timer that sends a signal each 100 microseconds, whose handler allocates and frees if it has interrupted no call of the
 * allocator: these functions are not safe in a handler otherwise (signal-safety(7)).
 *
 * For an empty line, `patch_signals` allocates until 2,000 signals were handled. For the line `until`, it allocates until the next
 * line. It prints the number of the signals, and the blocks and bytes of main and of the handler.
 * `patch_signals loop` allocates for ever, and prints `ok` again and again. */
#define _GNU_SOURCE
#include "patch.h"

#include <signal.h>
#include <sys/time.h>

#define KEPT 64
#define SIGNALS 2000
#define INTERVAL_US 100

/* Numbers of blocks and bytes. */
struct books {
    uint64_t blocks, bytes;
};

static volatile sig_atomic_t is_in_allocator;
static volatile uint64_t signals;
static struct books of_main, of_handler;
static void *kept[KEPT], *kept_by_handler;
static size_t sizes[KEPT], size_of_handler;

NOINLINE static void *take_in_main(size_t size) {
    is_in_allocator = 1;
    void *block = malloc(size);
    is_in_allocator = 0;
    return block;
}

NOINLINE static void *take_in_handler(size_t size) { return malloc(size); }

NOINLINE static void release_in_main(void *block) {
    is_in_allocator = 1;
    free(block);
    is_in_allocator = 0;
}

static void on_signal(int number) {
    (void)number;
    signals++;
    if (is_in_allocator)
        return;
    if (kept_by_handler)
        check(kept_by_handler, size_of_handler, size_of_handler);
    free(kept_by_handler);
    size_of_handler = 64 + signals % 500;
    kept_by_handler = take_in_handler(size_of_handler);
    expect(kept_by_handler != NULL, "malloc has failed\n");
    fill(kept_by_handler, size_of_handler, size_of_handler);
    of_handler.blocks++;
    of_handler.bytes += size_of_handler;
}

static void set_timer(suseconds_t interval) {
    struct itimerval timer = {{0, interval}, {0, interval}};
    expect(setitimer(ITIMER_REAL, &timer, NULL) == 0, "no timer\n");
}

/* Signals of this time interrupt no call of the allocator. */
static void compute(void) {
    for (volatile int i = 0; i < 3000; i++) {
    }
}

static void steps(size_t count) {
    static size_t done;
    for (size_t i = 0; i < count; i++, done++) {
        size_t at = done * 7 % KEPT;
        if (kept[at])
            check(kept[at], sizes[at], at);
        release_in_main(kept[at]);
        sizes[at] = 64 + done * 37 % 3000;
        kept[at] = take_in_main(sizes[at]);
        expect(kept[at] != NULL, "malloc has failed\n");
        fill(kept[at], sizes[at], at);
        of_main.blocks++;
        of_main.bytes += sizes[at];
        compute();
    }
}

static void work(int is_until) {
    signals = 0;
    of_main = of_handler = (struct books){0};
    set_timer(INTERVAL_US);
    while (is_until ? !has_line() : signals < SIGNALS)
        steps(100);
    set_timer(0);
    char text[300];
    snprintf(text, sizeof text,
             "{\"signals\":%lu,\"main_blocks\":%lu,\"main_bytes\":%lu,\"handler_blocks\":%lu,\"handler_bytes\":%lu}\n", signals,
             of_main.blocks, of_main.bytes, of_handler.blocks, of_handler.bytes);
    print_text(text);
}

int main(int count, char **arguments) {
    /* Restarted, so that the harness and the victim need no loops around their system calls. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    expect(sigaction(SIGALRM, &action, NULL) == 0, "no handler\n");
    free(malloc(100));
    if (count > 1 && strcmp(arguments[1], "loop") == 0) {
        set_timer(INTERVAL_US);
        for (;;) {
            uint64_t before = signals;
            steps(5000);
            expect(signals != before, "no signal\n");
            print_text("ok\n");
        }
    }
    print_ready();
    char line[LINE_SIZE];
    while (read_line(line))
        work(begins(line, "until"));
    return 0;
}
