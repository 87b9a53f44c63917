/* SPDX-License-Identifier: MIT
 *
 * manual_text.c: what the manual says beside the tables of the commands. See manual.h.
 */
#include "cli/manual.h"

#include <stddef.h>

const struct manual_part manual_program[] = {
    {"ENVIRONMENT",
     "Every option of every command can be set by a variable: QUERN_, the command, the option, in capitals and with _ "
     "for -, as in "
     "QUERN_SERVE_LISTEN. Options that many commands share have no command in the name. The variable stands with the "
     "option in the page of its command. A flag is 1 or true, 0 or false; a list has colons between its texts. "
     "Besides:\n\n"
     "@NO_COLOR\nWhen it is set and not empty, nothing is coloured. Colour, bold letters and progress are for "
     "terminals only.\n\n"
     "@TERM\nA terminal called dumb is treated as a file is.\n\n"
     "@LC_ALL, LC_CTYPE, LANG\nWhat the program says of itself is ASCII in every locale. What models and files say is "
     "passed on as it is.\n\n"
     "@XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR, HOME\nWhere the files below are.\n"},
    {"FILES", "@~/.config/quern/config.toml, /etc/quern/config.toml\nThe configuration, when there is one: "
              "quern.toml(5).\n\n"
              "@$XDG_RUNTIME_DIR/quern/quern.sock\nThe socket of this user's daemon.\n\n"
              "@/run/quern/quern.sock\nThe socket of the system's daemon.\n\n"
              "@~/models\nModels, unless other folders are configured.\n\n"
              "@$XDG_CACHE_HOME/quern/ceilings.json, ~/.cache/quern/ceilings.json\nWhat this machine was measured to "
              "do, for quern models.\n\n"
              "@$XDG_STATE_HOME/quern/serve.log, ~/.local/state/quern/serve.log\nWhat a daemon says that quern start "
              "has started.\n"},
    {0},
};

const struct manual_part manual_status[] = {
    {"EXIT STATUS", "As in <sysexits.h>. What is not 0 comes with one line on standard error.\n\n"
                    "@0\nIt was done; also when the reader of standard output went away.\n\n"
                    "@64\nThe command line makes no sense.\n\n"
                    "@65\nA file or the input is not what it should be, or does not fit the context.\n\n"
                    "@66\nA file cannot be read.\n\n"
                    "@69\nA server or another machine is not there, or refused.\n\n"
                    "@70\nA mistake in quern itself.\n\n"
                    "@74\nReading or writing failed: a full disk, a lost connection.\n\n"
                    "@75\nToo little memory, or too much to do: it may go well later.\n\n"
                    "@77\nIt is another user's, or you have said no.\n\n"
                    "@78\nThe configuration is wrong.\n"},
    {0},
};

const struct manual_part manual_config[] = {
    {"DESCRIPTION", "Nothing needs to be configured. What would be said on every command line can be written into one "
                    "file instead. It "
                    "is the first of:\n\n"
                    "@--config FILE\nThe option that every command has.\n\n"
                    "@$QUERN_CONFIG\nThe file that is named; when the name is empty there is no file at all.\n\n"
                    "@$XDG_CONFIG_HOME/quern/config.toml\nWithout that variable it is ~/.config/quern/config.toml.\n\n"
                    "@/etc/quern/config.toml\nFor all users.\n"},
    {"PRECEDENCE",
     "A value comes from the command line, else from the environment, else from the section of the persona that is "
     "asked, "
     "else from the section of the command, else it is the default. A list is taken whole from one of them.\n\n"
     "quern config prints each value and where it comes from.\n"},
    {"FORMAT",
     "The file is in a subset of TOML 1.0 (https://toml.io): [sections] with dotted names, bare and quoted keys, "
     "strings of "
     "all four kinds, integers, floats, booleans, arrays, comments. Dates, inline tables, arrays of tables and dotted "
     "keys "
     "left of the sign are refused by name.\n\n"
     "    # comments begin so\n"
     "    [serve]\n"
     "    parallel = 4\n"
     "    memory = \"12G\"\n"
     "    listen = [\"/run/user/1000/quern.sock\", \"127.0.0.1:8080\"]\n"
     "\n"
     "    [run]\n"
     "    temperature = 0.2\n\n"
     "A key is the long name of an option, in the section of its command; options that many commands share stand "
     "before "
     "all sections. A size is a number of bytes, or a text such as \"6G\" or \"500M\"; an option that may be repeated "
     "is an "
     "array of texts. A path may begin with \"~/\"; other relative paths begin where the command is run.\n\n"
     "A key that nothing knows, or a value that is not what the key takes, is an error of one line, which names the "
     "file, the line and the nearest key that there is, with exit status 78. Nothing is ignored.\n"},
    {0},
};

const struct manual_part manual_personas[] = {
    {"PERSONAS",
     "A section [persona.NAME] is a way to be asked: quern -p NAME, or a symbolic link NAME to quern. It holds any "
     "options of the commands that take a persona; they are used when it is asked for. What a section says goes "
     "before what a persona of the same name has that is built in:\n"},
    {0},
};
