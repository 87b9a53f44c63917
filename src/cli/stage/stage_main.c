/* SPDX-License-Identifier: MIT
 *
 * stage_main.c: the program quern-stage: one stage of a model (stage_life.h), or the watcher of a group of stages.
 *
 *     quern-stage rank MODEL SOCKET THREADS     a rank of MPI; rank 0 connects to SOCKET. THREADS 0: its share of CPUs
 *     quern-stage watch FOLDER MPIRUN ARGS...   watch.h
 *
 * `quern serve --hosts` starts it; nobody has to start it by hand. It is the only program that links MPI.
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "cli/stage/watch.h"
#include "cluster/mpi/link_mpi.h"
#include "cluster/stage_life.h"

#define TAG_DOWN 1 /* packets to the next stage */
#define TAG_HEAD 2 /* packets of the last stage to the head, by way of the first */

static int fail(const struct qn_error *e)
{
    fprintf(stderr, "quern-stage: %s\n", e->msg);
    return 1;
}

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

/* The stages of this host share its CPUs. mpirun says how many they are. */
static int share_of_cpus(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    int n = text ? atoi(text) : 1, share = os_n_cpus() / (n > 0 ? n : 1);
    return share > 0 ? share : 1;
}

static int open_links(struct stage_life_params *p, int size, const char *path, struct qn_error *e)
{
    int rc = p->number ? link_open_mpi(&p->in, p->number - 1, TAG_DOWN, e) : connect_head(&p->in, path, e);
    bool is_last = p->number == size - 1;
    if (rc) return rc;
    if (size == 1) {
        p->out = p->in;
        return 0;
    }
    if ((rc = link_open_mpi(&p->out, is_last ? 0 : p->number + 1, is_last ? TAG_HEAD : TAG_DOWN, e))) return rc;
    return p->number ? 0 : link_open_mpi(&p->relay_from, size - 1, TAG_HEAD, e);
}

static int rank(int argc, char **argv)
{
    static atomic_bool stop;
    char who[128], host[64] = "";
    struct qn_error e = {0};
    int level, number, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    gethostname(host, sizeof host - 1);
    snprintf(who, sizeof who, "stage %d on %s", number, host);
    int n = atoi(argv[4]);
    struct stage_life_params p = {
        .path = argv[2], .who = who, .number = number, .n_threads = n > 0 ? n : share_of_cpus(), .stop = &stop};
    if (!open_links(&p, size, argv[3], &e)) stage_life_run(&p, &e);
    return fail(&e);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && !strcmp(argv[1], "rank")) {
        int rc = rank(argc, argv);
        _exit(rc); /* a stage that ends, ends all: mpirun sees to it. Waiting for the others would hang */
    }
    if (argc >= 4 && !strcmp(argv[1], "watch")) return watch(argv[2], argv + 3);
    fprintf(stderr, "quern-stage: a part of quern; 'quern serve --hosts' starts it\n");
    return 64;
}
