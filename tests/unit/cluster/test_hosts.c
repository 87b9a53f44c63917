/* SPDX-License-Identifier: MIT
 *
 * test_hosts.c: lists of hosts, their network, the commands that start stages, and signs of life.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/beat.h"
#include "cluster/start/hosts.h"
#include "cluster/start/launch.h"
#include "cluster/link_socket.h"
#include "cluster/placement.h"
#include "cluster/start/network.h"
#include "engine/core/stage.h"

#define MS 1000000u

/* ---- lists ---- */

static void a_list_has_names_counts_and_paths(void **state)
{
    (void)state;
    struct hosts h;
    assert_int_equal(hosts_read(&h, "localhost:2,10.0.0.7=/models/a=b.gguf,b.example.org:3=/m", NULL, NULL), 0);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.n_stages, 6);
    assert_true(h.host[0].is_here && !h.host[1].is_here && !h.are_here);
    assert_int_equal(h.host[2].n, 3);
    assert_string_equal(h.host[1].path, "/models/a=b.gguf");
    assert_string_equal(h.host[0].path, "");
    hosts_deinit(&h);
    assert_int_equal(hosts_read(&h, "127.0.0.1,localhost", NULL, NULL), 0);
    assert_true(h.are_here);
    hosts_deinit(&h);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"", "no name"},        {"a,", "no name"},          {"-x", "no name"},       {"a b", "no name"},
        {"a;b", "no name"},     {"a:0", "not 1 to 64"},     {"a:65", "not 1 to 64"}, {"a:x", "not 1 to 64"},
        {"a=rel", "not begin"}, {"a:40,b:40", "80 stages"}, {"a:", "not 1 to 64"}};
    struct hosts h;
    struct qn_error e;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(hosts_read(&h, wrong[i][0], NULL, &e), QN_EUSAGE);
        assert_non_null(strstr(e.msg, wrong[i][1]));
    }
    assert_int_equal(hosts_read(&h, NULL, "/nowhere/hosts", &e), QN_ENOINPUT);
}

