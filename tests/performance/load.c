/*
 * A load that costs little: one thread, epoll, requests built beforehand and patched in place.
 *
 *   load produce|repeat|fetch|ask HOST PORT PLAN SECONDS MAX_REQUESTS DEPTH RATE
 *
 * PLAN holds, for each connection, five little-endian uint32 and then a whole request frame, size included:
 * frame bytes; position of the record batch (produce) or of the session id (fetch); position of the error code
 * (produce) or of the partition array (fetch) in the answer, counted from its correlation id; records per request;
 * position of the fetch offset (fetch).
 * The last batch of a produce frame gets its base_sequence and CRC-32C before each send, a fetch frame its session and offset; at the
 * end of the partition fetching starts over at offset 0. Where its records have the header dedup.sequence, of 19 digits, each
 * gets the number after the one before; with kind "repeat" they stay as they are. With "ask" frames of any API are sent as they are, and the
 * error code is where that of a produce answer would be. At most DEPTH requests are under way on each connection,
 * and all connections together send RATE requests per second (0: no limit). After SECONDS, or MAX_REQUESTS (0: no limit), nothing new is
 * sent and all answers are awaited. Prints JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DEPTH = 5, CRC_AT = 17, CRC_FROM = 21, BASE_SEQUENCE_AT = 53, LAST_OFFSET_DELTA_AT = 23 };

typedef struct {
    int fd, wants_write;
    uint8_t *frame;
    uint32_t frame_bytes, patch_at, answer_at, records, offset_at, sent;
    uint32_t base_sequence, in_flight;
    uint64_t correlation, started_ns[MAX_DEPTH], due_ns;
    uint8_t *in;
    size_t in_bytes, in_room;
    int32_t session_id, session_epoch;
    int64_t fetch_offset;
    uint32_t *digits_at, digits_count;
    uint64_t next_sequence;
} Connection;

static const char SEQUENCE_HEADER[] = "dedup.sequence\x26";
enum { DIGITS = 19 };
static int fetching, repeating, asking, epoll_fd;
static uint32_t depth;
static uint64_t max_requests, begun, answered, records, answer_bytes, errors, deadline_ns, interval_ns;
static int first_error;
static uint32_t *latency_us;
static size_t latency_room;

static void fail(const char *what) { perror(what); exit(2); }

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t crc_table[256];

static void prepare_crc(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc32c(const uint8_t *p, size_t n) {
#ifdef __SSE4_2__
    uint64_t c = 0xffffffffu;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    uint32_t rest = (uint32_t)c;
#else
    uint32_t rest = 0xffffffffu;
#endif
    for (; n; p++, n--) rest = crc_table[(rest ^ *p) & 255] ^ rest >> 8;
    return ~rest;
}

static void put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, 4); }
static void put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, 8); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }
static uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return be64toh(v); }
static int get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }

static uint64_t varint(const uint8_t **p) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*p)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128)) return value;
    }
}

static void watch(Connection *c, int wants_write) {
    if (c->wants_write == wants_write) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl");
    c->wants_write = wants_write;
}

static void put_digits(uint8_t *p, uint64_t value) {
    for (int i = DIGITS; i--; value /= 10) p[i] = (uint8_t)('0' + value % 10);
}

static void patch(Connection *c) {
    put32(c->frame + 8, (uint32_t)c->correlation);
    uint8_t *at = c->frame + c->patch_at;
    if (asking) return;
    if (fetching) {
        put32(at, (uint32_t)c->session_id);
        put32(at + 4, (uint32_t)c->session_epoch);
        put64(c->frame + c->offset_at, (uint64_t)c->fetch_offset);
    } else {
        for (uint32_t i = 0; i < c->digits_count && !repeating; i++) put_digits(c->frame + c->digits_at[i], c->next_sequence++);
        put32(at + BASE_SEQUENCE_AT, c->base_sequence);
        put32(at + CRC_AT, crc32c(at + CRC_FROM, c->frame_bytes - c->patch_at - CRC_FROM - 3));
        c->base_sequence = (c->base_sequence + get32(at + LAST_OFFSET_DELTA_AT) + 1) & 0x7fffffffu;
    }
}

/* Sends until the connection has enough under way or the socket is full. */
static void push(Connection *c) {
    for (;;) {
        if (c->sent == 0) {
            if (c->in_flight == depth || (max_requests && begun == max_requests)) break;
            uint64_t now = now_ns();
            if (now >= deadline_ns || now < c->due_ns) break;
            c->due_ns += interval_ns;
            patch(c);
            c->started_ns[c->correlation++ % MAX_DEPTH] = now;
            c->in_flight++;
            begun++;
        }
        ssize_t n = send(c->fd, c->frame + c->sent, c->frame_bytes - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) { watch(c, 1); return; }
        if (n < 0) fail("send");
        c->sent += (uint32_t)n;
        if (c->sent == c->frame_bytes) c->sent = 0;
    }
    watch(c, 0);
}

