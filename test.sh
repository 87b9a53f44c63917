#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# test.sh: builds and tests everything.
#
#     ./test.sh            all stages
#     ./test.sh --quick    the first three: the rules of the tree, gcc release with all tests, the symbols
#
# Each stage has a build directory build/NAME and a log build/log/NAME.log, and reports one line. What failed is said
# once more at the end, with what it said itself. The last line is `N passed, N failed`, counted over test cases
# (tools/count-tests) and other checks; a test that is skipped is reported but counts as neither. Status 1 if anything
# failed.
#
# Reference data comes from $QUERN_SHARED (default ../shared). When it is not there the tests that need it are
# skipped, unless CI is set: then that is a failure. The same holds for other people's programs, which some tests run
# Quern beside: deps_peers in tools/install-deps, and what tests/npm/install gets, once, into build/npm. FUZZ_SECONDS
# (default 12) is the time for each fuzzer.
set -uo pipefail
cd "$(dirname "$0")" || exit
. tools/install-deps

case ${1:-} in
"") quick= ;;
--quick) quick=1 ;;
*) sed -n 's/^#  \{4,\}/usage: /p' "$0" >&2; exit 64 ;;
esac

deps=("${deps_build[@]}" xz-utils python3 git rsync systemd man-db zsh fish)
[ "$quick" ] || deps+=(clang libclang-rt-14-dev "${deps_package[@]}")
install_deps "${deps[@]}"
(install_deps "${deps_peers[@]}") # in a shell of its own: without them the tests that need them say so
QUERN_NPM=
tests/npm/install build/npm && QUERN_NPM=$PWD/build/npm
export QUERN_NPM

export QUERN_SHARED=${QUERN_SHARED:-../shared}
[ -d "$QUERN_SHARED" ] && QUERN_SHARED=$(cd "$QUERN_SHARED" && pwd)
export ASAN_OPTIONS=halt_on_error=1:abort_on_error=1:detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1
unset QUERN_GOLDEN

mkdir -p build/log
results=build/log/results # one line per case: pass, fail or skip, and a name
why=$PWD/build/log/why    # what those that failed said
: > "$results"
: > "$why"
n_stages=$([ "$quick" ] && echo 3 || echo 8)
stage_no=0

result() { echo "$*" >> "$results"; }
count() { grep -c "^$1 " "$2" || true; }

# stage NAME TITLE: runs stage_NAME with its output in a log, and sums up what it added to the results.
stage() {
    local log=build/log/$1.log t0=$SECONDS before new=build/log/$1.results
    before=$(wc -l < "$results")
    stage_no=$((stage_no + 1))
    "stage_$1" > "$log" 2>&1 < /dev/null
    tail -n +$((before + 1)) "$results" > "$new"
    echo "[$stage_no/$n_stages] $2: $(count pass "$new") passed, $(count fail "$new") failed," \
        "$(count skip "$new") skipped ($((SECONDS - t0)) s)"
    if grep -q '^fail ' "$new"; then
        sed -n 's/^fail /    FAILED /p' "$new"
        echo "    the end of $log:"
        tail -n 30 "$log" | sed 's/^/    | /'
    fi
}

# check NAME COMMAND...: a check that is one case.
check() {
    local name=$1
    shift
    if "$@" > build/log/check 2>&1; then
        result pass "$name"
    else
        result fail "$name"
        explain "$name" build/log/check
    fi
    cat build/log/check
}

# explain NAME LOG: keeps the end of a log for the end of the run.
explain() { { echo "$1:"; tail -n 20 "$2" | cut -c 1-400 | sed 's/^/    /'; } >> "$why"; }

# build DIR COMPILER MESON_OPTION...: configures build/DIR; a failure counts as one case, success as none.
build() {
    local dir=build/$1 cc=$2
    shift 2
    if [ ! -f "$dir/build.ninja" ] && ! CC=$cc meson setup "$dir" "$@"; then
        result fail "$dir: configuring"
        explain "$dir: configuring" "$dir/meson-logs/meson-log.txt"
        rm -rf "$dir"
        return 1
    fi
}

# compile DIR TARGET...: its failure counts as one case; what the compiler said is the end of what ninja writes.
compile() {
    ninja -C "$@" > build/log/compile 2>&1
    local status=$?
    cat build/log/compile
    [ $status -eq 0 ] && return
    result fail "build/$(basename "$1"): building"
    explain "build/$(basename "$1"): building" build/log/compile
    return 1
}

