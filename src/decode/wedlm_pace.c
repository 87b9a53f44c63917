/* SPDX-License-Identifier: MIT
 *
 * wedlm_pace.c: how many masks a window has. See wedlm_pace.h.
 */
#include "decode/wedlm_pace.h"

#include "base/inline/minmax.h"

#define N_FIRST    4        /* steps with a window before one without */
#define FIRST      4        /* masks in these steps */
#define TRIAL      4        /* masks, and steps, of a trial */
#define PAUSE      24       /* steps before the first trial */
#define MOST_WAIT  512      /* steps */
#define CLEARLY    1.03     /* how much better a window has to be than none */
#define WEIGHT     0.125F   /* of a step in what is known of its answer, */
#define WEIGHT_ALL 0.03125F /* and of all answers */
#define N_KNOWN    16       /* steps with windows after which all answers' are known */
#define UNSEEN     0.03F    /* how fast what is not measured moves to what its neighbour suggests */
#define NEXT       0.9F     /* how probable a further guess is, if it was never looked at */

struct wedlm_pace wedlm_pace_begin(const struct wedlm_pace *all)
{
    return all->n_seen < N_KNOWN ? (struct wedlm_pace){0} : *all;
}

double wedlm_pace_gain(const struct wedlm_pace *p, int window)
{
    double gain = 0;
    for (int i = 0; i < window - 1; i++) gain += 1 - (double)p->missed[i];
    return gain;
}

/* Tokens for each relative time. A step also has the rows of the guesses that the step before has filled. */
static double rate(const struct wedlm_pace *p, const struct draft_control *c, int n_rows, double tokens, int window)
{
    double gain = wedlm_pace_gain(p, window);
    int n_more = window + (int)(gain + 0.5);
    return (tokens + gain) / draft_control_cost(c, n_rows + n_more, n_more);
}

static int best(const struct wedlm_pace *p, const struct draft_control *c, int n_rows, double tokens, int most)
{
    double highest = CLEARLY * rate(p, c, n_rows, tokens, 0);
    int window = 0;
    for (int w = 2; w <= most; w *= 2) {
        double r = rate(p, c, n_rows, tokens, w);
        if (r <= highest) continue;
        highest = r;
        window = w;
    }
    return window;
}

/* One of the steps between trials. A trial follows the last one, and later the next. */
static void wait(struct wedlm_pace *p)
{
    if (p->wait == 0) p->wait = p->pause = p->pause ? p->pause : PAUSE;
    if (--p->wait) return;
    p->n_left = TRIAL;
    p->pause = p->pause < MOST_WAIT / 2 ? 2 * p->pause : MOST_WAIT;
}

/* Windows gain: should they not do so any more, they are soon tried again. */
static void stop_waiting(struct wedlm_pace *p)
{
    p->pause = PAUSE;
    p->wait = p->n_left = 0;
}

int wedlm_pace_choose(struct wedlm_pace *p, struct wedlm_pace *all, const struct draft_control *c, int n_rows,
                      double tokens, int most)
{
    if (most < 2) return 0;
    if (p->n_seen < N_FIRST) return min_int(FIRST, most);
    int window = best(p, c, n_rows, tokens, min_int(most, WEDLM_MOST));
    if (window) {
        stop_waiting(p);
        if (all) stop_waiting(all);
        return window;
    }
    if (p->n_left) {
        p->n_left--;
        if (all && all->n_left) all->n_left--; /* what an answer leaves of a trial is for the next one */
        return min_int(TRIAL, most);
    }
    if (all) wait(all);
    wait(p);
    return 0;
}

static void learn(struct wedlm_pace *p, float least, int window, int n_right, bool is_end)
{
    float weight = 1 / (float)(p->n_seen + 2), before = 0;
    if (weight < least) weight = least;
    if (p->n_seen < 255) p->n_seen++;
    for (int i = 0; i < WEDLM_MOST; i++) {
        float to = i < n_right ? 0 : 1;
        if (i < n_right || (i < window - 1 && is_end))
            p->missed[i] += weight * (to - p->missed[i]);
        else
            p->missed[i] += UNSEEN * (1 - NEXT * (1 - before) - p->missed[i]);
        if (p->missed[i] < before) p->missed[i] = before; /* two in a row are not more frequent than one */
        before = p->missed[i];
    }
}

void wedlm_pace_saw(struct wedlm_pace *p, struct wedlm_pace *all, int window, int n_right, bool is_end)
{
    if (!window) return;
    learn(p, WEIGHT, window, n_right, is_end);
    if (all) learn(all, WEIGHT_ALL, window, n_right, is_end);
}
