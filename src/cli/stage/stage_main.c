/* SPDX-License-Identifier: MIT
 *
 * stage_main.c: the program quern-stage: a stage of a model (stage_life.h), or the watcher of a group of stages.
 *
 *     quern-stage rank MODEL SOCKET THREADS FLAGS CPU CACHE     a rank of MPI; rank 0 connects to SOCKET
 *     quern-stage alone MODEL SOCKET THREADS FLAGS CPU CACHE    the only stage, without MPI
 *     quern-stage watch FOLDER N ALONE... ALL...          watch.h; ALONE: N words
 *
 * THREADS 0: its share of the CPUs. FLAGS: d, rank 0 is a door (stage_door.h); l, weights are locked in memory; o, no
 * fence. CACHE: the folder of the prefix cache, or "-". `quern serve --hosts` starts it; nobody has to start it by
 * hand. It is the only program that links MPI.
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "cli/stage/stage_fence.h"
#include "cli/stage/watch.h"
#include "cluster/stage_door.h"
#include "cluster/mpi/link_mpi.h"
#include "cluster/stage_life.h"

#define MAX_ALONE 16

#define TAG_DOWN 1 /* packets to the next stage */
#define TAG_HEAD 2 /* packets of the last stage to the head, by way of the first */
#define TAG_BEAT 3 /* beat.h */

static atomic_bool stop;

/* ---- links ---- */

static int connect_head(struct link **out, const char *path, struct qn_error *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) return error_set(e, QN_EUSAGE, "the path '%s' is too long", path);
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) {
        error_set(e, QN_EIO, "cannot connect to '%s': %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return QN_EIO;
    }
    int rc = link_open_socket(out, fd, e);
    if (rc) close(fd);
    return rc;
}

static int open_links(struct stage_life_params *p, int rank, int size, const char *path, struct qn_error *e)
{
    int rc = rank ? link_open_mpi(&p->in, rank - 1, TAG_DOWN, e) : connect_head(&p->in, path, e);
    bool is_last = rank == size - 1;
    if (rc) return rc;
    if (!rank) p->head = p->in;
    if (size == 1) {
        p->out = p->in;
        return 0;
    }
    if ((rc = link_open_mpi(&p->out, is_last ? 0 : rank + 1, is_last ? TAG_HEAD : TAG_DOWN, e))) return rc;
    return rank ? 0 : link_open_mpi(&p->relay_from, size - 1, TAG_HEAD, e);
}

/* The ring of beats. whom: the rank before this one. */
static int open_beat(struct beat *b, int rank, int size, const char *whom, struct qn_error *e)
{
    struct link *to = NULL, *from = NULL;
    int rc = link_open_mpi(&to, (rank + 1) % size, TAG_BEAT, e);
    if (!rc) rc = link_open_mpi(&from, (rank + size - 1) % size, TAG_BEAT, e);
    if (!rc) beat_init(b, to, from, whom);
    return rc;
}

/* ---- ranks ---- */

/* How many ranks of this host compute. */
static int count_local(bool is_door)
{
    MPI_Comm here, stages;
    int n = 1;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_split(here, is_door ? MPI_UNDEFINED : 0, 0, &stages);
    MPI_Comm_free(&here);
    if (is_door) return n;
    MPI_Comm_size(stages, &n);
    MPI_Comm_free(&stages);
    return n;
}

static int share_of_cpus(int n_local)
{
    int share = os_n_cpus() / n_local;
    return share > 0 ? share : 1;
}

static int set_options(struct stage_life_params *p, char **argv, struct qn_error *e)
{
    int level = strcmp(argv[6], "best") ? cpu_level_parse(argv[6]) : (int)cpu_best();
    char list[CPU_LIST_BYTES];
    p->path = argv[2];
    p->cache_dir = strcmp(argv[7], "-") ? argv[7] : NULL;
    p->locks_weights = strchr(argv[5], 'l') != NULL;
    p->fence = strchr(argv[5], 'o') ? NULL : stage_fence;
    p->cpu = (enum cpu_level)level;
    if (level >= 0 && cpu_has(p->cpu)) return 0;
    return error_set(e, QN_EUNSUP, "%s: there is no instruction set '%s' (there is %s)", p->who, argv[6],
                     cpu_level_list(list));
}

/* Goes where mpirun's words go: into the watcher's log. */
static void print_log(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    if (level <= LOG_WARN) fprintf(stderr, "quern-stage: %s\n", line);
}

static int fail(const struct qn_error *e)
{
    fprintf(stderr, "quern-stage: %s\n", e->msg);
    return 1;
}

static int rank(int argc, char **argv)
{
    char who[128], whom[64], host[64] = "";
    struct qn_error e = {0};
    struct beat beat;
    int level, number, size, is_door = strchr(argv[5], 'd') != NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    gethostname(host, sizeof host - 1);
    snprintf(who, sizeof who, "stage %d on %s", number - is_door, host);
    snprintf(whom, sizeof whom, "rank %d of %d", (number + size - 1) % size, size);
    int n = atoi(argv[4]);
    struct stage_life_params p = {.who = who, .number = number - is_door, .stop = &stop};
    p.n_local = count_local(is_door && !number);
    p.n_threads = n > 0 ? n : share_of_cpus(p.n_local);
    int rc = set_options(&p, argv, &e);
    if (!rc && size > 1) rc = open_beat(&beat, number, size, whom, &e);
    if (!rc && size > 1) p.beat = &beat;
    if (!rc) rc = open_links(&p, number, size, argv[3], &e);
    if (rc) return fail(&e);
    if (is_door && !number)
        door_run(&(struct door_params){p.in, p.out, p.relay_from, &beat, p.fence, p.path}, &e);
    else
        stage_life_run(&p, &e);
    return fail(&e);
}

static int alone(char **argv)
{
    struct qn_error e = {0};
    int n = atoi(argv[4]);
    struct stage_life_params p = {
        .who = "the stage", .stop = &stop, .n_local = 1, .n_threads = n > 0 ? n : os_n_cpus()};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int rc = set_options(&p, argv, &e);
    if (!rc) rc = open_links(&p, 0, 1, argv[3], &e);
    if (!rc) stage_life_run(&p, &e);
    return fail(&e);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_sink(print_log, NULL);
    if (argc == 8 && !strcmp(argv[1], "rank")) {
        int rc = rank(argc, argv);
        _exit(rc); /* a stage that ends, ends all: mpirun sees to it. Waiting for the others would hang */
    }
    if (argc == 8 && !strcmp(argv[1], "alone")) return alone(argv);
    int n = argc > 4 && !strcmp(argv[1], "watch") ? atoi(argv[3]) : 0;
    if (n > 0 && n < MAX_ALONE && 4 + n < argc) {
        char *one[MAX_ALONE] = {NULL};
        memcpy(one, argv + 4, (size_t)n * sizeof *one);
        return watch(argv[2], argv + 4 + n, one);
    }
    fprintf(stderr, "quern-stage: a part of quern; 'quern serve --hosts' starts it\n");
    return 64;
}
