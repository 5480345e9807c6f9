/* Memory shared with the harness, for libraries that wrap the allocator. */
#ifndef SHARED_FILE_H
#define SHARED_FILE_H

#include <stddef.h>

/* Maps `size` bytes of the file whose path is in an environment variable; `key` is its name followed by `=`. Exits on
 * failure. Works before the C library has set up `environ`, and allocates nothing. */
void *shared_file(const char *key, size_t size);

#endif