# run_tests DIR MESON_TEST_OPTION...: runs tests of build/DIR and counts their cases.
run_tests() {
    local dir=build/$1 log=build/$1/meson-logs/testlog.json
    shift
    rm -f "$log"
    ${wrapper:-} meson test -C "$dir" --print-errorlogs "$@"
    if [ -s "$log" ]; then
        tools/count-tests "$log" "$why" | sed "s|^\([a-z]*\) |&$(basename "$dir") |" >> "$results"
    else
        result fail "$dir: no test ran"
        explain "$dir: no test ran" "build/log/$(basename "$dir").log"
    fi
}

# Every shell script can be read, and no merge was left half done.
check_scripts() {
    local f bad=0
    for f in demo.sh test.sh .ci/run tools/* bench/* tests/npm/* tests/golden/*; do
        if [ -f "$f" ] && head -n 1 "$f" | grep -q '^#!.*sh$'; then bash -n "$f" || bad=1; fi
    done
    bash -n tools/install-deps || bad=1
    ! grep -rnE '^(<<<<<<<|>>>>>>>) ' --exclude-dir=build --exclude-dir=.git --exclude-dir=corpus . && [ $bad = 0 ]
}

stage_layers() {
    check check-layers tools/check-layers
    check scripts check_scripts
}

# The limits on a test's time are there for one that hangs; a busy machine takes several times what is usual.
stage_gcc() {
    if tests/golden/unpack build/golden; then
        QUERN_GOLDEN=$PWD/build/golden
        export QUERN_GOLDEN
    elif [ -d "$QUERN_SHARED/golden" ] || [ -n "${CI:-}" ]; then
        result fail "reference data in $QUERN_SHARED/golden"
    fi
    build gcc gcc --buildtype=release --prefix=/usr --werror && compile build/gcc &&
        run_tests gcc --no-suite package --timeout-multiplier 4
}

stage_symbols() {
    check check-symbols tools/check-symbols build/gcc
    check check-size tools/check-size build/gcc
}

# Packages what stage gcc has compiled. Its test runs ninja, so that nothing else may use that directory.
stage_package() { run_tests gcc --suite package --timeout-multiplier 4; }

stage_clang() {
    build clang clang --buildtype=release --werror && compile build/clang &&
        run_tests clang --suite unit --suite kernel --timeout-multiplier 4
}

stage_asan() {
    build asan clang --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false &&
        compile build/asan && run_tests asan --timeout-multiplier 10
}

stage_tsan() {
    # ThreadSanitizer's fixed address layout does not survive every kernel's randomisation.
    local wrapper=
    setarch -R true 2> /dev/null && wrapper="setarch -R"
    build tsan clang --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false &&
        run_tests tsan --suite threads --timeout-multiplier 10
}

stage_fuzz() {
    build fuzz clang --buildtype=debugoptimized -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args=-fsanitize=fuzzer-no-link || return
    compile build/fuzz fuzzers || return
    local program name
    for program in build/fuzz/tests/fuzz/fuzz_*; do
        if [ ! -f "$program" ] || [ ! -x "$program" ]; then
            continue # a directory with its objects
        fi
        name=${program##*/fuzz_}
        mkdir -p "build/fuzz/found/$name" # new inputs go here, so that the committed corpus stays as it is
        check "fuzz $name" "$program" -max_total_time="${FUZZ_SECONDS:-12}" -timeout=30 -rss_limit_mb=2048 \
            -verbosity=0 -print_final_stats=1 -artifact_prefix="build/fuzz/crash-$name-" \
            "build/fuzz/found/$name" "tests/fuzz/corpus/$name"
    done
}

stage layers "layers and licences"
stage gcc "gcc release, all tests"
stage symbols "symbols and size"
if [ ! "$quick" ]; then
    stage package "packages"
    stage clang "clang release, unit and kernel tests"
    stage asan "address and undefined-behaviour sanitizers, all tests"
    stage tsan "thread sanitizer"
    stage fuzz "fuzzers"
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
echo "$(count pass "$results") passed, $n_failed failed"
[ "$n_failed" -eq 0 ]
