/* See places.h. */
#define _GNU_SOURCE
#include "places.h"

#include <link.h>

struct search {
    const uintptr_t *addresses;
    size_t count;
    struct place *places;
};

static int holds(const struct dl_phdr_info *object, uintptr_t offset) {
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && offset - header->p_vaddr < header->p_memsz)
            return 1;
    }
    return 0;
}

static int visit_object(struct dl_phdr_info *object, size_t size, void *argument) {
    (void)size;
    struct search *search = argument;
    for (size_t i = 0; i < search->count; i++) {
        uintptr_t offset = search->addresses[i] - object->dlpi_addr;
        if (!search->places[i].object && holds(object, offset))
            search->places[i] = (struct place){object->dlpi_name, offset};
    }
    return 0;
}

void find_places(const uintptr_t *addresses, size_t count, struct place *places) {
    for (size_t i = 0; i < count; i++)
        places[i] = (struct place){NULL, addresses[i]};
    struct search search = {addresses, count, places};
    dl_iterate_phdr(visit_object, &search);
}
