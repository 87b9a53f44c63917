/* SPDX-License-Identifier: MIT
 *
 * test_os.c: mappings of good and bad files, writing a file whole or not at all, and the limits of made-up trees of
 * control groups. Works in a temporary directory that it removes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "base/out_file.h"

static char tmp[64];

/* The path of name in the temporary directory; one at a time. */
static const char *at(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", tmp, name);
    return path;
}

/* Writes text to tmp/name, making the directories on the way. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s", at(name));
    for (char *p = path + strlen(tmp) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        mkdir(path, 0777);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(tmp, sizeof tmp, "/tmp/quern-test-os-XXXXXX");
    return mkdtemp(tmp) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", tmp);
    return system(cmd);
}

static void maps_a_file(void **state)
{
    (void)state;
    struct mapping m;
    struct qn_error e;
    put("file", "hello");
    assert_int_equal(map_open(&m, at("file"), &e), 0);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    map_close(&m);
    assert_null(m.data);
    map_close(&m);

    put("empty", "");
    assert_int_equal(map_open(&m, at("empty"), &e), 0);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    map_close(&m);
}

static void knows_what_is_in_memory(void **state)
{
    (void)state;
    struct mapping m;
    const size_t size = (size_t)256 << 20, part = ((size_t)4 << 20) - 100; /* more than the system reads ahead */
    put("hole", "");
    assert_int_equal(truncate(at("hole"), (off_t)size), 0);
    assert_int_equal(map_open(&m, at("hole"), NULL), 0);
    assert_false(map_is_in_memory(m.data + 50, part));
    if (map_populate(m.data + 50, part) == 0) assert_true(map_is_in_memory(m.data + 50, part));
    assert_false(map_is_in_memory(m.data + 50, size - 50));
    map_close(&m);
}

/* The limit is lowered for good, so this is the last to need it. */
static void locks_pages_as_far_as_the_limit_goes(void **state)
{
    (void)state;
    struct mapping m;
    struct rlimit none = {0, 0};
    char page[20000];
    memset(page, 'x', sizeof page);
    page[sizeof page - 1] = 0;
    put("long", page);
    assert_int_equal(map_open(&m, at("long"), NULL), 0);
    if (os_lock_limit() >= sizeof page) assert_int_equal(map_lock(&m, 5000, 10000), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    assert_int_equal(os_lock_limit(), 0);
    int error = map_lock(&m, 100, 9000);
    assert_true(error == 0 /* we may lock anything */ || error == EPERM || error == ENOMEM);
    assert_int_equal(m.data[9000], 'x');
    map_close(&m);
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    struct mapping m = {.size = 77};
    struct qn_error e;
    assert_int_equal(map_open(&m, at("missing"), &e), QN_ENOINPUT);
    assert_non_null(strstr(e.msg, "missing"));
    assert_int_equal(map_open(&m, tmp, &e), QN_ENOINPUT);
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_int_equal(map_open(&m, "/dev/null", &e), QN_ENOINPUT);
    char longest[600], name[512]; /* the reason survives a name that does not fit the message */
    memset(name, 'n', sizeof name);
    snprintf(longest, sizeof longest, "%s/%.200s/%.200s/%.100s", tmp, name, name, name);
    assert_int_equal(map_open(&m, longest, &e), QN_ENOINPUT);
    assert_non_null(strstr(e.msg, "No such file or directory"));
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(map_open(&m, at("fifo"), &e), QN_ENOINPUT); /* and does not wait for a writer */
    assert_int_equal(m.size, 77);
}

static int n_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2; /* . and .. */
}

