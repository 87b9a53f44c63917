#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pipes.sh: continues a prompt from the shell, with the quern program instead of the library.
#
#     pipes.sh MODEL.gguf "Once upon a time"
set -eu
model=$1 prompt=$2

# Continue the prompt and wrap the lines of the result.
quern run "$model" -n 40 --temp 0 "$prompt" | fold -s -w 72
echo

# Count the tokens of the prompt.
printf %s "$prompt" | quern tokenize "$model" | wc -w

# Print the name of the model from the metadata of its file.
quern inspect --json "$model" | grep -o '"general.name": *"[^"]*"'
