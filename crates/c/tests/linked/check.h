// What the programs here share: a condition that must hold, with what pgemm_last_error says where it does not.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "persistent_gemm.h"

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\nlast error: %s\n", __FILE__, __LINE__, #condition, pgemm_last_error());      \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

// Whether the last error says so.
#define SAYS(words) (strstr(pgemm_last_error(), words) != NULL)

#endif
