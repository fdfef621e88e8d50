/* The verbs of the load generator that use a transactional producer. Options and answers are as in load.c.
 *
 *   transactions  `messages` records, in turn to each partition, as fast as they go; a transaction is committed when it
 *                 is `interval_ms` old
 *   commits       `messages` transactions, one after the other, each of `records` records in turn to each partition:
 *                 how long commit_transaction() takes, which includes what the records still need
 *   visible       `messages` transactions of one record, one after the other: from begin_transaction() to the record's
 *                 arrival at a waiting consumer that reads what is committed
 *   count         what such a consumer finds from the beginning to the end of each partition, and how many ends it
 *                 reached; a last commit may still be on its way, so it waits a while for `messages` records
 *
 * librdkafka speaks the protocol of KIP-98: it announces partitions to the coordinator before it writes to them.
 * The transactional id is the topic's name. Transactions.java does the same with the client of Apache Kafka. */

#include "load.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What the producer has queued must be sent before a commit. With the default of a gigabyte that would take longer than
 * the interval between commits; this is enough to keep every connection busy. */
#define QUEUE_KBYTES "8192"
#define CALL_TIMEOUT_MS 60000
#define POLL_EVERY_RECORDS 1024
#define WATCH_POLL_MS 100
#define COUNT_TIMEOUT_S 15.0

static void done(const char *what, rd_kafka_error_t *error) {
    if (error) die(what, rd_kafka_error_string(error));
}

static rd_kafka_t *new_transactional_producer(void) {
    rd_kafka_conf_t *conf = producer_conf();
    set(conf, "transactional.id", topic);
    set(conf, "queue.buffering.max.kbytes", QUEUE_KBYTES);
    rd_kafka_t *rk = new_client(RD_KAFKA_PRODUCER, conf);
    done("init_transactions", rd_kafka_init_transactions(rk, CALL_TIMEOUT_MS));
    return rk;
}

static void begin(rd_kafka_t *rk) { done("begin_transaction", rd_kafka_begin_transaction(rk)); }

static void commit(rd_kafka_t *rk) { done("commit_transaction", rd_kafka_commit_transaction(rk, CALL_TIMEOUT_MS)); }

static rd_kafka_conf_t *committed_conf(void) {
    rd_kafka_conf_t *conf = consumer_conf();
    set(conf, "isolation.level", "read_committed");
    return conf;
}

void transactions(char *payload) {
    rd_kafka_t *rk = new_transactional_producer();
    rd_kafka_topic_t *rkt = open_topic(rk);
    long sent = 0, committed = 0;
    double started = now_s();
    while (sent < messages) {
        double begun = now_s();
        begin(rk);
        do {
            send_one(rk, rkt, (int32_t)(sent % partitions), payload);
            if (++sent % POLL_EVERY_RECORDS == 0) rd_kafka_poll(rk, 0);
        } while (sent < messages && (now_s() - begun) * 1e3 < (double)interval_ms);
        commit(rk);
        committed++;
    }
    printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"transactions\": %ld}\n", messages, messages * size,
           now_s() - started, committed);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

void commits(char *payload) {
    double *seconds = malloc((size_t)messages * sizeof *seconds);
    rd_kafka_t *rk = new_transactional_producer();
    rd_kafka_topic_t *rkt = open_topic(rk);
    for (long at = -WARM_UP_RECORDS; at < messages; at++) {
        begin(rk);
        for (long record = 0; record < records; record++) send_one(rk, rkt, (int32_t)(record % partitions), payload);
        double started = now_s();
        commit(rk);
        if (at >= 0) seconds[at] = now_s() - started;
    }
    answer_latencies(seconds, messages);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

/* The consumer waits in a thread of its own, because a record may arrive before its commit is answered. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long count;
    double last_s;
    int is_over;
} arrivals = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *watch(void *consumer) {
    for (int is_over = 0; !is_over;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, WATCH_POLL_MS);
        double arrived_s = now_s();
        if (message && message->err) die("consume", rd_kafka_message_errstr(message));
        pthread_mutex_lock(&arrivals.lock);
        if (message) {
            arrivals.count++;
            arrivals.last_s = arrived_s;
            pthread_cond_signal(&arrivals.changed);
        }
        is_over = arrivals.is_over;
        pthread_mutex_unlock(&arrivals.lock);
        if (message) rd_kafka_message_destroy(message);
    }
    return NULL;
}

/* When the last of so many records arrived. */
static double arrival_s(long wanted) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)STALL_TIMEOUT_S;
    pthread_mutex_lock(&arrivals.lock);
    while (arrivals.count < wanted)
        if (pthread_cond_timedwait(&arrivals.changed, &arrivals.lock, &until) == ETIMEDOUT)
            die("visible", "the record did not arrive");
    if (arrivals.count > wanted) die("visible", "more records arrived than were sent");
    double last_s = arrivals.last_s;
    pthread_mutex_unlock(&arrivals.lock);
    return last_s;
}

void visible(char *payload) {
    double *seconds = malloc((size_t)messages * sizeof *seconds);
    pthread_t watcher;
    rd_kafka_t *producer = new_transactional_producer(), *consumer = new_client(RD_KAFKA_CONSUMER, committed_conf());
    rd_kafka_topic_t *rkt = open_topic(producer);
    assign(consumer, 0);
    if (pthread_create(&watcher, NULL, watch, consumer)) die("visible", "no thread for the consumer");
    for (long at = -WARM_UP_RECORDS; at < messages; at++) {
        double started = now_s();
        begin(producer);
        send_one(producer, rkt, 0, payload);
        commit(producer);
        double arrived_s = arrival_s(at + WARM_UP_RECORDS + 1);
        if (at >= 0) seconds[at] = arrived_s - started;
    }
    pthread_mutex_lock(&arrivals.lock);
    arrivals.is_over = 1;
    pthread_mutex_unlock(&arrivals.lock);
    pthread_join(watcher, NULL);
    answer_latencies(seconds, messages);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(producer);
}

void count_committed(void) {
    char *is_at_end = calloc((size_t)partitions, 1);
    rd_kafka_conf_t *conf = committed_conf();
    set(conf, "enable.partition.eof", "true");
    rd_kafka_t *consumer = new_client(RD_KAFKA_CONSUMER, conf);
    assign(consumer, 0);
    long found = 0, ends = 0;
    double last_s = now_s();
    while (ends < partitions || found < messages) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 1000);
        if (!message && now_s() - last_s > COUNT_TIMEOUT_S) break; /* the one who asked for more sees what is missing */
        if (!message) continue;
        char was_at_end = is_at_end[message->partition];
        if (!message->err) found++, is_at_end[message->partition] = 0, last_s = now_s();
        else if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) is_at_end[message->partition] = 1;
        else die("count", rd_kafka_message_errstr(message));
        ends += is_at_end[message->partition] - was_at_end;
        rd_kafka_message_destroy(message);
    }
    printf("{\"messages\": %ld, \"ends\": %ld}\n", found, ends);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
}
