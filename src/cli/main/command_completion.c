/* SPDX-License-Identifier: MIT
 *
 * command_completion.c: `quern completion`: prints the script with which a shell completes command lines, from the
 * tables of the commands.
 *
 * The scripts contain commands, options and fixed values. They ask `quern complete` (command_complete.c) for models
 * and personas when these are needed. It prints only names that every shell takes literally, so the name of a file
 * cannot become part of a script. The value of an option is completed by its kind: a choice, a file, a folder or a
 * name. Nothing is offered for other values.
 */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "cli/core/cli.h"
#include "cli/core/commands.h"

static bool offered(const struct command *c) { return c->rank != RANK_HIDDEN; }

/* Prints the names of all commands with `between` between them. */
static void names(const char *between)
{
    bool first = true;
    for (const struct command *const *c = commands; *c; c++)
        if (offered(*c)) {
            printf("%s%s", first ? "" : between, (*c)->name);
            first = false;
        }
}

static void spaced(const char *choices)
{
    for (; *choices; choices++) putchar(*choices == '|' ? ' ' : *choices);
}

/* Prints text inside single quotes; the characters of `more` get a backslash before them. */
static void quoted(const char *text, const char *more)
{
    for (; *text; text++) {
        if (strchr(more, *text)) putchar('\\');
        if (*text == '\'' && !strchr(more, '\''))
            fputs("'\\''", stdout);
        else
            putchar(*text == '\n' ? ' ' : *text);
    }
}

/* ---- bash ---- */

static void bash_kind(enum opt_words words, const char *choices)
{
    static const char *const kinds[] = {"none", "file", "folder", "models", "personas", "command"};
    if (choices) {
        fputs("'words ", stdout);
        spaced(choices);
        puts("' ;;");
    } else if (words == WORDS_COMMAND) {
        fputs("'words ", stdout);
        names(" ");
        puts("' ;;");
    } else {
        printf("%s ;;\n", kinds[words]);
    }
}

static int bash_value(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    (void)arg, (void)g, (void)i;
    if (!o->arg) return 0;
    printf("    %s:--%s", c->name, o->name);
    if (o->letter) printf(" | %s:-%c", c->name, o->letter);
    fputs(") kind=", stdout);
    bash_kind(o->words, o->choices);
    return 0;
}

static int bash_name(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    (void)arg, (void)c, (void)g, (void)i;
    printf("--%s ", o->name);
    return 0;
}

static void bash(void)
{
    const struct command *implied = command_implied();
    printf("# bash completion for quern, made by: quern completion bash\n\n"
           "# What may follow option $2 of command $1, or as its operand.\n"
           "_quern_kind()\n{\n    kind=\n    case $1:$2 in\n");
    for (const struct command *const *c = commands; *c; c++)
        if (offered(*c)) {
            options_walk(*c, bash_value, NULL);
            printf("    %s:) kind=", (*c)->name);
            bash_kind((*c)->words, (*c)->choices);
        }
    printf("    *:--config) kind=file ;;\n    esac\n}\n\n_quern_options()\n{\n    case $1 in\n");
    for (const struct command *const *c = commands; *c; c++)
        if (offered(*c)) {
            printf("    %s) options='", (*c)->name);
            options_walk(*c, bash_name, NULL);
            puts("--config --help --help-all' ;;");
        }
    printf(
        "    *) options='--config --help --help-all' ;;\n    esac\n}\n\n"
        "# Those of the lines on standard input that begin as the word does, with $1 before them.\n"
        "_quern_reply()\n{\n    local word\n"
        "    while IFS= read -r word; do\n"
        "        [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"$1$word\")\n    done\n}\n\n"
        "_quern()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=%s kind "
        "options\n"
        "    COMPREPLY=()\n    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]} # --option=value is three words\n"
        "    [[ $cur == '=' ]] && cur=\n"
        "    case ${COMP_WORDS[1]} in\n    ",
        implied ? implied->name : "");
    names(" | ");
    fputs(") command=${COMP_WORDS[1]} ;;\n    esac\n"
          "    if [[ $command == ask && ( $cur == @* || $prev == '@' ) ]]; then # @NAME may be two words\n"
          "        cur=${cur#@}\n"
          "        _quern_reply @ < <(command quern complete personas 2> /dev/null)\n"
          "        return\n    fi\n"
          "    if (( COMP_CWORD == 1 )); then\n"
          "        _quern_options \"$command\"\n"
          "        [[ $cur == -* ]] || options='",
          stdout);
    names(" ");
    fputs("'\n        _quern_reply <<< \"${options// /$'\\n'}\"\n"
          "        [[ $cur == -* ]] && _quern_reply <<< --version\n"
          "        return\n    fi\n"
          "    [[ $prev == -* ]] && _quern_kind \"$command\" \"$prev\"\n"
          "    if [[ -z $kind && $cur == -* ]]; then\n"
          "        _quern_options \"$command\"\n"
          "        _quern_reply <<< \"${options// /$'\\n'}\"\n"
          "        return\n    fi\n"
          "    [[ $kind ]] || _quern_kind \"$command\" ''\n"
          "    case $kind in\n"
          "    file) compopt -o default 2> /dev/null ;;\n"
          "    folder) compopt -o dirnames 2> /dev/null ;;\n"
          "    personas) _quern_reply < <(command quern complete personas 2> /dev/null) ;;\n"
          "    models)\n"
          "        _quern_reply < <(command quern complete models 2> /dev/null)\n"
          "        _quern_reply < <(compgen -f -- \"$cur\")\n"
          "        [[ ${COMPREPLY[*]} ]] && compopt -o filenames 2> /dev/null || compopt -o default 2> /dev/null\n"
          "        ;;\n"
          "    words*) kind=${kind#words }; _quern_reply <<< \"${kind// /$'\\n'}\" ;;\n"
          "    esac\n}\n\ncomplete -F _quern quern\n",
          stdout);
}

