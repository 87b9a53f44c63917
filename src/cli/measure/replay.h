/* SPDX-License-Identifier: MIT
 *
 * replay.h: measures what drafts bring, by replaying recorded answers with drafts and without.
 *
 * The tokens of an answer are given, and everything else is computed as always. So drafts are as often right as they
 * are on the recorded text, and cost what they cost on this model, even if its weights are random.
 *
 * A file has a JSON object in each line: "prompt" and "answer" are arrays of token ids. "class" may be the name of a
 * kind of content.
 */
#ifndef QUERN_CLI_REPLAY_H
#define QUERN_CLI_REPLAY_H

#include "engine/drafters.h"

struct replay_text {
    qn_token *tokens; /* [n_prompt + n_answer] */
    int n_prompt, n_answer;
    char class[32];
};

struct replay_texts {
    struct replay_text *v;
    int n, longest; /* longest: tokens of a prompt with its answer */
};

/* Reads a file. Returns 0 or an exit status, after a message. replay_free() is due in both cases. */
int replay_load(struct replay_texts *texts, const char *path, int n_vocab);
void replay_free(struct replay_texts *texts);

struct replay_params {
    const char *path;           /* the file with the texts */
    int streams[32], n_streams; /* numbers of answers at once, each measured by itself */
    int n_rounds;               /* of each, at most */
    int seconds;                /* no round of a number of streams begins after them; 0: no limit */
    bool repeats;               /* the texts begin again when they are used up, for another identity */
    bool counts_cpu;            /* the time of the process's threads, instead of the clock's */
    enum qn_draft draft;
    const qn_model *draft_model; /* NULL: none */
    int n_guesses;               /* in each step of an answer; 0: as the controller decides */
    struct drafts_right right;   /* how probably guesses of a drafter that computes them are right */
    struct qn_wedlm wedlm;       /* unverified windows write their own answers, as long as the recorded ones */
};

/* What was measured with so many answers at once. A round is the same blocks of answers with drafts and without. */
struct replay_result {
    int n_streams, n_rounds;
    double *plain, *drafted;    /* [n_rounds] tokens in a second */
    double *ratio;              /* [n_rounds] drafted / plain, ascending */
    double median, low, high;   /* of the ratios; low, high: the 95% interval of the median */
    double account;             /* the ratio, by the times of the drafters' work and the controller's account */
    long n_tokens, n_passes;    /* of the answers with drafts */
    long n_drafted, n_accepted; /* tokens */
};

/* Runs all rounds on the model. results: [p->n_streams], for replay_deinit(). Returns 0 or an exit status, after a
 * message. */
int replay_run(const struct replay_params *p, qn_model *m, const struct qn_engine_params *engine,
               struct replay_result *results);
void replay_deinit(struct replay_result *results, int n);

#endif
