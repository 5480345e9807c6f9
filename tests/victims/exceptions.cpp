// Exceptions through frames that allocate in constructors, destructors and handlers.
#include <cstdlib>
#include <stdexcept>
#include <string>

extern "C" {
#include "ledger.h"
}

namespace {

struct Holder {
    explicit Holder(std::size_t size) : block(std::malloc(size)) {}
    ~Holder() {
        std::free(block);
        // Runs during unwinding.
        std::free(std::malloc(77));
    }
    Holder(const Holder &) = delete;
    Holder &operator=(const Holder &) = delete;
    void *block;
};

struct Failing {
    explicit Failing(int number) : holder(50), text(40 + static_cast<std::size_t>(number), 'x') {
        if (number % 2)
            throw std::runtime_error("the number is odd; this message is too long for the small string buffer");
    }
    Holder holder;
    std::string text;
};

__attribute__((noipa)) int fall(int depth, int number) {
    Holder holder(static_cast<std::size_t>(100 + depth));
    if (depth == 0)
        return static_cast<int>(Failing(number).text.size());
    return fall(depth - 1, number) + 1;
}

__attribute__((noipa)) int rethrow(int depth, int number) {
    try {
        return fall(depth, number);
    } catch (const std::exception &error) {
        std::string kept(error.what());
        if (number % 3 == 0)
            throw;
        return static_cast<int>(kept.size());
    }
}

__attribute__((noipa)) int survive(int depth, int number) {
    try {
        return rethrow(depth, number);
    } catch (const std::runtime_error &error) {
        return static_cast<int>(std::string(error.what()).append(30, '!').size());
    }
}

} // namespace

int main() {
    // The first exception allocates for good.
    survive(1, 3);
    ledger_start();
    int sum = 0;
    for (int i = 0; i < 200; i++)
        sum += survive(i % 17, i);
    ledger_print("");
    return wait_for_harness() && sum > 0 ? 0 : 1;
}
