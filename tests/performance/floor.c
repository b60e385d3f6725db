/*
 * The floor of a server that stores requests: what the kernel alone costs for their sockets and their file.
 *
 *   floor PORT FLUSHING_PORT FILE
 *
 * One thread waits with epoll, reads what came, finds whole requests by their size field, appends the bytes
 * of each to FILE with one pwritev, and sends an answer of ANSWER_BYTES bytes: the correlation id, zeros, and
 * a number that increases. `load.c` accepts the answer as that to a Produce, because the error code where it
 * looks is zero. Nothing else is decoded. Requests that come to FLUSHING_PORT are answered after an
 * fdatasync, which all requests of a round share.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOM = 1 << 16, LEAST_REQUEST = 8, MOST_REQUESTS = ROOM / (4 + LEAST_REQUEST), EVENTS = 512 };
enum { ANSWER_BYTES = 64, FRAME_BYTES = 4 + ANSWER_BYTES };

typedef struct {
    int fd, listens, flushes;
    size_t in_bytes, out_bytes;
    uint8_t in[ROOM], out[MOST_REQUESTS * FRAME_BYTES];
} Connection;

static int epoll_fd, file_fd;
static off_t file_bytes;
static uint64_t answered;

static void fail(const char *what) { perror(what); exit(2); }

static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }
static void put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, 4); }
static void put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, 8); }

static void watch(int fd, int listens, int flushes) {
    Connection *c = malloc(sizeof *c);
    if (!c) fail("malloc");
    c->fd = fd, c->listens = listens, c->flushes = flushes;
    c->in_bytes = c->out_bytes = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void listen_on(const char *port, int flushes) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, SOMAXCONN)) fail(port);
    watch(fd, 1, flushes);
}

static void take_connection(const Connection *listener) {
    int fd = accept(listener->fd, NULL, NULL), one = 1;
    if (fd < 0) fail("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(fd, 0, listener->flushes);
}

static void append(uint8_t *request, size_t size) {
    struct iovec piece = {request, size};
    if (pwritev(file_fd, &piece, 1, file_bytes) != (ssize_t)size) fail("pwritev");
    file_bytes += (off_t)size;
}

static void prepare_answer(Connection *c, const uint8_t *request) {
    uint8_t *answer = c->out + c->out_bytes;
    memset(answer, 0, FRAME_BYTES);
    put32(answer, ANSWER_BYTES);
    memcpy(answer + 4, request + 4, 4);
    put64(answer + FRAME_BYTES - 8, answered++);
    c->out_bytes += FRAME_BYTES;
}

/* Reads once, appends the whole requests, and prepares their answers. Returns 0 where the connection ends. */
static int take_requests(Connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_bytes, ROOM - c->in_bytes, 0);
    if (n <= 0) return 0;
    c->in_bytes += (size_t)n;
    size_t at = 0;
    while (c->in_bytes - at >= 4) {
        uint32_t size = get32(c->in + at);
        if (size < LEAST_REQUEST || size > ROOM - 4) return 0;
        if (c->in_bytes - at - 4 < size) break;
        append(c->in + at + 4, size);
        prepare_answer(c, c->in + at + 4);
        at += 4 + size;
    }
    memmove(c->in, c->in + at, c->in_bytes - at);
    c->in_bytes -= at;
    return 1;
}

/* Sends the answers of a round, and waits until the socket has taken them. The next read meets any error. */
static void send_answers(Connection *c) {
    if (c->out_bytes) send(c->fd, c->out, c->out_bytes, MSG_NOSIGNAL);
    c->out_bytes = 0;
}

static void serve_round(void) {
    struct epoll_event events[EVENTS];
    Connection *answering[EVENTS];
    int n = epoll_wait(epoll_fd, events, EVENTS, -1), count = 0, flush = 0;
    if (n < 0 && errno != EINTR) fail("epoll_wait");
    for (int i = 0; i < n; i++) {
        Connection *c = events[i].data.ptr;
        if (c->listens) {
            take_connection(c);
        } else if (take_requests(c)) {
            answering[count++] = c;
            flush |= c->flushes;
        } else {
            close(c->fd);
            free(c);
        }
    }
    if (flush && fdatasync(file_fd)) fail("fdatasync");
    for (int i = 0; i < count; i++) send_answers(answering[i]);
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: floor PORT FLUSHING_PORT FILE\n"); return 1; }
    file_fd = open(argv[3], O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (file_fd < 0) fail(argv[3]);
    epoll_fd = epoll_create1(0);
    listen_on(argv[1], 0);
    listen_on(argv[2], 1);
    for (;;) serve_round();
}
