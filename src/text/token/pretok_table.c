/* SPDX-License-Identifier: MIT
 *
 * pretok_table.c: the regular expressions of the byte-level BPE tokenizers in use, and their names.
 *
 * GGUF files name a pre-tokeniser (`tokenizer.ggml.pre`) and leave the patterns to the program. Each pattern here is
 * that of the tokenizer.json which the name was registered for. Other programs rewrote some patterns for an engine
 * without Unicode categories (tekken, gpt-4o, kimi-k2); the original stands here, because the model was trained with
 * it.
 *
 * `\s` is spelled out as Unicode White_Space, without U+180E, which PCRE2 would add. Only constructs are used that
 * cannot backtrack further than one run of characters, so a long run costs its length and not its square. For that
 * reason the
 * `\s+$` of deepseek-llm is anchored at the beginning of its run.
 *
 * The names are those of llama.cpp's list (src/llama-vocab.cpp, 2026) except `whitespace`, which belongs to an encoder
 * of another architecture. A name that is not here is refused.
 */
#include "text/token/pretok_table.h"

#include "text/token/pretok.h"

#define WS "\\p{Z}\\t-\\r\\x{85}" /* inside brackets: Z is Zs, Zl and Zp */
#define LN "\\p{L}\\p{N}"

/* English contractions: GPT-2's, and the later ones that take either case. */
#define CONTRACTION   "'s|'t|'re|'ve|'m|'ll|'d"
#define CONTRACTION_I "(?i:" CONTRACTION ")"

/* A run of white space ends at its last line break. Without a line break it ends one character before a word, which
 * takes that character. Otherwise it is one piece. */
#define SPACES_BEFORE_WORD "[" WS "]+(?![^" WS "])"
#define SPACES             "[" WS "]*[\\r\\n]+|" SPACES_BEFORE_WORD "|[" WS "]+"

#define WORD   "[^\\r\\n" LN "]?\\p{L}+"
#define OTHERS " ?[^" WS LN "]+"

#define GPT2 CONTRACTION "| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES_BEFORE_WORD

/* A word may be Capitalised or UPPER, and ends where a capital begins the next word. Letters without case, and marks,
 * count as both. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORD(upper, lower, after)                                                                                \
    "[^\\r\\n" LN "]?" upper "*" lower "+" after "|[^\\r\\n" LN "]?" upper "+" lower "*" after
/* The same without Chinese characters. The class excludes everything that it shall not have, because PCRE2 has no
 * intersection of classes. */
#define NOT_HAN(letter_case) "[^\\p{Han}" letter_case "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"

#define CASED_LETTERS                                                                                                  \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"                    \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"             \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                    \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                  \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"                  \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"          \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"         \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                   \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"                    \
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"                    \
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"                   \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"                  \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"                \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"                             \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

#define HAN_HANGUL "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

