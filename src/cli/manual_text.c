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
     "@LC_ALL, LC_CTYPE, LANG\nIn a locale that is not UTF-8 the program adds no letters outside of ASCII. What models "
     "and "
     "files say is passed on as it is.\n\n"
     "@XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR, HOME\nWhere the files below are.\n"},
    {"FILES", "@$XDG_CONFIG_HOME/quern/config.toml (~/.config/quern/config.toml), else /etc/quern/config.toml\nThe "
              "configuration, when there is "
              "one: quern.toml(5).\n\n"
              "@$XDG_RUNTIME_DIR/quern/quern.sock\nThe socket of this user's daemon.\n\n"
              "@/run/quern/quern.sock\nThe socket of the system's daemon.\n\n"
              "@~/models\nModels, unless other folders are configured.\n"},
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
                    "@78\nThe configuration is wrong.\n"},
    {0},
};

const struct manual_part manual_config[] = {
    {"DESCRIPTION",
     "The configuration of quern is one file, and it is optional: without it everything has a default. It is "
     "what --config or QUERN_CONFIG names; else the first that exists of $XDG_CONFIG_HOME/quern/config.toml "
     "(~/.config/quern/config.toml when that variable is not set) and /etc/quern/config.toml. An empty name means no "
     "file.\n\n"
     "A value comes from the command line, else from the environment, else from this file (the section of the persona "
     "that is asked for first, then the command's), else it is the default. "
     "quern config prints each value and where it came from.\n\n"
     "What is not understood is an error that names the file, the line, the key and the nearest key that there is; "
     "nothing is "
     "ignored. The exit status is then 78.\n"},
    {"FORMAT",
     "The file is in a subset of TOML 1.0 (https://toml.io): [sections] with dotted names, bare and quoted keys, "
     "strings of all four kinds, "
     "integers, floats, booleans, arrays. Dates, inline tables, arrays of tables and dotted keys are refused.\n\n"
     "    model = \"qwen3-4b-q4_k_m\"\n"
     "    models = [\"/srv/models\", \"/home/ada/models\"]\n"
     "\n"
     "    [serve]\n"
     "    parallel = 4\n"
     "    memory = \"12G\"\n"
     "\n"
     "    [persona.reviewer]\n"
     "    system = \"You review patches. Name the line, say what is wrong, be brief.\"\n"
     "    temperature = 0.2\n\n"
     "Keys are the long names of options. A size is a number of bytes, or a text such as \"6G\" or \"500M\"; a list is "
     "an array of texts. A path may begin with ~/.\n"},
    {0},
};

const struct manual_part manual_personas[] = {
    {"PERSONAS",
     "A section [persona.NAME] is a way to be asked: quern -p NAME, or a symbolic link NAME to quern. A few are there "
     "without being configured: summarize, translate, diagnose, commit-message, reviewer; a section of the same name "
     "replaces it. Its keys:\n\n"
     "@system (text)\nWhat the model is told before the conversation.\n\n"
     "@system-file (text)\nThe same from a file.\n\n"
     "@model (text)\nThe model that is asked, as with --model.\n\n"
     "@temperature, top-p, seed and other sampling options\nAs on the command line.\n"},
    {0},
};
