/* SPDX-License-Identifier: MIT
 *
 * commands.c: the list of commands, and the groups of options that several of them share.
 */
#include <quern.h>

#include "cli/core/commands.h"

const struct command *const commands[] = {
    /* clang-format off */
    &command_ask,
    &command_chat,
    &command_run,
    &command_serve,
    &command_start,
    &command_stop,
    &command_ps,
    &command_models,
    &command_pull,
    &command_rm,
    &command_bench,
    &command_explain,
    &command_inspect,
    &command_check,
    &command_verify,
    &command_count,
    &command_embed,
    &command_tokenize,
    &command_logits,
    &command_default,
    &command_personas,
    &command_config,
    &command_manual,
    &command_completion,
    &command_help,
    &command_complete,
    NULL,
    /* clang-format on */
};

#define AT(field) offsetof(struct qn_sampling, field)
const struct opt opts_sampling[] = {
    {"seed", 0, OPT_U64, AT(seed), "N",
     "the same seed gives the same answer; or random (default: 0 for the filter, random for others)"},
    {"temperature", 0, OPT_FLOAT, AT(temperature), "X", "0: greedy (default 0.8)"},
    {"top-k", 0, OPT_INT, AT(top_k), "N", "keep the N most likely tokens; 0: off (default 40)", .hi = INT32_MAX,
     .rare = true},
    {"top-p", 0, OPT_FLOAT, AT(top_p), "X", "keep the likeliest, up to probability X; 1: off (default 0.95)"},
    {"min-p", 0, OPT_FLOAT, AT(min_p), "X", "drop tokens below X times the best; 0: off (default 0.05)", .rare = true},
    {"typical-p", 0, OPT_FLOAT, AT(typical_p), "X", "locally typical sampling; 1: off (default)", .rare = true},
    {"top-n-sigma", 0, OPT_FLOAT, AT(top_n_sigma), "X", "keep logits within X deviations of the best; 0: off (default)",
     .rare = true},
    {"repetition-penalty", 0, OPT_FLOAT, AT(repetition_penalty), "X", "1: off (default)", .rare = true},
    {"presence-penalty", 0, OPT_FLOAT, AT(presence_penalty), "X", "0: off (default)", .rare = true},
    {"frequency-penalty", 0, OPT_FLOAT, AT(frequency_penalty), "X", "0: off (default)", .rare = true},
    {"penalty-last-n", 0, OPT_INT, AT(penalty_last_n), "N", "tokens the penalties look back; -1: all (default 64)",
     .lo = -1, .hi = INT32_MAX, .rare = true},
    {"dry-multiplier", 0, OPT_FLOAT, AT(dry_multiplier), "X", "penalty for repeated sequences; 0: off (default)",
     .rare = true},
    {"dry-base", 0, OPT_FLOAT, AT(dry_base), "X", "growth per repeated token (default 1.75)", .rare = true},
    {"dry-allowed-length", 0, OPT_INT, AT(dry_allowed_length), "N", "repeats up to this long are free (default 2)",
     .lo = 1, .hi = INT32_MAX, .rare = true},
    {"dry-last-n", 0, OPT_INT, AT(dry_last_n), "N", "tokens that DRY looks back; -1: all (default)", .lo = -1,
     .hi = INT32_MAX, .rare = true},
    {"xtc-probability", 0, OPT_FLOAT, AT(xtc_probability), "X", "how often to drop the top choices; 0: off (default)",
     .rare = true},
    {"xtc-threshold", 0, OPT_FLOAT, AT(xtc_threshold), "X", "what counts as a top choice (default 0.1)", .rare = true},
    {"mirostat-tau", 0, OPT_FLOAT, AT(mirostat_tau), "X", "mirostat v2 target surprise; 0: off (default)",
     .rare = true},
    {"mirostat-eta", 0, OPT_FLOAT, AT(mirostat_eta), "X", "mirostat v2 learning rate (default 0.1)", .rare = true},
    {0},
};
#undef AT

const struct opt opts_model[] = {
    {"pre", 0, OPT_STRING, offsetof(struct qn_model_params, pre), "NAME",
     "pre-tokeniser for a file that names none, `default` or an unknown one: llama-bpe, qwen2, ...", .rare = true},
    {0},
};

#define AT(field) offsetof(struct qn_engine_params, field)
const struct opt opts_engine[] = {
    {"kv", 0, OPT_CHOICE, AT(kv), "TYPE", "keys and values as f16 (default), f32 or q8_0",
     .choices = "f16|f32|q8_0" /* in the order of enum qn_kv */, .rare = true},
    {"threads", 0, OPT_INT, AT(n_threads), "N", "threads (default: the CPUs this process may use)", 1, 1024},
    {"cpu", 0, OPT_STRING, AT(cpu), "LEVEL", "instruction set at most: ref, avx2, avxvnni, avx512, avx512vbmi or amx",
     .rare = true},
    {"memory", 0, OPT_SIZE, AT(memory_bytes), "BYTES", "memory budget, such as 6G (default: what is available)"},
    {0},
};

const struct opt opts_context[] = {
    {"ctx", 0, OPT_INT, AT(n_ctx), "N", "tokens of context (default: the model's, at most 32768)", 1, 1 << 28},
    {"batch", 0, OPT_INT, AT(n_batch), "N", "most rows in one forward pass (default 512)", 1, 65536, .rare = true},
    {"mlock", 0, OPT_FLAG, AT(lock_weights), NULL, "lock weights in memory, as many as the budget allows",
     .rare = true},
    {0},
};
#undef AT