static const struct pretok_family unknown = {
    {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
};
static const struct pretok_family gpt2 = {{GPT2}};
static const struct pretok_family smollm = {{"\\p{N}", GPT2}};
static const struct pretok_family falcon = {{"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}};
static const struct pretok_family llama3 = {
    {CONTRACTION_I "|" WORD "|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|" SPACES},
};
static const struct pretok_family qwen2 = {
    {CONTRACTION_I "|" WORD "|\\p{N}|" OTHERS "[\\r\\n]*|" SPACES},
};
static const struct pretok_family qwen35 = {
    {CONTRACTION_I "|[^\\r\\n" LN "]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS LN "\\p{M}]+[\\r\\n]*|" SPACES},
};
static const struct pretok_family minicpm5 = {
    {"\\p{N}{1,3}", CONTRACTION_I "|" WORD "|\\p{N}+|" OTHERS "[\\r\\n]*|" SPACES},
};
static const struct pretok_family seed_coder = {
    {CONTRACTION_I "|" WORD "|\\p{N}| ?[^" WS LN "\\r\\n]+|" SPACES},
};
static const struct pretok_family bailingmoe = {
    {CONTRACTION_I "|" WORD "|\\p{N}|" OTHERS "[\\r\\n]*|[" WS "]*[\\r\\n]|" SPACES_BEFORE_WORD "|[" WS "]+"},
};
static const struct pretok_family tekken = {
    {CASED_WORD(UPPER, LOWER, "") "|\\p{N}|" OTHERS "[\\r\\n/]*|" SPACES},
};
static const struct pretok_family gpt4o = {
    {CASED_WORD(UPPER, LOWER, CONTRACTION_I "?") "|\\p{N}{1,3}|" OTHERS "[\\r\\n/]*|" SPACES},
};
static const struct pretok_family kimi_k2 = {
    {"\\p{Han}+|" CASED_WORD(NOT_HAN("\\p{Ll}"), NOT_HAN("\\p{Lu}\\p{Lt}"), CONTRACTION_I "?") "|\\p{N}{1,3}|" OTHERS
                                                                                               "[\\r\\n]*|" SPACES},
};
static const struct pretok_family deepseek_llm = {
    {"[\\r\\n]", "[" WS "]?[" CASED_LETTERS "]+",
     "[" WS "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
     "(?<![" WS "])[" WS "]++\\z", HAN_HANGUL, "\\p{N}+"},
};
static const struct pretok_family deepseek_coder = {
    {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", HAN_HANGUL, "\\p{N}"},
};
static const struct pretok_family deepseek_v3 = {
    {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
     "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
};
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
static const struct pretok_family bloom = {{BLOOM}};
static const struct pretok_family viking = {{BLOOM, "\\p{N}"}};
/* White space is cut into powers of two. A line break is searched for once in a run: what remains after the cut at the
 * last line break has none. */
#define HALVES(n) "[" WS "]{" n "}(?![^" WS "])|"
static const struct pretok_family jais2 = {
    {CONTRACTION_I "|" WORD "|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|(?<![\\p{Z}\\t\\x{B}\\x{C}\\x{85}])[" WS
                   "]*[\\r\\n]+|" HALVES("512") HALVES("256") HALVES("128") HALVES("64") HALVES("32") HALVES("16")
                       HALVES("8") HALVES("4") HALVES("1,2") "[" WS "]"},
};
static const struct pretok_family spark2_5 = {
    {"\\p{N}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
     "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACES_BEFORE_WORD "|[" WS "]+"},
};
static const struct pretok_family youtu = {
    {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|"
     "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"
     "\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
     CASED_WORD(UPPER, LOWER, CONTRACTION_I "?") "|\\p{N}|" OTHERS "[\\r\\n/]*|" SPACES},
};
/* Words with single spaces between them are one piece. */
static const struct pretok_family exaone_moe = {
    {CONTRACTION_I "|[^\\r\\n" LN "]?\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+|\\p{N}|" OTHERS "[\\r\\n/]?|[" WS
                   "]*[\\r\\n]|" SPACES_BEFORE_WORD "|[" WS "]+"},
};
static const struct pretok_family chameleon = {
    {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
};
static const struct pretok_family ufakzeka = {
    {WORD "|\\p{N}|" OTHERS "[\\r\\n]*|" SPACES},
};
/* A piece begins with the line breaks before it. */
static const struct pretok_family laguna = {
    {"(?:\\r?\\n)++(?:[^\\r\\n]|\\r(?!\\n))*+", CONTRACTION_I "|" WORD "|\\p{N}|" OTHERS "[\\r\\n]*|" SPACES},
};

/* Decimal digits in threes, counted from the right. The first pattern finds the runs of digits that are to be cut. The
 * second cuts off the one or two digits that are left over at the beginning of a run, and then threes as long as one
 * follows the other. So each run is looked through a few times as a whole, and not once from each of its digits. */
#define DIGITS(after) "(?<!\\p{Nd})\\p{Nd}++" after
#define THREES        "\\A(?:\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})++\\z)|\\p{Nd}{3}(?=(?:\\p{Nd}{3})*+\\z))|(?!\\A)\\G\\p{Nd}{3}"
#define WORD_CHARS                                                                                                     \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}"                                                             \
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
static const struct pretok_family afmoe = {
    {DIGITS(""), THREES,
     "[\\x{4E00}-\\x{9FFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}"
     "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}]+|[\\x{E00}-\\x{E7F}]+|[\\x{E80}-\\x{EFF}]+|[\\x{1780}-\\x{17FF}]+|"
     "[\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}]+|[\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+",
     "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
};
static const struct pretok_family tiny_aya = {
    {DIGITS("(?![" WORD_CHARS "])"), THREES,
     CASED_WORD(UPPER, LOWER, CONTRACTION_I "?") "|\\p{N}{1,3}|" OTHERS "[\\r\\n/]*|" SPACES},
};
/* Decimal digits in threes, counted from the right. Other numbers (a fraction, a Roman one) stay with the text before
 * them. The text between two numbers is one piece, with its spaces. */
#define LOOSE "(?:[^\\p{Nd}]++|(?<!\\p{Nd})\\p{Nd}{1,2}(?!\\p{Nd}))"
#define HEAD  "(?<!\\p{Nd})\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})++(?!\\p{Nd}))"
static const struct pretok_family superbpe = {
    {"\\p{N}+", "\\A(?:" LOOSE "++(?:" HEAD ")?|" HEAD ")|\\p{Nd}{3}(?:(?=\\p{Nd})|" LOOSE "*+(?:" HEAD ")?)"},
};
static const struct pretok_family whole = {{NULL}}; /* the text is one piece */
static const struct pretok_family metaspace = {{"\\x{2581}[^\\x{2581}]*|[^\\x{2581}]+"}};
static const struct pretok_family gemma4 = {{"[^\\n]+|\\n+"}};

#define LLAMA3_FLAGS (PRETOK_IGNORE_MERGES | PRETOK_ADD_BOS)

const struct pretok_entry pretok_table[] = {
    {"default", &unknown, 0},
    {"gpt-2", &gpt2, 0},
    {"phi-2", &gpt2, 0},
    {"gigachat", &gpt2, 0},
    {"a.x-4.0", &gpt2, 0},
    {"mellum", &gpt2, 0},
    {"modern-bert", &gpt2, 0},
    {"jina-es", &gpt2, 0},
    {"jina-de", &gpt2, 0},
    {"jina-v1-en", &gpt2, 0},
    {"jina-v2-es", &gpt2, 0},
    {"jina-v2-de", &gpt2, 0},
    {"jina-v2-code", &gpt2, 0},
    {"exaone4", &gpt2, 0},
    {"roberta-bpe", &gpt2, 0},
    {"trillion", &gpt2, 0},
    {"granite-docling", &gpt2, 0},
    {"jais", &gpt2, 0},
    {"mpt", &gpt2, 0},
    {"olmo", &gpt2, 0},
    {"smollm", &smollm, 0},
    {"starcoder", &smollm, 0},
    {"refact", &smollm, 0},
    {"command-r", &smollm, 0},
    {"codeshell", &smollm, 0},
    {"exaone", &smollm, 0},
    {"minerva-7b", &smollm, 0},
    {"mellum2", &smollm, 0},
    {"falcon", &falcon, 0},
    {"llama3", &llama3, LLAMA3_FLAGS},
    {"llama-v3", &llama3, LLAMA3_FLAGS},
    {"llama-bpe", &llama3, LLAMA3_FLAGS},
    {"falcon3", &llama3, LLAMA3_FLAGS},
    {"falcon-h1", &llama3, LLAMA3_FLAGS},
    {"pixtral", &llama3, LLAMA3_FLAGS},
    {"midm-2.0", &llama3, LLAMA3_FLAGS},
    {"lfm2", &llama3, LLAMA3_FLAGS},
    {"jina-v5-nano", &llama3, LLAMA3_FLAGS},
    {"jais-2", &jais2, 0},
    {"dbrx", &llama3, 0},
    {"smaug-bpe", &llama3, 0},
    {"glm4", &llama3, PRETOK_NO_BOS},
    {"chatglm-bpe", &llama3, PRETOK_NO_BOS},
    {"qwen2", &qwen2, PRETOK_NFC},
    {"stablelm2", &qwen2, 0},
    {"hunyuan", &qwen2, 0},
    {"megrez", &qwen2, 0},
    {"deepseek-r1-qwen", &qwen2, 0},
    {"kormo", &qwen2, 0},
    {"f2llmv2", &qwen2, 0},
    {"solar-open", &qwen2, 0},
    {"grok-2", &qwen2, 0},
    {"ufakzeka", &ufakzeka, 0},
    {"laguna", &laguna, 0},
    {"qwen35", &qwen35, PRETOK_NFC},
    {"minicpm5", &minicpm5, PRETOK_IGNORE_MERGES},
    {"seed-coder", &seed_coder, 0},
    {"bailingmoe", &bailingmoe, 0},
    {"bailingmoe2", &bailingmoe, 0},
    {"llada-moe", &bailingmoe, 0},
    {"tekken", &tekken, LLAMA3_FLAGS},
    {"gpt-4o", &gpt4o, 0},
    {"llama4", &gpt4o, 0},
    {"kanana2", &gpt4o, 0},
    {"talkie", &gpt4o, 0},
    {"minimax-m2", &gpt4o, 0},
    {"granite-embed-multi-97m", &gpt4o, PRETOK_IGNORE_MERGES},
    {"youtu", &youtu, PRETOK_IGNORE_MERGES},
    {"tiny_aya", &tiny_aya, 0},
    {"cohere2moe", &tiny_aya, 0},
    {"kimi-k2", &kimi_k2, 0},
    {"deepseek-llm", &deepseek_llm, 0},
    {"deepseek-coder", &deepseek_coder, 0},
    {"deepseek-v3", &deepseek_v3, 0},
    {"hunyuan-dense", &deepseek_v3, 0},
    {"joyai-llm", &deepseek_v3, 0},
    {"hy_v4", &deepseek_v3, 0},
    {"spark2_5", &spark2_5, 0},
    {"afmoe", &afmoe, 0},
    {"bloom", &bloom, 0},
    {"poro-chat", &bloom, 0},
    {"gpt3-finnish", &bloom, 0},
    {"viking", &viking, 0},
    {"exaone-moe", &exaone_moe, 0},
    {"chameleon", &chameleon, PRETOK_ADD_BOS},
    {"superbpe", &superbpe, 0},
    {"gemma4", &gemma4, PRETOK_BY_CHAR | PRETOK_FORCE_BOS},
    {"granite-embed-multi-311m", &gemma4, PRETOK_BY_CHAR | PRETOK_FORCE_BOS},
    {"sarvam-moe", &gemma4, PRETOK_BY_CHAR},
    {"whole", &whole, 0},
    {"metaspace", &metaspace, 0},
};
const size_t pretok_table_n = sizeof pretok_table / sizeof pretok_table[0];
