#include "memtrace.h"

long without(const char *name, long value);
long with(const char *name, long value);
void each(const char *name, void *address);

long without(const char *name, long value) { return name ? value + 1 : value; }

long with(const char *name, long value) {
    memtrace_tag_begin(name);
    return name ? value + 1 : value;
}

void each(const char *name, void *address) {
    memtrace_tag_begin_id(7);
    memtrace_tag_end();
    memtrace_task_begin(name);
    memtrace_task_end();
    memtrace_lock_wait(address, name);
    memtrace_lock_acquire(address);
    memtrace_lock_release(address);
    memtrace_event_number(name, -1);
    memtrace_event_text(name, name);
    memtrace_claim(address);
}

int main(void) {
    return MEMTRACE_TAG_ENABLED() || MEMTRACE_TASK_ENABLED() || MEMTRACE_LOCK_ENABLED() ||
           MEMTRACE_EVENT_NUMBER_ENABLED() || MEMTRACE_EVENT_TEXT_ENABLED();
}
