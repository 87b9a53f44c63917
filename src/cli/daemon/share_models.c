/* SPDX-License-Identifier: MIT
 *
 * share_models.c: runs rsync as a daemon that offers the folder of models. See share_models.h. Source: rsync(1),
 * rsyncd.conf(5).
 *
 * Only models can be seen: hidden, incomplete and other files are not listed and cannot be named. If root runs it,
 * rsync reads as "nobody".
 *
 * Between this process and rsync is a child process outside the sandbox. It holds a pipe to this process. When the
 * pipe closes, this process is gone, whatever the reason: then the child ends rsync and removes the folder with its
 * configuration, which rsync reads again for each client.
 */
#include "cli/daemon/share_models.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/os.h"

#define PORT        8873
#define CONNECTIONS 8
#define START_NS    10000000000
#define DIR_BYTES   256
#define NO_RSYNC    126 /* exit status of a child that could not become rsync */

#define AT(field) offsetof(struct share_options, field)
const struct opt opts_share[] = {
    {"share", 0, OPT_FLAG, AT(is_on), NULL, "offer the folder of models to the local network (rsync)"},
    {"share-port", 0, OPT_INT, AT(port), "N", "on this port (default 8873)", 1, 65535, .rare = true},
    {"share-to", 0, OPT_STRINGS, AT(to), "NETWORK", "only to this network, such as 192.168.1.0/24; may be repeated",
     .rare = true},
    {0},
};
#undef AT

void share_options_init(struct share_options *o) { o->port = PORT; }

/* ---- the configuration ---- */

/* Whether a text is an address, or an address and the length of its network prefix. So it has nothing that could end
 * a line. */