/* One write through out_file, as a command does it. */
static int write_file(const char *path, const void *p, size_t n, struct qn_error *e)
{
    struct out_file f = {0};
    int rc = out_file_open(&f, path, e);
    if (!rc) rc = out_file_write(&f, p, n, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

static void reads_an_empty_file_as_an_empty_string(void **state)
{
    (void)state;
    struct buf text = {0};
    put("empty", "");
    assert_int_equal(os_read_file(&text, at("empty"), 8, NULL), 0);
    assert_int_equal(text.len, 0);
    assert_non_null(text.data);
    assert_int_equal(text.data[0], 0);
    buf_deinit(&text);
}

static void writes_whole_files(void **state)
{
    (void)state;
    struct mapping m;
    struct qn_error e;
    struct stat st;
    char path[256];
    mkdir(at("out"), 0777);
    snprintf(path, sizeof path, "%s", at("out/file"));
    assert_int_equal(write_file(path, "one", 3, &e), 0);
    assert_int_equal(write_file(path, "three", 5, &e), 0);
    assert_int_equal(map_open(&m, path, &e), 0);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "three", 5);
    map_close(&m);
    assert_int_equal(stat(path, &st), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
    assert_int_equal(write_file(path, NULL, 0, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(n_entries(at("out")), 1); /* nothing temporary stays */

    assert_int_equal(chdir(at("out")), 0);
    assert_int_equal(write_file("here", "x", 1, &e), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(access(at("out/here"), R_OK), 0);
}

static void failed_write_leaves_nothing(void **state)
{
    (void)state;
    struct qn_error e;
    char path[256], long_path[5000];
    assert_int_equal(write_file(at("nowhere/file"), "x", 1, &e), QN_EIO);
    assert_non_null(strstr(e.msg, "nowhere/file"));

    mkdir(at("d"), 0777);
    snprintf(path, sizeof path, "%s", at("d/target"));
    mkdir(path, 0777); /* a directory cannot be replaced by a file */
    assert_int_equal(write_file(path, "x", 1, &e), QN_EIO);
    assert_int_equal(n_entries(at("d")), 1);

    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(write_file(long_path, "x", 1, &e), QN_EIO);
}

/* ---- the machine ---- */

static void machine(void **state)
{
    (void)state;
    uint64_t t = clock_ns();
    usleep(1000);
    assert_true(clock_ns() - t >= 1000000);
    assert_in_range(os_n_cpus(), 1, sysconf(_SC_NPROCESSORS_CONF));
    size_t page = os_page_bytes();
    assert_true(page >= 4096 && (page & (page - 1)) == 0);
    assert_in_range(os_memory_bytes(), 1 << 20, (size_t)sysconf(_SC_PHYS_PAGES) * page);
    assert_in_range(os_resident_bytes(), 100 << 10, (size_t)sysconf(_SC_PHYS_PAGES) * page);
}

static void expect_limits(const char *name, int n_cpus, size_t memory)
{
    struct os_limits l;
    os_cgroup_limits(at(name), &l);
    assert_int_equal(l.n_cpus, n_cpus);
    assert_int_equal(l.memory_bytes, memory);
}

static void no_groups(void **state)
{
    (void)state;
    expect_limits("nothing", INT_MAX, SIZE_MAX);
    put("odd/proc/self/cgroup", "no colons\n1:one\n\n");
    expect_limits("odd", INT_MAX, SIZE_MAX);
}

static void v2_takes_the_smallest_on_the_way_up(void **state)
{
    (void)state;
    put("v2/proc/self/cgroup", "0::/user/app\n");
    put("v2/sys/fs/cgroup/user/app/memory.max", "max\n");
    put("v2/sys/fs/cgroup/user/app/cpu.max", "max 100000\n");
    expect_limits("v2", INT_MAX, SIZE_MAX);
    put("v2/sys/fs/cgroup/user/app/memory.max", "3000\n");
    put("v2/sys/fs/cgroup/user/memory.max", "2000\n");
    put("v2/sys/fs/cgroup/user/app/cpu.max", "150000 100000\n"); /* 1.5 CPUs */
    put("v2/sys/fs/cgroup/user/cpu.max", "400000 100000\n");
    expect_limits("v2", 2, 2000);
    put("v2/sys/fs/cgroup/user/app/memory.high", "1500\n");
    put("v2/sys/fs/cgroup/cpu.max", "1000 100000\n"); /* a hundredth */
    expect_limits("v2", 1, 1500);
    put("v2/sys/fs/cgroup/other/memory.max", "1\n"); /* a group that is not above this one */
    expect_limits("v2", 1, 1500);
}

static void v2_in_a_container_is_the_root(void **state)
{
    (void)state;
    put("box/proc/self/cgroup", "0::/../../not/below/the/mount\n");
    put("box/sys/fs/cgroup/memory.max", "1000\n");
    put("box/sys/fs/cgroup/cpu.max", "200000 100000\n");
    expect_limits("box", 2, 1000);
    put("box/proc/self/cgroup", "0::/\n");
    expect_limits("box", 2, 1000);
}

static void v1_is_a_directory_for_each_controller(void **state)
{
    (void)state;
    put("v1/proc/self/cgroup", "5:memory:/a/b\n4:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/\n");
    put("v1/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put("v1/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
    put("v1/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n");
    put("v1/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
    expect_limits("v1", INT_MAX, 5000);
    put("v1/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "250000\n");
    expect_limits("v1", 3, 5000);
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    if (!map_replace_lost(info->si_addr)) _exit(99);
}

/* A file that is cut short while it is mapped: zeros from the first page that is not there, what was before stays. */
static void a_lost_page_becomes_zeros(void **state)
{
    (void)state;
    struct sigaction was, a = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    struct mapping m, other;
    char bytes[20000];
    unsigned n = map_n_lost();
    memset(bytes, 'x', sizeof bytes);
    bytes[sizeof bytes - 1] = 0;
    put("cut", bytes);
    put("other", bytes);
    assert_int_equal(map_open(&m, at("cut"), NULL), 0);
    assert_int_equal(map_open(&other, at("other"), NULL), 0);
    assert_int_equal(sigaction(SIGBUS, &a, &was), 0);
    assert_int_equal(truncate(at("cut"), 5000), 0);
    const volatile uint8_t *p = m.data;
    assert_true(p[4999] == 'x' && !map_is_lost(&m));
    assert_true(p[19998] == 0); /* not the first one that has gone */
    assert_true(map_is_lost(&m) && !map_is_lost(&other) && map_n_lost() == n + 1);
    assert_true(p[8192] == 0 && p[16000] == 0 && p[4999] == 'x');
    assert_true(other.data[19998] == 'x');
    assert_false(map_replace_lost(bytes)); /* nobody's */
    assert_int_equal(sigaction(SIGBUS, &was, NULL), 0);
    map_close(&m);
    map_close(&other);
    assert_int_equal(map_open(&m, at("other"), NULL), 0);
    assert_false(map_is_lost(&m));
    map_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_a_file),
        cmocka_unit_test(knows_what_is_in_memory),
        cmocka_unit_test(locks_pages_as_far_as_the_limit_goes),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(reads_an_empty_file_as_an_empty_string),
        cmocka_unit_test(writes_whole_files),
        cmocka_unit_test(failed_write_leaves_nothing),
        cmocka_unit_test(a_lost_page_becomes_zeros),
        cmocka_unit_test(machine),
        cmocka_unit_test(no_groups),
        cmocka_unit_test(v2_takes_the_smallest_on_the_way_up),
        cmocka_unit_test(v2_in_a_container_is_the_root),
        cmocka_unit_test(v1_is_a_directory_for_each_controller),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