static void write_file(char *name, const char *text)
{
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void a_file_has_the_lines_that_others_write(void **state)
{
    (void)state;
    char good[] = "/tmp/quern-hosts-XXXXXX", bad[] = "/tmp/quern-hosts-XXXXXX";
    struct hosts h;
    struct qn_error e;
    write_file(good,
               "# two laptops\nlocalhost slots=1\n\nb.local slots=2 path=/m/x.gguf max_slots=4 # the fast one\nc:2");
    write_file(bad, "a\nb cores=4\n");
    assert_int_equal(hosts_read(&h, NULL, good, &e), 0);
    assert_int_equal(h.n_stages, 5);
    assert_string_equal(h.host[1].path, "/m/x.gguf");
    hosts_deinit(&h);
    assert_int_equal(hosts_read(&h, NULL, bad, &e), QN_EUSAGE);
    assert_non_null(strstr(e.msg, "line 2: 'cores=4'"));
    unlink(good);
    unlink(bad);
}

/* ---- networks ---- */

static void only_addresses_of_ones_own_are_private(void **state)
{
    (void)state;
    static const uint32_t own[] = {0x0a000001, 0xac10ffff, 0xac1fffff, 0xc0a80101, 0xa9fe0001, 0x64400001, 0x7f000001};
    static const uint32_t others[] = {0x0b000000, 0xac200000, 0xc0a90000, 0x08080808, 0x64800000, 0xc0000201};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) assert_true(network_is_private(own[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) assert_false(network_is_private(others[i]));
}

static void an_interface_and_its_ports_are_checked(void **state)
{
    (void)state;
    struct network n;
    struct qn_error e;
    assert_int_equal(network_find(&n, "lo", NULL, false, &e), 0);
    assert_string_equal(n.subnet, "127.0.0.0/8");
    assert_int_equal(n.port, 47600);
    assert_int_equal(n.n_ports, 100);
    assert_int_equal(network_find(&n, "nope0", NULL, false, &e), QN_EUSAGE);
    static const char *const wrong[] = {"", "1-2", "50000", "50000-50010", "60000-70000", "50000-50100x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(network_find(&n, "lo", wrong[i], false, &e), QN_EUSAGE);
}

/* ---- commands ---- */

static void join_words(const struct words *w, char *out, size_t size)
{
    out[0] = '\0';
    for (int i = 0; i < w->n; i++) snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? " " : "", w->v[i]);
}

static void a_door_is_put_before_a_first_stage_elsewhere(void **state)
{
    (void)state;
    char text[4096];
    struct hosts h;
    struct words w = {0};
    struct network n = {.name = "wg0", .subnet = "10.1.0.0/24", .port = 5000, .n_ports = 40};
    struct launch_params l = {.program = "/bin/stage",
                              .path = "/m",
                              .address = "/s",
                              .hosts = &h,
                              .network = &n,
                              .agent = "ssh -q",
                              .locks_weights = true};
    assert_int_equal(hosts_read(&h, "b:2=/n,localhost", NULL, NULL), 0);
    assert_int_equal(launch_all(&w, &l, NULL), 0);
    join_words(&w, text, sizeof text);
    assert_non_null(strstr(text, " --host localhost:1 -n 1 /bin/stage rank /m /s 0 dl- best - : --host b:2 -n 2 "
                                 "/bin/stage rank /n /s 0 dl- best - : --host localhost:1 -n 1 "));
    assert_non_null(strstr(text, "btl_tcp_if_include 10.1.0.0/24"));
    assert_non_null(strstr(text, "oob_tcp_if_include 10.1.0.0/24"));
    assert_non_null(strstr(text, "btl_tcp_port_min_v4 5000 --mca btl_tcp_port_range_v4 20"));
    assert_non_null(strstr(text, "oob_tcp_dynamic_ipv4_ports 5020-5039"));
    char range[LAUNCH_RANGE], before[4096];
    int from, to;
    strcpy(before, text);
    char *argv[200];
    assert_true(w.n < 200);
    memcpy(argv, w.v, (size_t)(w.n + 1) * sizeof *argv);
    launch_pick_ports(argv, range);
    join_words(&(struct words){argv, w.n}, text, sizeof text);
    const char *mpirun = strstr(text, "oob_tcp_dynamic_ipv4_ports ");
    assert_true(sscanf(mpirun, "oob_tcp_dynamic_ipv4_ports %d-%d", &from, &to) == 2);
    assert_true(from >= 5020 && (from - 5020) % 3 == 0 && to == from + 2 && to < 5040);
    assert_int_equal(strncmp(text, before, (size_t)(mpirun - text)), 0);
    words_deinit(&w);
    assert_int_equal(launch_alone(&w, &l, NULL), 0);
    join_words(&w, text, sizeof text);
    assert_string_equal(text, "/bin/stage alone /m /s 0 l- best -");
    words_deinit(&w);
    hosts_deinit(&h);
}

/* Ports at which a group that ends still listens are not given to the next one. */
static void ports_are_some_that_nobody_uses(void **state)
{
    (void)state;
    const int first = 21715, last = 21731; /* below those of connections; three places */
    int fd[3];
    bool is_taken[3] = {false};
    for (int i = 0; i < 3; i++) {
        int port = network_free_ports(first, last, 5), place = (port - first) / 5;
        assert_true(port >= first && port % 5 == 0 && place < 3 && !is_taken[place]);
        is_taken[place] = true;
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(port + 3))};
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd[i], (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(listen(fd[i], 1), 0);
    }
    assert_true(network_free_ports(first, last, 5) >= first); /* none is left, so any of them */
    for (int i = 0; i < 3; i++) close(fd[i]);
}

static void a_command_that_was_given_starts_all_ranks(void **state)
{
    (void)state;
    char text[1024];
    struct hosts h;
    struct words w = {0};
    struct qn_error e;
    struct launch_params l = {.program = "stage",
                              .path = "/m",
                              .address = "/s",
                              .hosts = &h,
                              .n_threads = 4,
                              .cpu = "avx2",
                              .cache_dir = "/cache",
                              .command = " srun  --mpi=pmix ",
                              .is_open = true};
    assert_int_equal(hosts_read(&h, "localhost,b,c", NULL, NULL), 0);
    assert_int_equal(launch_all(&w, &l, NULL), 0);
    join_words(&w, text, sizeof text);
    assert_string_equal(text, "srun --mpi=pmix -n 3 stage rank /m /s 4 o- avx2 /cache");
    words_deinit(&w);
    hosts_deinit(&h);
    static const char *const wrong[] = {"b,localhost", "localhost,b=/other"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(hosts_read(&h, wrong[i], NULL, NULL), 0);
        assert_int_equal(launch_all(&w, &l, &e), QN_EUSAGE);
        words_deinit(&w);
        hosts_deinit(&h);
    }
}

/* ---- layers ---- */

static void check_cut(int n, int n_layer, const struct placement_host *h, double head, const char *wanted)
{
    int32_t cuts[STAGE_MOST + 1];
    char text[200] = "";
    bool fits = placement_cut(cuts, n, n_layer, h, head);
    for (int i = 0; i <= n; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", cuts[i]);
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s", fits ? "fits" : "full");
    assert_string_equal(text, wanted);
}

static void layers_go_where_they_are_done_soonest(void **state)
{
    (void)state;
    const struct placement_host even[] = {{1, 99, 0, 0}, {1.2, 99, 0, 0}, {1.1, 99, 0, 0}},
                                fast[] = {{1, 99, 0, 0}, {3, 99, 0, 0}};
    const struct placement_host small[] = {{1, 5, 0, 0}, {3, 99, 0, 0}}, unknown[] = {{0, 99, 0, 0}, {3, 99, 0, 0}};
    const struct placement_host full[] = {{1, 10, 0, 0}, {1, 5, 0, 0}};
    check_cut(3, 30, even, 0, "0 10 20 30 fits");
    check_cut(3, 30, even, 3, "0 11 22 30 fits"); /* the last one has the head, too */
    check_cut(2, 32, fast, 0, "0 24 32 fits");
    check_cut(2, 32, small, 0, "0 5 32 fits");
    check_cut(2, 32, unknown, 0, "0 16 32 fits");
    check_cut(2, 30, full, 0, "0 20 30 full");
    check_cut(3, 3, even, 9, "0 1 2 3 fits");
}

/* The first host is fast, but its file has less than it could take. */
static void layers_stay_within_the_files_of_their_hosts(void **state)
{
    (void)state;
    const struct placement_host apart[] = {{1, 99, 0, 10}, {1, 99, 10, 32}},
                                overlap[] = {{1, 99, 0, 20}, {3, 99, 10, 32}};
    const struct placement_host one[] = {{1, 99, 0, 0}, {1, 99, 20, 32}},
                                three[] = {{1, 99, 0, 4}, {1, 99, 2, 9}, {1, 99, 3, 9}};
    const struct placement_host gap[] = {{1, 99, 0, 10}, {1, 99, 11, 32}}, late[] = {{1, 99, 1, 32}, {1, 99, 0, 0}};
    const struct placement_host early[] = {{1, 99, 0, 0}, {1, 99, 0, 31}}, full[] = {{1, 99, 0, 10}, {1, 5, 10, 32}};
    const struct placement_host turned[] = {{1, 99, 16, 32}, {1, 99, 0, 16}},
                                tight[] = {{1, 99, 0, 1}, {1, 99, 0, 1}, {1, 99, 0, 3}};
    const int32_t half[] = {0, 16, 32}, ten[] = {0, 10, 32};
    assert_int_equal(placement_bad_cut(2, 32, apart), -1);
    assert_int_equal(placement_bad_cut(3, 9, three), -1);
    assert_int_equal(placement_bad_cut(2, 32, gap), 1);
    assert_int_equal(placement_bad_cut(2, 32, late), 0);
    assert_int_equal(placement_bad_cut(2, 32, early), 2);
    assert_int_equal(placement_bad_cut(2, 32, turned), 2);
    assert_int_equal(placement_bad_cut(3, 3, tight), 1); /* the second one has only what the first one needs */
    check_cut(2, 32, apart, 0, "0 10 32 fits");
    check_cut(2, 32, overlap, 0, "0 20 32 fits"); /* 24 would be best */
    check_cut(2, 32, one, 0, "0 20 32 fits");
    check_cut(3, 9, three, 0, "0 3 6 9 fits");
    check_cut(2, 32, full, 0, "0 10 32 full"); /* what fits the first one is not in its file */
    assert_false(placement_is_as_good(half, ten, 2, apart, 0));
    assert_true(placement_is_as_good(ten, ten, 2, apart, 0));
}

/* Where layers were is kept if it costs less than a quarter. */
static void cuts_that_are_about_as_good_may_stay(void **state)
{
    (void)state;
    const struct placement_host even[] = {{1, 99, 0, 0}, {1.2, 99, 0, 0}}, fast[] = {{1, 99, 0, 0}, {3, 99, 0, 0}},
                                small[] = {{1, 17, 0, 0}, {1, 99, 0, 0}};
    const int32_t half[] = {0, 16, 32}, more[] = {0, 18, 32}, most[] = {0, 24, 32}, fewer[] = {0, 14, 32};
    assert_true(placement_is_as_good(half, half, 2, even, 0));
    assert_true(placement_is_as_good(more, half, 2, even, 0)); /* 18 instead of 16 */
    assert_false(placement_is_as_good(most, half, 2, even, 0));
    assert_true(placement_is_as_good(fewer, half, 2, even, 2));  /* 20 instead of 18, with the head */
    assert_false(placement_is_as_good(half, most, 2, fast, 0));  /* 48 instead of 24 */
    assert_false(placement_is_as_good(more, half, 2, small, 0)); /* no room */
    assert_true(placement_is_as_good(more, more, 2, small, 0));  /* these have none either */
}

static bool is_for_one(int n, int n_layer, const struct placement_host *h, double head, int one)
{
    int32_t cuts[STAGE_MOST + 1];
    placement_cut(cuts, n, n_layer, h, head);
    return placement_is_for_one(cuts, n, h, head, one);
}

/* Two equal hosts are twice as fast for many answers. One that needs 40 times as long for a layer has one of them, and
 * still takes longer than the other one would for all. */
static void one_host_is_better_where_the_others_only_slow_it_down(void **state)
{
    (void)state;
    const struct placement_host even[] = {{1, 99, 0, 0}, {1, 99, 0, 0}}, slow[] = {{1, 99, 0, 0}, {40, 99, 0, 0}},
                                slower[] = {{1, 99, 0, 0}, {9, 99, 0, 0}};
    const struct placement_host full[] = {{1, 31, 0, 0}, {80, 99, 0, 0}}, unknown[] = {{0, 99, 0, 0}, {80, 99, 0, 0}};
    assert_false(is_for_one(2, 32, even, 4, 0));
    assert_false(is_for_one(2, 32, slower, 0, 0));
    assert_false(is_for_one(2, 32, slow, 0, 1)); /* the slow one */
    assert_true(is_for_one(2, 32, slow, 0, 0));
    assert_true(is_for_one(2, 32, slow, 4, 0));  /* the slow one has the head, too */
    assert_false(is_for_one(2, 33, slow, 0, 0)); /* by less than a quarter: that may be noise */
    assert_false(is_for_one(2, 32, full, 0, 0)); /* has no room for all */
    assert_false(is_for_one(2, 32, unknown, 0, 0));
    assert_false(is_for_one(1, 32, slow, 0, 0));
}

/* ---- signs of life ---- */

static void silence_is_measured_against_the_usual_gap(void **state)
{
    (void)state;
    struct pulse s = {0};
    uint64_t now = 5000 * (uint64_t)MS;
    assert_int_equal(pulse_missing(&s, now), 0); /* nothing was expected */
    for (int i = 0; i < 20; i++) pulse_heard(&s, now += 100 * MS, 0);
    for (int ms = 50; ms <= 1000; ms += 50) assert_int_equal(pulse_missing(&s, now + (uint64_t)ms * MS), 0);
    assert_int_equal(pulse_missing(&s, now + 1050 * (uint64_t)MS), 1050 * (uint64_t)MS);
    for (int i = 0; i < 20; i++) pulse_heard(&s, now += 400 * MS, 0); /* a slow one is given more */
    for (int ms = 50; ms <= 4000; ms += 50) assert_int_equal(pulse_missing(&s, now + (uint64_t)ms * MS), 0);
    assert_true(pulse_missing(&s, now + 4050 * (uint64_t)MS) > 0);
}

static void a_process_that_was_away_begins_anew(void **state)
{
    (void)state;
    struct pulse s = {0};
    uint64_t now = 5000 * (uint64_t)MS;
    pulse_heard(&s, now, 0);
    assert_int_equal(pulse_missing(&s, now + 9000 * (uint64_t)MS), 0);
    assert_int_equal(pulse_missing(&s, now + 9200 * (uint64_t)MS), 0);
    pulse_alive(&s, now + 9400 * (uint64_t)MS);
    for (int ms = 9500; ms <= 10400; ms += 100) assert_int_equal(pulse_missing(&s, now + (uint64_t)ms * MS), 0);
    assert_true(pulse_missing(&s, now + 10450 * (uint64_t)MS) > 0);
}

/* Longest silence that is no loss, when the last sign asked for so much. */
static uint64_t patience_with(uint64_t asked_ns)
{
    struct pulse s = {0};
    uint64_t now = 5000 * (uint64_t)MS, ms = 0;
    for (int i = 0; i < 20; i++) pulse_heard(&s, now += 100 * MS, i == 19 ? asked_ns : 0);
    while (!pulse_missing(&s, now + (ms + 100) * MS)) ms += 100;
    return ms;
}

static void a_sign_may_ask_for_more_time_but_not_for_ever(void **state)
{
    (void)state;
    assert_int_equal(patience_with(0), 1000);
    assert_int_equal(patience_with(500 * (uint64_t)MS), 1000);
    assert_int_equal(patience_with(7000 * (uint64_t)MS), 7000);
    assert_int_equal(patience_with(UINT64_MAX), 60000);
}

static uint64_t pass(struct pulse_own *o, uint64_t *now, int piece_ms)
{
    pulse_own_begin(o, *now);
    uint64_t need = pulse_own_need(o);
    for (int i = 0; i < 3; i++) pulse_own_look(o, *now += (uint64_t)piece_ms * MS);
    pulse_own_end(o, *now, true);
    return need / MS;
}

static void who_computes_asks_for_what_its_pieces_took(void **state)
{
    (void)state;
    struct pulse_own o = {0};
    uint64_t now = 5000 * (uint64_t)MS;
    pulse_own_look(&o, now);
    assert_int_equal(pulse_own_need(&o), 0);       /* there is no pass */
    assert_int_equal(pass(&o, &now, 2000), 60000); /* the first one may read from the disk */
    assert_int_equal(pulse_own_need(&o), 0);
    assert_int_equal(pass(&o, &now, 100), 7500);
    assert_int_equal(pass(&o, &now, 20000), 7031);
    assert_int_equal(pass(&o, &now, 100), 60000); /* no more than that */
    for (int i = 0; i < 80; i++) pass(&o, &now, 100);
    assert_int_equal(pass(&o, &now, 100), 0); /* no more than usual: the limit is a second */
    now += 11000 * (uint64_t)MS;
    assert_int_equal(pass(&o, &now, 100), 60000); /* after a rest, weights may be on the disk again */
    pulse_own_begin(&o, now += 11000 * (uint64_t)MS);
    pulse_own_end(&o, now, false); /* abandoned, so it tells nothing */
    assert_int_equal(pass(&o, &now, 100), 60000);
}

struct pair_of_beats {
    struct link *ends[4];
    struct beat first, second;
    uint64_t now;
};

static void beats_open(struct pair_of_beats *p)
{
    assert_int_equal(link_open_pair(&p->ends[0], &p->ends[1], NULL), 0);
    assert_int_equal(link_open_pair(&p->ends[2], &p->ends[3], NULL), 0);
    beat_init(&p->first, p->ends[0], p->ends[3], "rank 1");
    beat_init(&p->second, p->ends[2], p->ends[1], "rank 0");
    p->now = 7000 * (uint64_t)MS;
    for (int ms = 0; ms < 250; ms += 5, p->now += 5 * MS) {
        assert_int_equal(beat_tend(&p->first, p->now, 0, NULL), 0);
        assert_int_equal(beat_tend(&p->second, p->now, 0, NULL), 0);
    }
}

static void beats_close(struct pair_of_beats *p)
{
    beat_deinit(&p->first);
    beat_deinit(&p->second);
    for (int i = 0; i < 4; i++) link_close(p->ends[i]);
}

/* The second one is stopped. Returns for how many milliseconds the first one has not heard of it when it says so. */
static int silence_of(struct pair_of_beats *p, struct qn_error *e)
{
    uint64_t heard = p->first.pulse.heard_ns;
    while (!beat_tend(&p->first, p->now, 0, e)) p->now += 5 * MS;
    return (int)((p->now - heard) / MS);
}

static void a_rank_that_is_stopped_is_noticed_within_a_second(void **state)
{
    (void)state;
    struct pair_of_beats p;
    struct qn_error e;
    beats_open(&p);
    assert_int_equal(silence_of(&p, &e), 1005);
    assert_true(p.first.is_late);
    assert_string_equal(e.msg, "nothing came from rank 1 for 1005 ms");
    beats_close(&p);
}

/* It says so before it begins, although the last sign was sent just now. */
static void a_rank_that_reads_weights_from_disk_is_no_loss(void **state)
{
    (void)state;
    struct pair_of_beats p;
    struct pulse_own own = {0};
    beats_open(&p);
    pulse_own_begin(&own, p.now);
    assert_int_equal(beat_tend(&p.second, p.now, pulse_own_need(&own), NULL), 0);
    for (int ms = 0; ms < 30000; ms += 5, p.now += 5 * MS) assert_int_equal(beat_tend(&p.first, p.now, 0, NULL), 0);
    pulse_own_end(&own, p.now, true);
    assert_int_equal(beat_tend(&p.second, p.now, pulse_own_need(&own), NULL), 0);
    p.now += 5 * MS;
    assert_int_equal(beat_tend(&p.first, p.now, 0, NULL), 0);
    assert_in_range(silence_of(&p, NULL), 1000, 1010); /* it waits now, so it is expected at once */
    beats_close(&p);
    beats_open(&p);
    assert_int_equal(beat_tend(&p.second, p.now, PULSE_MOST_NS, NULL), 0);
    p.now += 5 * MS;
    assert_int_equal(beat_tend(&p.first, p.now, 0, NULL), 0);
    assert_in_range(silence_of(&p, NULL), 60000, 60010); /* one that stops in between is found later */
    beats_close(&p);
}

static void signs_do_not_disturb_the_packets_of_a_socket(void **state)
{
    (void)state;
    int fd[2];
    struct link *stage, *head;
    struct link_transfer t, r;
    uint8_t out[100], in[100];
    bool done = false;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(link_open_socket(&stage, fd[0], NULL), 0);
    assert_int_equal(link_open_socket(&head, fd[1], NULL), 0);
    for (int i = 0; i < 100; i++) out[i] = (uint8_t)(255 - i % 3);
    assert_int_equal(link_irecv(head, &r, in, sizeof in, NULL), 0);
    uint64_t now = 7000 * (uint64_t)MS;
    for (int i = 0; i < 3; i++)
        assert_int_equal(link_socket_beat(stage, now += 110 * MS, (uint64_t)i * 5000 * MS, NULL), 0);
    assert_int_equal(link_test(&r, &done, NULL), 0);
    assert_false(done);
    assert_int_equal(link_isend(stage, &t, out, sizeof out, NULL), 0);
    assert_int_equal(link_socket_beat(stage, now + 110 * MS, 0, NULL), 0);
    while (!done) assert_int_equal(link_test(&t, &done, NULL), 0);
    for (done = false; !done;) assert_int_equal(link_test(&r, &done, NULL), 0);
    assert_int_equal(r.n, 100);
    assert_memory_equal(in, out, 100);
    link_close(stage);
    link_close(head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_names_counts_and_paths),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_file_has_the_lines_that_others_write),
        cmocka_unit_test(only_addresses_of_ones_own_are_private),
        cmocka_unit_test(an_interface_and_its_ports_are_checked),
        cmocka_unit_test(a_door_is_put_before_a_first_stage_elsewhere),
        cmocka_unit_test(ports_are_some_that_nobody_uses),
        cmocka_unit_test(a_command_that_was_given_starts_all_ranks),
        cmocka_unit_test(layers_go_where_they_are_done_soonest),
        cmocka_unit_test(layers_stay_within_the_files_of_their_hosts),
        cmocka_unit_test(cuts_that_are_about_as_good_may_stay),
        cmocka_unit_test(one_host_is_better_where_the_others_only_slow_it_down),
        cmocka_unit_test(silence_is_measured_against_the_usual_gap),
        cmocka_unit_test(a_process_that_was_away_begins_anew),
        cmocka_unit_test(a_sign_may_ask_for_more_time_but_not_for_ever),
        cmocka_unit_test(who_computes_asks_for_what_its_pieces_took),
        cmocka_unit_test(a_rank_that_reads_weights_from_disk_is_no_loss),
        cmocka_unit_test(a_rank_that_is_stopped_is_noticed_within_a_second),
        cmocka_unit_test(signs_do_not_disturb_the_packets_of_a_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
