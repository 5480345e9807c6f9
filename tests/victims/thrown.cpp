/* Functions that exceptions leave, from several depths, between others that return. Prints the spans as JSON: see spans.h. */
#include "spans.h"

#include <stdexcept>

#define NOIPA __attribute__((noipa))
enum { ROUNDS = 300 };

static struct record record;

extern "C" {

NOIPA int throws(int depth, int span) {
    span_entered(span);
    if (depth == 0)
        throw std::runtime_error("left");
    int inside = span_enter("function", "throws", NO_LABEL, nullptr);
    return throws(depth - 1, inside) + 1;
}

/* Catches the exceptions, and returns. */
NOIPA int catches(long id, int depth, int span) {
    span_entered(span);
    int open = own->open, result = 0;
    try {
        int inside = span_enter("function", "throws", NO_LABEL, nullptr);
        result = throws(depth, inside);
    } catch (const std::exception &) {
        own->open = open;
        result = static_cast<int>(id);
    }
    span_leave(span);
    return result;
}

NOIPA int stays(long id, int span) {
    span_entered(span);
    span_leave(span);
    return static_cast<int>(id);
}
}

static void call_catches(long id, int depth) {
    int span = span_enter("function", "catches", id, nullptr);
    if (catches(id, depth, span) != id)
        abort();
    span_left(span);
}

static void call_stays(long id) {
    int span = span_enter("function", "stays", id, nullptr);
    stays(id, span);
    span_left(span);
}

NOIPA static void call_throws(int depth) {
    int span = span_enter("function", "throws", NO_LABEL, nullptr);
    throws(depth, span);
    abort();
}

int main() {
    struct record *all[] = {&record};
    ledger_start();
    start_record(&record);
    for (int i = 0; i < ROUNDS; i++) {
        call_catches(i, i % 5);
        try {
            call_throws(i % 3);
        } catch (const std::exception &) {
            own->open = -1;
        }
        call_stays(i);
    }
    print_records(all, 1);
    return wait_for_harness() ? 0 : 1;
}
