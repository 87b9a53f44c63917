#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# test.sh: builds and tests Quern.
#
#     ./test.sh            the rules of the tree, a release build with gcc, and its tests
#     ./test.sh --full     the same with the slow tests, packages, clang, sanitizers, fuzzers, strange surroundings
#     ./test.sh --release  the same with the long tests: more cases of what the others have; for a release
#     ./test.sh NAME...    builds and runs these tests (unit/kv) or suites (unit) in build/gcc
#     ./test.sh --list     the names of the tests and suites
#
# Each stage has a build directory build/NAME and a log build/log/NAME.log, and reports one line with the seconds it
# took and its budget. A stage over its budget is reported, and is no failure. What failed is repeated at the end, with
# its own messages. The last line is `N passed, N failed`, counted over test cases (tools/count-tests) and other checks;
# a skipped test is reported but counts as neither. The status is 1 if anything failed.
#
# Reference data comes from $QUERN_SHARED (default ../shared). When it is not there the tests that need it are skipped,
# unless CI is set: then that is a failure. The same holds for other people's programs, which some tests run Quern
# beside: deps_peers and deps_slow_peers in tools/install-deps, and what tests/npm/install installs once into build/npm.
# FUZZ_SECONDS (default 8) is the time for each fuzzer. CONTRIBUTING.md has more.
set -uo pipefail
cd "$(dirname "$0")" || exit
. tools/install-deps

