/* SPDX-License-Identifier: MIT
 *
 * manual_text.c: the manual's texts about the environment, files, exit codes and the configuration. See manual_text.h.
 */
#include "cli/main/manual_text.h"

#include <stddef.h>

const struct manual_part manual_program[] = {
    {"ENVIRONMENT",
     "Every option of every command can be set by a variable. Its name is QUERN_, the command and the option, in "
     "capitals and with _ for -, as in QUERN_SERVE_LISTEN. Options that many commands share have no command in the "
     "name. The page of a command gives the variable of each option. A flag is 1 or true, 0 or false. A list has "
     "colons between its texts. Other variables:\n\n"
     "@NO_COLOR\nIf it is set and not empty, nothing is coloured. Colour, bold letters and progress are for "
     "terminals only.\n\n"
     "@TERM\nA terminal called dumb is treated like a file.\n\n"
     "@LC_ALL, LC_CTYPE, LANG\nThe program's own texts are ASCII in every locale. The texts of models and files "
     "are passed on as they are.\n\n"
     "@XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR, HOME\nThe places of the files below.\n"},
    {"FILES",
     "@~/.config/quern/config.toml, /etc/quern/config.toml\nThe configuration, if there is one: quern.toml(5).\n\n"
     "@$XDG_RUNTIME_DIR/quern/quern.sock, ~/.cache/quern/quern.sock\nThe socket of this user's daemon. The second "
     "one is for a session without a runtime folder.\n\n"
     "@/run/quern/quern.sock\nThe socket of the system's daemon.\n\n"
     "@~/models\nModels, unless other folders are configured.\n\n"
     "@$XDG_CACHE_HOME/quern/ceilings.json, ~/.cache/quern/ceilings.json\nThe measured speed of this machine, for "
     "quern models.\n\n"
     "@$XDG_STATE_HOME/quern/serve.log, ~/.local/state/quern/serve.log\nThe messages of a daemon that quern start has "
     "started.\n"},
    {0},
};

const struct manual_part manual_status[] = {
    {"EXIT STATUS", "The exit status is one of <sysexits.h>. If it is not 0, there is one line on standard error.\n\n"
                    "@0\nSuccess; also if the reader of standard output went away.\n\n"
                    "@64\nThe command line is wrong.\n\n"
                    "@65\nA file or the input is not what it should be, or does not fit the context.\n\n"
                    "@66\nA file cannot be read.\n\n"
                    "@69\nA server or another machine does not answer, or refused.\n\n"
                    "@70\nAn error in quern itself.\n\n"
                    "@74\nReading or writing failed, because of a full disk or a lost connection, for example.\n\n"
                    "@75\nThere is too little memory or too much to do; it may work later.\n\n"
                    "@77\nIt belongs to another user, or you answered no.\n\n"
                    "@78\nThe configuration is wrong.\n"},
    {0},
};

const struct manual_part manual_config[] = {
    {"DESCRIPTION",
     "Nothing needs to be configured. Options that you give on every command line can go into one file instead. It "
     "is the first of:\n\n"
     "@--config FILE\nThe option that every command has.\n\n"
     "@$QUERN_CONFIG\nThe named file; if the name is empty, there is no file at all.\n\n"
     "@$XDG_CONFIG_HOME/quern/config.toml\nWithout that variable it is ~/.config/quern/config.toml.\n\n"
     "@/etc/quern/config.toml\nFor all users.\n"},
    {"PRECEDENCE",
     "A value comes from the command line, or else from the environment, or else from the section of the persona, "
     "or else from the section of the command, or else it is the default. A list comes from one of them as a "
     "whole.\n\n"
     "quern config prints each value and where it comes from.\n"},
    {"FORMAT",
     "The file is in a subset of TOML 1.0 (https://toml.io): [sections] with dotted names, bare and quoted keys, "
     "strings of all four kinds, integers, floats, booleans, arrays, comments. Dates, inline tables, arrays of "
     "tables and dotted keys left of the sign are refused by name.\n\n"
     "    # comments begin so\n"
     "    [serve]\n"
     "    parallel = 4\n"
     "    memory = \"12G\"\n"
     "    listen = [\"/run/user/1000/quern.sock\", \"127.0.0.1:8080\"]\n\n"
     "    [run]\n"
     "    temperature = 0.2\n\n"
     "A key is the long name of an option, in the section of its command. Options that many commands share are "
     "before all sections. A size is a number of bytes, or a text such as \"6G\" or \"500M\". An option that may be "
     "repeated is an array of texts. A path may begin with \"~/\"; other relative paths start from the directory "
     "where the command runs.\n\n"
     "An unknown key, or a value that does not fit its key, is an error of one line with the file, the line number "
     "and the nearest known key. The exit status is 78. Nothing is ignored.\n"},
    {0},
};

const struct manual_part manual_personas[] = {
    {"PERSONAS",
     "A section [persona.NAME] defines a persona, for quern -p NAME, or for a symbolic link NAME to quern. It has "
     "any options of the commands that take a persona; they apply when the persona is selected. A section with the "
     "name of a built-in persona goes before that persona's own options.\n\n"
     "A file personas/NAME.txt in the folder of the configuration (~/.config/quern) defines a persona too: its text is "
     "the system message. In such a text, and in system of a section, {{lang}} stands for an argument and {{lang=C}} "
     "for one with a default: quern @NAME lang=Go. These personas are built in:\n"},
    {0},
};