static void note_error(int code) {
    if (!errors++) first_error = code;
}

static void take_produce_answer(Connection *c, const uint8_t *answer) {
    int code = get16(answer + c->answer_at);
    if (code) note_error(code);
    else records += c->records;
}

/* Fetch v12: header tags, throttle, error, session id, topics; `answer_at` is where the partitions begin. */
static void take_fetch_answer(Connection *c, const uint8_t *answer) {
    int code = get16(answer + 9);
    if (code) { note_error(code); return; }
    c->session_id = (int32_t)get32(answer + 11);
    if (c->session_id) c->session_epoch++;
    if (answer[15] < 2) { c->fetch_offset = 0; return; }
    const uint8_t *p = answer + c->answer_at;
    if (*p++ < 2) { c->fetch_offset = 0; return; }
    code = get16(p + 4);
    if (code) { note_error(code); return; }
    int64_t high_watermark = (int64_t)get64(p + 6);
    p += 4 + 2 + 8 + 8 + 8;
    uint64_t aborted = varint(&p);
    if (aborted > 1) { note_error(-2); return; }
    p += 4;
    uint64_t size = varint(&p);
    const uint8_t *end = p + (size ? size - 1 : 0);
    while (end - p >= 61) {
        uint32_t batch_bytes = 12 + get32(p + 8);
        if ((uint64_t)(end - p) < batch_bytes) break;
        int64_t next = (int64_t)(get64(p) + get32(p + LAST_OFFSET_DELTA_AT)) + 1;
        records += (uint64_t)(next - c->fetch_offset);
        c->fetch_offset = next;
        p += batch_bytes;
    }
    if (c->fetch_offset >= high_watermark) c->fetch_offset = 0;
}

static void take_answer(Connection *c, const uint8_t *answer, uint32_t size) {
    uint64_t us = (now_ns() - c->started_ns[(c->correlation - c->in_flight) % MAX_DEPTH]) / 1000;
    if (get32(answer) != (uint32_t)(c->correlation - c->in_flight)) note_error(-3);
    else if (fetching) take_fetch_answer(c, answer);
    else take_produce_answer(c, answer);
    if (answered == latency_room) {
        latency_room = latency_room ? 2 * latency_room : 1 << 20;
        latency_us = realloc(latency_us, latency_room * sizeof *latency_us);
        if (!latency_us) fail("realloc");
    }
    latency_us[answered++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
    answer_bytes += size + 4;
    c->in_flight--;
}

static void pull(Connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->in_bytes, c->in_room - c->in_bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) fail("recv");
        if (n == 0) { fprintf(stderr, "the broker closed a connection\n"); exit(3); }
        c->in_bytes += (size_t)n;
        size_t at = 0;
        while (c->in_bytes - at >= 4) {
            uint32_t size = get32(c->in + at);
            if (size + 4 > c->in_room) {
                c->in_room = size + 4;
                c->in = realloc(c->in, c->in_room);
                if (!c->in) fail("realloc");
            }
            if (c->in_bytes - at < size + 4) break;
            take_answer(c, c->in + at + 4, size);
            at += size + 4;
        }
        memmove(c->in, c->in + at, c->in_bytes - at);
        c->in_bytes -= at;
        if (at) push(c);
        if (c->in_bytes < c->in_room && (size_t)n < c->in_room / 2) return;
    }
}

/* A first round trip, as every client makes one: 500 connections at once would overflow a listen backlog of 50. */
static void greet(int fd) {
    static const uint8_t api_versions[] = {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 0, 255, 255};
    uint8_t answer[4096];
    size_t at = 0;
    if (send(fd, api_versions, sizeof api_versions, MSG_NOSIGNAL) != sizeof api_versions) fail("send");
    while (at < 4 || at < get32(answer) + 4) {
        ssize_t n = recv(fd, answer + at, sizeof answer - at, 0);
        if (n <= 0) fail("recv");
        at += (size_t)n;
    }
}