/* ---- zsh ---- */

static void zsh_action(enum opt_words words, const char *choices)
{
    static const char *const actions[] = {" ", "_files", "_files -/", "_quern__models", "_quern__personas", ""};
    if (choices) {
        putchar('(');
        spaced(choices);
        putchar(')');
    } else if (words == WORDS_COMMAND) {
        putchar('(');
        names(" ");
        putchar(')');
    } else {
        fputs(actions[words], stdout);
    }
}

static int zsh_option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    (void)arg, (void)c, (void)g, (void)i;
    const char *value = o->arg ? "=" : "";
    fputs(" \\\n    ", stdout);
    if (o->kind == OPT_STRINGS)
        fputs("'*'", stdout);
    else if (o->letter)
        printf("'(-%c --%s)'", o->letter, o->name);
    if (o->letter)
        printf("{-%c%s,--%s%s}", o->letter, o->arg ? "+" : "", o->name, value);
    else
        printf("--%s%s", o->name, value);
    fputs("'[", stdout);
    quoted(o->help, "[]\\:");
    putchar(']');
    if (o->arg) {
        putchar(':');
        quoted(o->arg, ":\\");
        putchar(':');
        zsh_action(o->words, o->choices);
    }
    putchar('\'');
    return 0;
}

static void zsh_command(const struct command *c)
{
    printf("_quern_%s() {\n  _arguments -s -S", c->name);
    options_walk(c, zsh_option, NULL);
    fputs(" \\\n    '(- *)'{-h,--help}'[print the common options and exit]' \\\n"
          "    '(- *)--help-all[print all options and exit]' \\\n"
          "    --config='[use this configuration file]:FILE:_files'",
          stdout);
    if (c->max != 0) {
        printf(" \\\n    '%s:operand:", c->max == 1 || c->choices ? "1" : "*");
        zsh_action(c->words, c->choices);
        putchar('\'');
    }
    puts("\n}\n");
}

static void zsh(void)
{
    const struct command *implied = command_implied();
    puts("#compdef quern\n# zsh completion for quern, made by: quern completion zsh\n\n"
         "_quern__names() {\n  local kind=$1\n  local -a found\n  shift\n"
         "  found=(${(f)\"$(command quern complete $kind 2> /dev/null)\"})\n"
         "  (( $#found )) && compadd \"$@\" -a found\n}\n\n"
         "_quern__listed() { _quern__names models \"$@\" }\n"
         "_quern__personas() { _quern__names personas \"$@\" }\n"
         "_quern__models() { _alternative 'models:model:_quern__listed' 'files:file:_files' }\n");
    for (const struct command *const *c = commands; *c; c++)
        if (offered(*c)) zsh_command(*c);
    puts("_quern() {\n  local -a commands=(");
    for (const struct command *const *c = commands; *c; c++)
        if (offered(*c)) {
            printf("    '%s:", (*c)->name);
            quoted((*c)->brief, "\\:");
            puts("'");
        }
    fputs("  )\n  if [[ $words[CURRENT] == @* ]] && { (( CURRENT == 2 )) || [[ $words[2] == ask ]] || "
          "(( ! ${commands[(I)$words[2]:*]} )) }; then\n"
          "    compset -P @\n    _quern__personas\n    return\n  fi\n"
          "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "    _describe -t commands command commands\n    return\n  fi\n"
          "  case $words[2] in\n    (",
          stdout);
    names("|");
    fputs(")\n      local command=$words[2]\n      shift words\n      (( CURRENT-- ))\n      _quern_$command\n      "
          ";;\n    (*) ",
          stdout);
    if (implied)
        printf("_quern_%s ;;\n", implied->name);
    else
        puts("_arguments '(- *)'{-h,--help}'[print the commands and exit]' '(- *)--version[print the build and exit]' "
             ";;");
    puts("  esac\n}\n\n"
         "# read by the completion system, or sourced\n"
         "if [[ $funcstack[1] == _quern ]]; then\n  _quern \"$@\"\nelse\n  compdef _quern quern\nfi");
}

