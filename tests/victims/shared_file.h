/* Memory shared with the harness, for libraries that stand between a program and its allocator. */
#ifndef SHARED_FILE_H
#define SHARED_FILE_H

#include <stddef.h>

/* Maps `size` bytes of the file that the variable names; `key` is the variable's name and an equals sign. Ends the process
 * where that fails. Works before the C library knows its environment, and allocates nothing. */
void *shared_file(const char *key, size_t size);

#endif
