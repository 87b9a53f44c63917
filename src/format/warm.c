/* SPDX-License-Identifier: MIT
 *
 * warm.c: a thread that enters the mapped weights into the page table.
 *
 * A file in the page cache still costs a page fault for every 16 of its pages when they are first touched. That is 25
 * thousand faults for 5 GB, and the first forward pass waits for each. Reading the vocabulary keeps one CPU busy for
 * about 20 ms. Meanwhile another CPU can enter a good part of the weights, in the order of the file, which is about the
 * order of use. Pages that it has not reached when it is stopped fault as before.
 *
 * The thread works in small steps, because each step holds the lock of the address space, for which mmap() in the other
 * thread waits; and warm_stop() waits for the last step. It does not ask whether the weights are in memory. Where they
 * are not, it reads ahead for a few milliseconds what will be needed next anyway.
 *
 * A scheduler takes the same steps later in its own thread, while nothing runs, and leaves out what is not in memory.
 *
 * Source: madvise(2), MADV_POPULATE_READ.
 */
#include "format/warm.h"

#include "base/os.h"

#define STEP_BYTES ((size_t)2 << 20)

bool warm_step(struct warm *wm)
{
    for (; wm->tensor < weights_n_tensors(wm->weights); wm->tensor++, wm->offset = 0) {
        const struct tensor *t = weights_tensor_at(wm->weights, wm->tensor);
        if (wm->offset >= t->bytes || !weights_is_used(wm->weights, wm->tensor)) continue;
        const uint8_t *from = t->data + wm->offset;
        size_t n = t->bytes - wm->offset < STEP_BYTES ? t->bytes - wm->offset : STEP_BYTES;
        wm->offset += n;
        return (wm->is_gentle && !map_is_in_memory(from, n)) || !map_populate(from, n);
    }
    return false;
}

static void *warm_main(void *arg)
{
    struct warm *wm = arg;
    while (!atomic_load_explicit(&wm->stop, memory_order_relaxed) && warm_step(wm)) {
    }
    return NULL;
}

void warm_start(struct warm *wm, const struct weights *w)
{
    *wm = (struct warm){.weights = w};
    if (os_n_cpus() < 2) return;
    wm->started = os_thread_start(&wm->thread, warm_main, wm, "the page table", NULL) == 0;
}

void warm_stop(struct warm *wm)
{
    atomic_store_explicit(&wm->stop, true, memory_order_relaxed);
    if (wm->started) pthread_join(wm->thread, NULL);
    wm->started = false;
}