full='' release='' wanted=()
case ${1:-} in
"") ;;
--full) full=1 ;;
--release) full=1 release=1 ;;
--list) wanted=(--list) ;;
-*) sed -n 's/^#  \{4,\}/usage: /p' "$0" >&2; exit 64 ;;
*) wanted=("$@") ;;
esac
[ $# -le 1 ] || [ ${#wanted[@]} -gt 1 ] || { sed -n 's/^#  \{4,\}/usage: /p' "$0" >&2; exit 64; }

# The builds and this script do not depend on whose shell it is. Tests have surroundings of their own: tests/run.
umask 022
unset CC CFLAGS CPPFLAGS LDFLAGS QUERN_GOLDEN
export LC_ALL=C.UTF-8

export QUERN_SHARED=${QUERN_SHARED:-../shared}
[ -d "$QUERN_SHARED" ] && QUERN_SHARED=$(cd "$QUERN_SHARED" && pwd)
export ASAN_OPTIONS=halt_on_error=1:abort_on_error=1:detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1

mkdir -p build/log
results=build/log/results # one line per case: pass, fail or skip, and a name
why=$PWD/build/log/why    # the messages of those that failed
: > "$results"
: > "$why"
n_stages=$([ "$full" ] && echo 9 || echo 3)
stage_no=0
budgets=9 # for what is installed first
# Some tests mostly wait: two more than there are processors keep these busy. With sanitizers they compute more.
jobs=$(($(nproc) + 2)) jobs_sanitized=$(($(nproc) + 1))

result() { echo "$*" >> "$results"; }
count() { grep -c "^$1 " "$2" || true; }
over() { if [ "$1" -gt "$2" ]; then echo "$1 s of $2: OVER BUDGET"; else echo "$1 s of $2"; fi; }

# stage NAME BUDGET TITLE: runs stage_NAME with its output in a log, and sums up what it added to the results.
stage() {
    local log=build/log/$1.log t0=$SECONDS before new=build/log/$1.results
    before=$(wc -l < "$results")
    stage_no=$((stage_no + 1))
    budgets=$((budgets + $2))
    "stage_$1" > "$log" 2>&1 < /dev/null
    tail -n +$((before + 1)) "$results" > "$new"
    echo "[$stage_no/$n_stages] $3: $(count pass "$new") passed, $(count fail "$new") failed," \
        "$(count skip "$new") skipped ($(over $((SECONDS - t0)) "$2"))"
    if grep -q '^fail ' "$new"; then
        sed -n 's/^fail /    FAILED /p' "$new"
        echo "    the end of $log:"
        tail -n 30 "$log" | sed 's/^/    | /'
    fi
}

# check NAME COMMAND...: a check that is one case.
check() {
    local name=$1 log=build/log/check
    shift
    "$@" > "$log" 2>&1
    judge "$name" $? "$log"
}

# judge NAME STATUS LOG: adds a case that has been run.
judge() {
    if [ "$2" -eq 0 ]; then
        result pass "$1"
    else
        result fail "$1"
        explain "$1" "$3"
    fi
    cat "$3"
}

# explain NAME LOG: keeps the end of a log, if there is one, for the end of the run.
explain() { [ ! -f "$2" ] || { echo "$1:"; tail -n 20 "$2" | cut -c 1-400 | sed 's/^/    /'; } >> "$why"; }

# What did not change since any clone was compiled here is taken from ccache, where that is installed. Debug information
# may then name another clone's folder; sources have relative names in it.
export CCACHE_NOHASHDIR=1

# build DIR COMPILER MESON_OPTION...: configures build/DIR; a failure counts as one case, success as none.
build() {
    local dir=build/$1 cc=$2
    shift 2
    command -v ccache > /dev/null && cc="ccache $cc"
    if [ ! -f "$dir/build.ninja" ] && ! CC=$cc meson setup "$dir" "$@"; then
        result fail "$dir: configuring"
        explain "$dir: configuring" "$dir/meson-logs/meson-log.txt"
        rm -rf "$dir"
        return 1
    fi
}

build_gcc() { build gcc gcc --buildtype=release --prefix=/usr --werror; }

# compile DIR TARGET...: its failure counts as one case; the end of what ninja writes is the compiler's message.
compile() {
    ninja -C "$@" > build/log/compile 2>&1
    local status=$?
    cat build/log/compile
    [ $status -eq 0 ] && return
    result fail "build/$(basename "$1"): building"
    explain "build/$(basename "$1"): building" build/log/compile
    return 1
}

# count_tests DIR: adds the cases that meson has logged in build/DIR.
count_tests() {
    local log=build/$1/meson-logs/testlog.json
    if [ -s "$log" ]; then
        tools/count-tests "$log" "$why" | sed "s|^\([a-z]*\) |&$1 |" >> "$results"
    else
        result fail "build/$1: no test ran"
        explain "build/$1: no test ran" "build/log/$1.log"
    fi
}

# run_tests DIR MESON_TEST_OPTION...: builds what these tests need in build/DIR, runs them and counts their cases.
run_tests() {
    local dir=$1
    shift
    rm -f "build/$dir/meson-logs/testlog.json"
    ${wrapper:-} meson test -C "build/$dir" --print-errorlogs --num-processes "$jobs" "$@"
    local status=$?
    count_tests "$dir"
    return $status
}

# Where tests/golden/unpack and tests/npm/install put things; tests that miss them say so.
unpack_golden() {
    if tests/golden/unpack build/golden; then
        export QUERN_GOLDEN=$PWD/build/golden
    elif [ -d "$QUERN_SHARED/golden" ] || [ -n "${CI:-}" ]; then
        result fail "reference data in $QUERN_SHARED/golden"
    fi
}

install_npm() {
    QUERN_NPM=
    tests/npm/install build/npm && QUERN_NPM=$PWD/build/npm
    export QUERN_NPM
}

# ---- some tests ----

# Prints the names of all tests, or with names of tests and suites the tests they stand for. A suite does not include
# its slow tests, unless it is `slow`. The long ones have a suite of their own.
names_of() {
    meson introspect --tests build/gcc | python3 -c '
import json, sys
tests = [(t["name"], [s.split(":")[-1] for s in t["suite"]]) for t in json.load(sys.stdin)]
names, suites = {n for n, _ in tests}, {s for _, own in tests for s in own}
for n, own in tests if not sys.argv[1:] else []:
    print(n.ljust(40), *own)
for w in sys.argv[1:]:
    if w in names:
        print(w)
    elif w in suites:
        print(*[n for n, own in tests if w in own and (w == "slow" or "slow" not in own)], sep="\n")
    else:
        sys.exit(f"test.sh: no test or suite is called \"{w}\"; ./test.sh --list names them")
' "$@"
}

run_some() {
    install_deps "${deps_build[@]}" python3 xz-utils
    # Configures again when a meson.build has changed, so that new tests have names.
    { build_gcc && ninja -C build/gcc build.ninja; } > build/log/configure 2>&1 || { cat build/log/configure; exit 1; }
    if [ "$1" = --list ]; then
        names_of
        exit
    fi
    local tests
    tests=$(names_of "$@") || exit 64
    case $tests in *golden/* | *threads/*) unpack_golden > build/log/golden.log 2>&1 ;; esac
    case $tests in
        *peer-jinja* | *e2e/clients* | *e2e/frameworks* | *e2e/tool-loops* | *e2e/page-browser*) install_npm ;;
    esac
    # shellcheck disable=SC2086
    run_tests gcc --timeout-multiplier 4 $tests
    local status=$?
    echo "$(count pass "$results") passed, $(count fail "$results") failed, $(count skip "$results") skipped"
    exit $status
}

[ ${#wanted[@]} -eq 0 ] || run_some "${wanted[@]}"

# ---- the stages ----

# All C files are as clang-format writes them. Its versions differ: only the one that Debian 12 has is asked.
check_format() {
    find include src tests tools -name '*.[ch]' -print0 |
        xargs -0 -n 32 -P "$(nproc)" clang-format --dry-run -Werror
}

# Every shell script can be read, and no merge was left half done.
check_scripts() {
    local f bad=0
    for f in demo.sh test.sh .ci/run tools/* bench/* tests/* tests/npm/* tests/golden/*; do
        if [ -f "$f" ] && head -n 1 "$f" | grep -q '^#!.*sh$'; then bash -n "$f" || bad=1; fi
    done
    bash -n tools/install-deps || bad=1
    ! grep -rnE '^(<<<<<<<|>>>>>>>) ' --exclude-dir=build --exclude-dir=.git --exclude-dir=corpus . && [ $bad = 0 ]
}

stage_rules() {
    local version
    version=$(clang-format --version 2> /dev/null | grep -oE '[0-9]+' | head -n 1)
    if [ "$version" = 14 ]; then
        check format check_format
    else
        result "$([ "${CI:-}" ] && echo fail || echo skip)" "format (clang-format is ${version:-missing}, not 14)"
    fi
    check check-layers tools/check-layers
    check mutations tools/mutate --list
    check scripts check_scripts
}

# The limits on a test's time are there for one that hangs; a busy machine takes several times what is usual.
stage_gcc() {
    unpack_golden
    local without=(--no-suite package)
    [ "$full" ] || without+=(--no-suite slow)
    [ "$release" ] || without+=(--no-suite long)
    build_gcc && compile build/gcc && run_tests gcc "${without[@]}" --timeout-multiplier 4
}

stage_symbols() {
    check check-symbols tools/check-symbols build/gcc
    check check-size tools/check-size build/gcc
}

# Packages what stage gcc has compiled. Its test runs ninja, so that nothing else may use that directory.
stage_package() { run_tests gcc --suite package --timeout-multiplier 4; }

# The sanitizers' builds run everything as clang has compiled it, but not as it optimises: here are the tests whose bits
# the compiler's code decides.
stage_clang() {
    build clang clang --buildtype=release --werror &&
        run_tests clang --timeout-multiplier 4 kernel/bits kernel/emulation golden/logits golden/equal-float golden/equal-k \
            golden/equal-qwen35 golden/equal-gpt-oss golden/equal-latent unit/math unit/filter unit/sampler unit/draft_control \
            unit/wedlm unit/scheduler unit/session fault/alloc
}

# A sanitizer's messages need nothing of the debug information but line numbers; the rest takes a tenth of the
# compiler's time. Compiles everything with clang, so that its warnings are seen here.
stage_asan() {
    local jobs=$jobs_sanitized
    build asan clang --buildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
        -Dkernel_sanitize=false -Dc_args=-gline-tables-only --werror &&
        compile build/asan && run_tests asan --no-suite long --timeout-multiplier 10
}

# Kernels are instrumented here: two threads that write the same row are seen in a kernel only.
stage_tsan() {
    # ThreadSanitizer's fixed address layout does not survive every kernel's randomisation.
    local wrapper= jobs=$jobs_sanitized
    setarch -R true 2> /dev/null && wrapper="setarch -R"
    build tsan clang --buildtype=debugoptimized -Doptimization=1 -Db_sanitize=thread -Db_lundef=false \
        -Dc_args=-gline-tables-only &&
        run_tests tsan --suite threads --timeout-multiplier 10
}

# fuzz NAME: runs one fuzzer, with its status in build/fuzz/NAME.status.
fuzz() {
    mkdir -p "build/fuzz/found/$1" # new inputs go here, so that the committed corpus stays as it is
    "build/fuzz/tests/fuzz/fuzz_$1" -max_total_time="${FUZZ_SECONDS:-8}" -timeout=30 -rss_limit_mb=2048 \
        -verbosity=0 -print_final_stats=1 -artifact_prefix="build/fuzz/crash-$1-" \
        "build/fuzz/found/$1" "tests/fuzz/corpus/$1" > "build/fuzz/$1.log" 2>&1
    echo $? > "build/fuzz/$1.status"
}

stage_fuzz() {
    build fuzz clang --buildtype=debugoptimized -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args='-fsanitize=fuzzer-no-link -gline-tables-only' || return
    compile build/fuzz fuzzers || return
    local names name
    names=$(find build/fuzz/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable -printf '%f\n' | sort)
    names=${names//fuzz_/}
    export -f fuzz
    for name in $names; do echo "$name"; done | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz {}'
    for name in $names; do judge "fuzz $name" "$(cat "build/fuzz/$name.status")" "build/fuzz/$name.log"; done
}

stage_strange() {
    tests/strange "$PWD/build/strange"
    count_tests strange
}

deps=("${deps_build[@]}" xz-utils python3 git rsync systemd man-db zsh fish)
[ -z "$full" ] || deps+=(ccache clang libclang-rt-14-dev "${deps_package[@]}")
install_deps "${deps[@]}"
# Each in a shell of its own: without them the tests that need them say so.
(install_deps "${deps_peers[@]}")
[ -z "$full" ] || (install_deps "${deps_slow_peers[@]}")
(install_deps clang-format)
install_npm

stage rules 8 "formatting, layers, licences, scripts, mutations"
stage gcc $([ "$full" ] && echo 600 || echo 460) "gcc release, tests"
stage symbols 3 "symbols and size"
if [ "$full" ]; then
    stage package 100 "packages"
    stage clang 160 "clang release, what the compiler decides"
    stage asan 1000 "address and undefined-behaviour sanitizers, all suites"
    stage tsan 300 "thread sanitizer"
    stage fuzz 200 "fuzzers"
    stage strange 300 "strange surroundings"
fi

n_skipped=$(count skip "$results")
if [ "$n_skipped" -gt 0 ]; then
    echo "$n_skipped skipped:"
    sed -n 's/^skip /    /p' "$results"
fi
n_failed=$(count fail "$results")
if [ "$n_failed" -gt 0 ]; then
    echo "$n_failed failed:"
    tail -n 200 "$why" | sed 's/^/    | /'
    sed -n 's/^fail /    FAILED /p' "$results"
fi
echo "all stages and what they need: $(over $SECONDS "$budgets")"
echo "$(count pass "$results") passed, $n_failed failed"
[ "$n_failed" -eq 0 ]
