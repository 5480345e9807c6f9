// C++ names to demangle, and operator new, which calls malloc and must count once.
#include <cstdlib>
#include <new>

extern "C" {
#include "ledger.h"
}

namespace widgets {

struct Part {
    char payload[72];
};

template <typename Kind> struct Factory {
    __attribute__((noinline)) static void *make_blocks(std::size_t size) {
        void *block = std::malloc(size);
        ledger_alloc(nullptr, block, size);
        return block;
    }
};

} // namespace widgets

int main() {
    ledger_start();
    for (std::size_t i = 1; i <= 8; i++)
        widgets::Factory<int>::make_blocks(i * 64);
    for (int i = 0; i < 30; i++) {
        auto *part = new widgets::Part;
        ledger_alloc(nullptr, part, sizeof *part);
        if (i % 3 == 0) {
            ledger_free(part);
            delete part;
        }
    }
    auto *array = new char[333];
    ledger_alloc(nullptr, array, 333);
    ledger_free(array);
    delete[] array;
    // A multiple of the alignment, since some libraries round up.
    ledger_alloc(nullptr, ::operator new(256, std::align_val_t(128)), 256);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
