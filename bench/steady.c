/* What faults do to writers.
 *
 *   steady  one record every interval_ms, acknowledged or not, until standard input closes. The answer: how long records
 *           took, and when no acknowledgement came for GAP_S or more, in seconds of the monotonic clock
 *   touch   one record to each of `partitions`; the answer when all are acknowledged. Says "begun" when it knows the
 *           topic, and then begins when a byte comes on standard input
 *
 * Both are idempotent producers: what a broker's end leaves in doubt is sent again, and is there once. */

#include "load.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define GAP_S 0.02
#define MAX_GAPS 20000
#define MAX_STEADY_RECORDS 4000000
#define FLUSH_S 60.0
#define TOUCH_TIMEOUT_S 600.0

static double *sent_at, *took;
static long acked = 0, refused = 0, first_counted = -1, counted = 0;
static double last_ack = 0, gaps[MAX_GAPS][2];
static long gap_count = 0;
static volatile int is_over = 0;
static volatile long sent = 0;

static void on_acknowledged(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    double now = now_s();
    if (message->err) {
        if (!refused++) fprintf(stderr, "load: refused: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    acked++;
    if (took) {
        /* What was sent before the first acknowledgement has waited for connections and for a producer id. */
        long number = (long)(intptr_t)message->_private;
        if (first_counted < 0) first_counted = sent;
        if (number >= first_counted) took[counted++] = now - sent_at[number];
    }
    if (last_ack && now - last_ack >= GAP_S && gap_count < MAX_GAPS) {
        gaps[gap_count][0] = last_ack;
        gaps[gap_count++][1] = now;
    }
    last_ack = now;
}

static rd_kafka_t *idempotent_producer(void) {
    rd_kafka_conf_t *conf = producer_conf();
    set(conf, "enable.idempotence", "true");
    set(conf, "queue.buffering.max.messages", "1000000");
    rd_kafka_conf_set_dr_msg_cb(conf, on_acknowledged);
    return new_client(RD_KAFKA_PRODUCER, conf);
}

struct sender {
    rd_kafka_topic_t *rkt;
    char *payload;
};

/* A thread of its own: it keeps its pace whatever the brokers do. */
static void *send_steadily(void *argument) {
    struct sender *sender = argument;
    double started = now_s();
    while (!is_over && sent < MAX_STEADY_RECORDS) {
        double due = started + (double)sent * (double)interval_ms / 1e3;
        struct timespec until = {(time_t)due, (long)((due - (double)(time_t)due) * 1e9)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
        sent_at[sent] = now_s();
        if (rd_kafka_produce(sender->rkt, RD_KAFKA_PARTITION_UA, 0, sender->payload, (size_t)size, NULL, 0,
                             (void *)(intptr_t)sent))
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        sent++;
    }
    return NULL;
}

void steady(char *payload) {
    sent_at = malloc(MAX_STEADY_RECORDS * sizeof *sent_at);
    took = malloc(MAX_STEADY_RECORDS * sizeof *took);
    if (!sent_at || !took) die("steady", "no memory");
    rd_kafka_t *rk = idempotent_producer();
    struct sender sender = {open_topic(rk), payload};
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char ignored[64];
    pthread_t thread;
    if (pthread_create(&thread, NULL, send_steadily, &sender)) die("steady", "no thread");
    int said = 0;
    while (poll(&input, 1, 0) <= 0 || read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
        rd_kafka_poll(rk, 50);
        if (!said && acked) said = 1, printf("begun\n"), fflush(stdout);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    for (double until = now_s() + FLUSH_S; acked + refused < sent && now_s() < until;) rd_kafka_poll(rk, 50);
    if (acked + refused < sent) die("steady", "some records are neither acknowledged nor refused");
    if (!counted) die("steady", "too little was acknowledged");
    printf("{\"sent\": %ld, \"refused\": %ld, \"gaps\": [", sent, refused);
    for (long at = 0; at < gap_count; at++) printf("%s[%.6f, %.6f]", at ? ", " : "", gaps[at][0], gaps[at][1]);
    printf("], \"latencies\": ");
    answer_latencies(took, counted);
    printf("}\n");
    rd_kafka_topic_destroy(sender.rkt);
    rd_kafka_destroy(rk);
}

void touch(char *payload) {
    char go;
    rd_kafka_t *rk = idempotent_producer();
    rd_kafka_topic_t *rkt = open_topic(rk);
    printf("begun\n"), fflush(stdout);
    if (read(STDIN_FILENO, &go, 1) < 0) die("touch", "standard input cannot be read");
    double started = now_s();
    for (int32_t partition = 0; partition < partitions; partition++) send_one(rk, rkt, partition, payload);
    while (acked + refused < partitions) {
        if (now_s() - started > TOUCH_TIMEOUT_S) die("touch", "some partitions take nothing");
        rd_kafka_poll(rk, 50);
    }
    if (refused) die("touch", "some records were refused");
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"at_s\": %.6f}\n", acked, last_ack - started, last_ack);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}
