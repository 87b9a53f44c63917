/* SPDX-License-Identifier: MIT
 *
 * levels.h: the instruction sets that this machine cannot run, named in a test's output.
 *
 * The lines have cmocka's form, which tools/count-tests counts: a level that was not tested is a skipped case.
 */
#ifndef QUERN_TESTS_LEVELS_H
#define QUERN_TESTS_LEVELS_H

#include <stdio.h>

#include "kernel/cpu.h"

static inline void levels_print_skipped(void)
{
    for (int l = 0; l < CPU_N; l++) {
        const char *name = cpu_level_name((enum cpu_level)l);
        if (cpu_has((enum cpu_level)l)) continue;
        printf("[ RUN      ] level_%s\n", name);
        printf("%s needs instructions that this processor or its operating system does not have\n", name);
        printf("[  SKIPPED ] level_%s\n", name);
    }
}

/* Everything that did run is one case. */
static inline void levels_print_result(bool is_good)
{
    printf("[ RUN      ] levels_of_this_machine\n[  %s ] levels_of_this_machine\n", is_good ? "     OK" : "FAILED");
}

#endif