/* ---- fish ---- */

/* Prints the end of a line: what may follow the option or the command. */
static void fish_value(enum opt_words words, const char *choices)
{
    switch (choices ? WORDS_NONE : words) {
    case WORDS_NONE:
        fputs(" -x", stdout);
        if (choices) {
            fputs(" -a '", stdout);
            spaced(choices);
            putchar('\'');
        }
        break;
    case WORDS_FILE: fputs(" -r -F", stdout); break;
    case WORDS_FOLDER: fputs(" -x -a '(__fish_complete_directories)'", stdout); break;
    case WORDS_MODEL: fputs(" -r -F -a '(command quern complete models 2> /dev/null)'", stdout); break;
    case WORDS_PERSONA: fputs(" -x -a '(command quern complete personas 2> /dev/null)'", stdout); break;
    case WORDS_COMMAND:
        fputs(" -x -a '", stdout);
        names(" ");
        putchar('\'');
        break;
    }
}

static int fish_option(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    (void)arg, (void)g, (void)i;
    printf("complete -c quern -n '__quern_is %s' -l %s", c->name, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->arg) fish_value(o->words, o->choices);
    fputs(" -d '", stdout);
    quoted(o->help, "\\'");
    puts("'");
    return 0;
}

static void fish_operands(const struct command *c)
{
    if (c->max == 0 || (c->words == WORDS_NONE && !c->choices)) return;
    printf("complete -c quern -n '__quern_is %s'", c->name);
    fish_value(c->words, c->choices);
    putchar('\n');
}

static void fish_mentions(const struct command *implied)
{
    printf("complete -c quern -n '__quern_is %s; and string match -q \"@*\" -- (commandline -ct)' "
           "-a '(printf \"@%%s\\n\" (command quern complete personas 2> /dev/null))'\n",
           implied->name);
}

static void fish(void)
{
    const struct command *implied = command_implied();
    printf("# fish completion for quern, made by: quern completion fish\n\n"
           "# Whether the command line is one of this command.\n"
           "function __quern_is\n    set -l words (commandline -opc)\n    set -l command %s\n"
           "    if set -q words[2]; and contains -- $words[2] ",
           implied ? implied->name : "''");
    names(" ");
    puts("\n        set command $words[2]\n    end\n    test \"$command\" = $argv[1]\nend\n\n"
         "function __quern_first\n    test (count (commandline -opc)) -eq 1\nend\n\n"
         "complete -c quern -f\n"
         "complete -c quern -n __quern_first -l version -d 'print the build and exit'\n"
         "complete -c quern -n 'not __quern_first' -l config -r -F -d 'use this configuration file'\n"
         "complete -c quern -s h -l help -d 'print the common options and exit'\n"
         "complete -c quern -l help-all -d 'print all options and exit'");
    if (implied) fish_mentions(implied);
    for (const struct command *const *c = commands; *c; c++) {
        if (!offered(*c)) continue;
        printf("complete -c quern -n __quern_first -a %s -d '", (*c)->name);
        quoted((*c)->brief, "\\'");
        puts("'");
        options_walk(*c, fish_option, NULL);
        fish_operands(*c);
    }
}

/* ---- the command ---- */

static int run(struct invocation *v)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shells[i].name, v->operand[0])) {
            shells[i].print();
            return EX_OK;
        }
    return cli_usage("completion: '%s' is not bash, zsh or fish", v->operand[0]);
}

static const struct example examples[] = {
    {"quern completion bash > ~/.local/share/bash-completion/completions/quern", "For bash, from the next shell on"},
    {"quern completion zsh > ~/.zfunc/_quern", "For zsh, when that folder is in fpath"},
    {"quern completion fish > ~/.config/fish/completions/quern.fish", "For fish"},
    {"source <(quern completion bash)", "For this shell only"},
    {0},
};

const struct command command_completion = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .brief = "print the script that completes command lines in a shell",
    .about = "Prints the script with which bash, zsh or fish completes commands, options and values, also the names of "
             "models and personas.",
    .min = 1,
    .max = 1,
    .choices = "bash|zsh|fish",
    .rank = RANK_RARE,
    .examples = examples,
    .size = 1,
    .run = run,
};