static void open_connection(Connection *c, const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    greet(c->fd);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
    c->in_room = fetching ? 2 << 20 : 4096;
    c->in = malloc(c->in_room);
    if (!c->in) fail("malloc");
}

static void find_digits(Connection *c) {
    size_t name_bytes = sizeof SEQUENCE_HEADER - 1;
    uint8_t *at = c->frame, *end = c->frame + c->frame_bytes;
    c->digits_at = calloc(c->records + 1, sizeof *c->digits_at);
    if (!c->digits_at) fail("calloc");
    while (c->digits_count < c->records && (at = memmem(at, (size_t)(end - at), SEQUENCE_HEADER, name_bytes))) {
        at += name_bytes;
        c->digits_at[c->digits_count++] = (uint32_t)(at - c->frame);
    }
    c->next_sequence = 1;
}

static Connection *read_plan(const char *path, uint32_t *count) {
    FILE *plan = fopen(path, "rb");
    uint32_t head[5];
    Connection *all = NULL;
    if (!plan) fail(path);
    for (*count = 0; fread(head, sizeof head, 1, plan) == 1; ++*count) {
        all = realloc(all, (*count + 1) * sizeof *all);
        if (!all) fail("realloc");
        Connection c = {.frame_bytes = le32toh(head[0]), .patch_at = le32toh(head[1]), .answer_at = le32toh(head[2]),
                        .records = le32toh(head[3]), .offset_at = le32toh(head[4])};
        c.frame = malloc(c.frame_bytes);
        if (!c.frame || fread(c.frame, c.frame_bytes, 1, plan) != 1) fail(path);
        find_digits(&c);
        all[*count] = c;
    }
    fclose(plan);
    return all;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(double part) {
    return answered ? latency_us[(size_t)(part * (double)(answered - 1))] / 1000.0 : 0.0;
}

int main(int argc, char **argv) {
    if (argc != 9) { fprintf(stderr, "usage: load produce|repeat|fetch|ask HOST PORT PLAN SECONDS MAX_REQUESTS DEPTH RATE\n"); return 1; }
    fetching = argv[1][0] == 'f';
    repeating = argv[1][0] == 'r';
    asking = argv[1][0] == 'a';
    uint32_t count;
    Connection *all = read_plan(argv[4], &count);
    max_requests = strtoull(argv[6], NULL, 10);
    depth = (uint32_t)atoi(argv[7]);
    if (depth < 1 || depth > (fetching ? 1 : MAX_DEPTH)) { fprintf(stderr, "DEPTH is out of range\n"); return 1; }
    prepare_crc();
    epoll_fd = epoll_create1(0);
    for (uint32_t i = 0; i < count; i++) open_connection(&all[i], argv[2], argv[3]);
    uint64_t start = now_ns(), end = start;
    deadline_ns = start + (uint64_t)(atof(argv[5]) * 1e9);
    double rate = atof(argv[8]);
    interval_ns = rate > 0 ? (uint64_t)(count * 1e9 / rate) : 0;
    for (uint32_t i = 0; i < count; i++) {
        all[i].due_ns = start + i * interval_ns / count;
        push(&all[i]);
    }
    uint64_t heard_ns = start;
    while (answered < begun || (interval_ns && begun != (max_requests ? max_requests : UINT64_MAX) && now_ns() < deadline_ns)) {
        struct epoll_event events[512];
        int n = epoll_wait(epoll_fd, events, 512, interval_ns ? 1 : 30000);
        if (n) heard_ns = now_ns();
        for (uint32_t i = 0; interval_ns && i < count; i++) push(&all[i]);
        if (now_ns() - heard_ns > 30000000000u && answered < begun) { fprintf(stderr, "no answer for 30 s\n"); return 4; }
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) pull(c);
            if (events[i].events & EPOLLOUT) push(c);
        }
        end = now_ns();
    }
    qsort(latency_us, answered, sizeof *latency_us, by_size);
    printf("{\"requests\": %llu, \"records\": %llu, \"answer_bytes\": %llu, \"errors\": %llu, \"first_error\": %d, "
           "\"seconds\": %.6f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n",
           (unsigned long long)answered, (unsigned long long)records, (unsigned long long)answer_bytes,
           (unsigned long long)errors, first_error, (double)(end - start) / 1e9, quantile_ms(0.5), quantile_ms(0.99),
           quantile_ms(1.0));
    return errors ? 5 : 0;
}