static bool is_network(const char *s)
{
    unsigned char address[16];
    char text[64];
    size_t n = strcspn(s, "/");
    int bits = strchr(s, ':') ? 128 : 32;

    if (n >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", (int)n, s);
    if (inet_pton(bits == 128 ? AF_INET6 : AF_INET, text, address) != 1) return false;
    if (!s[n]) return true;
    char *end;
    long v = strtol(s + n + 1, &end, 10);
    return s[n + 1] >= '0' && s[n + 1] <= '9' && !*end && v <= bits;
}

static int put_config(struct buf *b, const struct share_options *o, const char *folder, const char *dir,
                      struct qn_error *e)
{
    static const char private[] =
        " 127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 ::1 fe80::/10 fc00::/7";
    int r = buf_printf(b, e,
                       "log file = /dev/null\n"
                       "use chroot = no\n"
                       "read only = yes\n"
                       "max connections = %d\n"
                       "lock file = %s/lock\n"
                       "hosts allow =",
                       CONNECTIONS, dir);

    if (r == 0 && !o->to.n) r = buf_str(b, private, e);
    for (size_t i = 0; i < o->to.n && r == 0; i++) {
        if (!is_network(o->to.v[i]))
            return error_set(e, QN_EUSAGE, "serve: --share-to %s: not an address or a network such as 192.168.1.0/24",
                             o->to.v[i]);
        r = buf_printf(b, e, " %s", o->to.v[i]);
    }
    if (r == 0 && strpbrk(folder, "\r\n"))
        return error_set(e, QN_EUSAGE, "serve: '%s' cannot be shared: its name has a line break", folder);
    if (r == 0)
        r = buf_printf(b, e,
                       "\n[models]\n"
                       "path = %s\n"
                       /* the first rule that matches decides */
                       "filter = - .* - *.part/ - *.part.json - *.bad/ + */ + *.gguf + *.safetensors + *.json"
                       " + *.jinja + *.model + *.txt - *\n",
                       folder);
    return r;
}

/* Makes a folder for the configuration. */
static int make_folder(char *dir, size_t cap)
{
    const char *above = getenv("XDG_RUNTIME_DIR");

    if (!above || *above != '/' || access(above, W_OK)) above = getenv("TMPDIR");
    if (!above || *above != '/') above = "/tmp";
    return snprintf(dir, cap, "%s/quern-share-XXXXXX", above) < (int)cap && mkdtemp(dir) ? 0 : -1;
}

static void remove_folder(const char *dir)
{
    static const char *const names[] = {"rsyncd.conf", "lock"};
    char path[DIR_BYTES + 16];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static int write_config(const char *dir, const struct buf *text)
{
    char path[DIR_BYTES + 16];
    int fd, r;

    snprintf(path, sizeof path, "%s/rsyncd.conf", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    r = write(fd, text->data, text->len) == (ssize_t)text->len ? 0 : -1;
    return close(fd) || r ? -1 : 0;
}

/* ---- the daemon ---- */

static void become_rsync(const char *dir, int port, pid_t parent)
{
    char config[DIR_BYTES + 32], on[32];
    sigset_t none;
    int null = open("/dev/null", O_RDWR);

    snprintf(config, sizeof config, "--config=%s/rsyncd.conf", dir);
    snprintf(on, sizeof on, "--port=%d", port);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null >= 0) { /* with a socket as standard input, rsync would serve one connection only */
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    if (getppid() == parent) execlp("rsync", "rsync", "--daemon", "--no-detach", config, on, (char *)NULL);
    _exit(NO_RSYNC);
}

/* The exit status of a process as a shell has it, from what waitpid() gave. */
static int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/* The child: waits until rsync ends, or until the other end of the pipe closes. Ends with rsync's status. */
static void look_after(const char *dir, int port, int life)
{
    pid_t parent = getpid(), pid;
    sigset_t set;
    int status = 0;

    sigfillset(&set); /* the signals of the terminal are for the server, which drains first */
    sigprocmask(SIG_SETMASK, &set, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    struct pollfd p[2] = {{.fd = life, .events = POLLIN}, {.fd = signalfd(-1, &set, SFD_CLOEXEC), .events = POLLIN}};
    pid = fork();
    if (pid == 0) become_rsync(dir, port, parent);
    if (pid > 0) {
        while (poll(p, 2, -1) < 0 && errno == EINTR)
            ;
        kill(pid, SIGTERM);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    remove_folder(dir);
    _exit(pid < 0 ? EX_OSERR : exit_status(status));
}

/* Whether somebody accepts connections on the port; with to_bind: whether the port is free. */
static bool try_port(int port, bool to_bind)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, r;

    if (fd < 0) return false;
    a.sin_addr.s_addr = htonl(to_bind ? INADDR_ANY : INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    r = to_bind ? bind(fd, (struct sockaddr *)&a, sizeof a) : connect(fd, (struct sockaddr *)&a, sizeof a);
    close(fd);
    return r == 0;
}

static int wait_for_daemon(pid_t pid, int port, struct qn_error *e)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    uint64_t until = clock_ns() + START_NS;
    int status;

    while (clock_ns() < until) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == NO_RSYNC)
                return error_set(
                    e, QN_EUNSUP,
                    "serve: sharing needs the rsync program, which is not installed (Debian's package is rsync)");
            return error_set(e, QN_EIO, "serve: the rsync daemon ended at once (status %d)", exit_status(status));
        }
        if (try_port(port, false)) return 0;
        nanosleep(&pause, NULL);
    }
    return error_set(e, QN_EIO, "serve: the rsync daemon does not listen on port %d", port);
}

/* Starts the child. The other end of the pipe stays open as long as this process lives; nothing is written to it. */
static int start(const char *dir, int port, struct qn_error *e)
{
    int life[2] = {-1, -1}, r;
    pid_t pid = -1;

    if (pipe2(life, O_CLOEXEC) == 0) pid = fork();
    if (pid == 0) {
        close(life[1]);
        look_after(dir, port, life[0]);
    }
    if (pid < 0) {
        r = error_set(e, QN_EIO, "serve: cannot start rsync: %s", strerror(errno));
        remove_folder(dir);
    } else {
        r = wait_for_daemon(pid, port, e); /* the child removes the folder */
    }
    if (life[0] >= 0) close(life[0]);
    if (r && life[1] >= 0) close(life[1]);
    return r;
}

int share_start(const struct share_options *o, const char *folder, struct qn_error *e)
{
    struct buf text = {0};
    char dir[DIR_BYTES];
    int r;

    if (!os_is_directory(folder)) return error_set(e, QN_ENOINPUT, "serve: there is no folder '%s' to share", folder);
    if (!try_port(o->port, true))
        return error_set(e, QN_EIO, "serve: port %d, on which models would be shared, cannot be had: %s", o->port,
                         strerror(errno));
    if (make_folder(dir, sizeof dir)) return error_set(e, QN_EIO, "serve: cannot make a folder: %s", strerror(errno));
    r = put_config(&text, o, folder, dir, e);
    if (r == 0 && write_config(dir, &text))
        r = error_set(e, QN_EIO, "serve: cannot write in '%s': %s", dir, strerror(errno));
    buf_deinit(&text);
    if (r == 0) return start(dir, o->port, e);
    remove_folder(dir);
    return r;
}
