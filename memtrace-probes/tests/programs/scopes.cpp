#include "functions.c"

#include <mutex>
#include <string>

void scopes(std::mutex &mutex);

void scopes(std::mutex &mutex) {
    memtrace::tag tag("net");
    memtrace::tag number(uint64_t{7});
    memtrace::computed_tag computed([] { return std::string("user ") + std::to_string(7); });
    memtrace::task task("request");
    memtrace::lock<std::mutex> lock(mutex, "table");
    memtrace::number_at_end rows("rows");
    memtrace::text_at_end query("query");
    rows.value += 2;
    query.text = "select";
}
