/* A load generator at the speed of C, on the librdkafka that confluent-kafka ships.
 *
 * load <what> bootstrap=H:P topic=T [messages=N] [size=S] [partitions=P] [linger_ms=L] [spread=0|1] [records=R]
 *      [interval_ms=I] [rdkafka.NAME=VALUE ...]
 *
 *   produce   send all as fast as they go, wait until all are acknowledged
 *   consume   read all partitions from the beginning, `messages` records in total
 *   latency   one record at a time: from produce() to its acknowledgement
 *   endtoend  one record at a time: from produce() to its arrival at a waiting consumer
 *   transactions, commits, visible, count: see transactions.c
 *   steady, touch: see steady.c
 *
 * The answer is one line of JSON. acks=all; what is not named here is librdkafka's default. rdkafka.NAME sets any
 * other of its settings, such as rdkafka.security.protocol.
 * Connections are open and metadata is known before the clock starts. */

#include "load.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_MESSAGES "1000000"
#define QUEUE_KBYTES "1048576"
#define FLUSH_TIMEOUT_MS 180000
#define CONSUME_BATCH 10000
/* A reader whose queue is full would pause for a second by default: a lottery in runs of a second or two. */
#define QUEUED_MESSAGES "1000000"
#define QUEUE_BACKOFF_MS "2"
#define MAX_SETTINGS 32
#define SETTING_PREFIX "rdkafka."

const char *bootstrap = "127.0.0.1:9092", *topic = "load";
long messages = 100000, size = 100, partitions = 1, linger_ms = 5, spread = 0, records = 1, interval_ms = 100;
static long delivered = 0, failed = 0;
static const char *settings[MAX_SETTINGS][2];
static size_t setting_count = 0;

double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void die(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) die(name, error);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) failed++;
    else delivered++;
}

rd_kafka_conf_t *client_conf(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "log_level", "2");
    for (size_t at = 0; at < setting_count; at++) set(conf, settings[at][0], settings[at][1]);
    return conf;
}

rd_kafka_conf_t *producer_conf(void) {
    char linger[32];
    rd_kafka_conf_t *conf = client_conf();
    snprintf(linger, sizeof linger, "%ld", linger_ms);
    set(conf, "acks", "all");
    set(conf, "linger.ms", linger);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return conf;
}

rd_kafka_conf_t *consumer_conf(void) {
    rd_kafka_conf_t *conf = client_conf();
    set(conf, "group.id", "load");
    set(conf, "enable.auto.commit", "false");
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "queued.min.messages", QUEUED_MESSAGES);
    set(conf, "fetch.queue.backoff.ms", QUEUE_BACKOFF_MS);
    return conf;
}

rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char error[256];
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) die("client", error);
    return rk;
}

void assign(rd_kafka_t *consumer, int64_t offset) {
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)partitions);
    for (int p = 0; p < partitions; p++) rd_kafka_topic_partition_list_add(list, topic, p)->offset = offset;
    rd_kafka_resp_err_t failure = rd_kafka_assign(consumer, list);
    if (failure) die("assign", rd_kafka_err2str(failure));
    rd_kafka_topic_partition_list_destroy(list);
}

static rd_kafka_t *new_producer(int only_errors) {
    rd_kafka_conf_t *conf = producer_conf();
    set(conf, "queue.buffering.max.messages", QUEUE_MESSAGES);
    set(conf, "queue.buffering.max.kbytes", QUEUE_KBYTES);
    if (spread) {
        set(conf, "sticky.partitioning.linger.ms", "0");
        set(conf, "partitioner", "random");
    }
    if (only_errors) set(conf, "delivery.report.only.error", "true");
    return new_client(RD_KAFKA_PRODUCER, conf);
}

static rd_kafka_t *new_consumer(int64_t offset) {
    rd_kafka_t *rk = new_client(RD_KAFKA_CONSUMER, consumer_conf());
    assign(rk, offset);
    return rk;
}

rd_kafka_topic_t *open_topic(rd_kafka_t *rk) {
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
    rd_kafka_resp_err_t failure = rd_kafka_metadata(rk, 0, rkt, &metadata, 30000);
    if (failure) die("metadata", rd_kafka_err2str(failure));
    rd_kafka_metadata_destroy(metadata);
    return rkt;
}

void send_one(rd_kafka_t *rk, rd_kafka_topic_t *rkt, int32_t partition, char *payload) {
    while (rd_kafka_produce(rkt, partition, 0, payload, (size_t)size, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(rk, 5);
    }
}

static void send_and_wait(rd_kafka_t *rk, rd_kafka_topic_t *rkt, char *payload) {
    long before = delivered;
    double started = now_s();
    send_one(rk, rkt, RD_KAFKA_PARTITION_UA, payload);
    while (delivered == before) {
        if (failed) die("delivery", "refused");
        if (now_s() - started > STALL_TIMEOUT_S) die("delivery", "no answer");
        rd_kafka_poll(rk, 1000);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void answer_latencies(double *seconds, long count) {
    double total = 0;
    for (long at = 0; at < count; at++) total += seconds[at];
    qsort(seconds, (size_t)count, sizeof *seconds, ascending);
    printf("{\"messages\": %ld, \"mean_ms\": %.4f, \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f}\n",
           count, total / (double)count * 1e3, seconds[count / 2] * 1e3, seconds[count * 9 / 10] * 1e3,
           seconds[count * 99 / 100] * 1e3, seconds[count - 1] * 1e3);
}

static void produce(char *payload) {
    rd_kafka_t *rk = new_producer(1);
    rd_kafka_topic_t *rkt = open_topic(rk);
    double started = now_s();
    for (long sent = 0; sent < messages; sent++) {
        send_one(rk, rkt, RD_KAFKA_PARTITION_UA, payload);
        if ((sent & 1023) == 0) rd_kafka_poll(rk, 0);
    }
    rd_kafka_resp_err_t failure = rd_kafka_flush(rk, FLUSH_TIMEOUT_MS);
    double seconds = now_s() - started;
    if (failure) die("flush", rd_kafka_err2str(failure));
    if (failed) die("delivery", "some records were refused");
    printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f}\n", messages, messages * size, seconds);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

static void consume(void) {
    static rd_kafka_message_t *batch[CONSUME_BATCH];
    double started = now_s(), last = started;
    rd_kafka_t *rk = new_consumer(0);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    long received = 0, bytes = 0;
    double first = 0;
    while (received < messages) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 1000, batch, CONSUME_BATCH);
        for (ssize_t at = 0; at < count; at++) {
            if (!batch[at]->err) {
                if (!received++) first = now_s();
                bytes += (long)batch[at]->len;
            } else if (batch[at]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
                die("consume", rd_kafka_message_errstr(batch[at]));
            }
            rd_kafka_message_destroy(batch[at]);
        }
        if (count > 0) last = now_s();
        if (now_s() - last > STALL_TIMEOUT_S) die("consume", "no more records");
    }
    printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"first_s\": %.6f}\n", received, bytes,
           now_s() - started, first - started);
    rd_kafka_queue_destroy(queue);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
}

static void latency(char *payload) {
    double *seconds = malloc((size_t)messages * sizeof *seconds);
    rd_kafka_t *rk = new_producer(0);
    rd_kafka_topic_t *rkt = open_topic(rk);
    for (int warm = 0; warm < WARM_UP_RECORDS; warm++) send_and_wait(rk, rkt, payload);
    for (long at = 0; at < messages; at++) {
        double started = now_s();
        send_and_wait(rk, rkt, payload);
        seconds[at] = now_s() - started;
    }
    answer_latencies(seconds, messages);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

static void endtoend(char *payload) {
    double *seconds = malloc((size_t)messages * sizeof *seconds);
    rd_kafka_t *producer = new_producer(1);
    rd_kafka_topic_t *rkt = open_topic(producer);
    rd_kafka_t *consumer = new_consumer(RD_KAFKA_OFFSET_END);
    for (double until = now_s() + 1; now_s() < until;) { /* until the consumer waits at the end */
        rd_kafka_message_t *early = rd_kafka_consumer_poll(consumer, 100);
        if (early) rd_kafka_message_destroy(early);
    }
    for (long at = -WARM_UP_RECORDS; at < messages; at++) {
        double started = now_s();
        send_one(producer, rkt, RD_KAFKA_PARTITION_UA, payload);
        rd_kafka_message_t *message = NULL;
        while (!message || message->err) {
            if (message) rd_kafka_message_destroy(message);
            if (now_s() - started > STALL_TIMEOUT_S) die("endtoend", "the record did not arrive");
            message = rd_kafka_consumer_poll(consumer, 1000);
        }
        if (at >= 0) seconds[at] = now_s() - started;
        rd_kafka_message_destroy(message);
        rd_kafka_poll(producer, 0);
    }
    answer_latencies(seconds, messages);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(producer);
}

int main(int argc, char **argv) {
    struct {
        const char *name;
        long *number;
    } numbers[] = {{"messages", &messages}, {"size", &size},     {"partitions", &partitions},
                   {"linger_ms", &linger_ms}, {"spread", &spread}, {"records", &records},
                   {"interval_ms", &interval_ms}};
    if (argc < 2) die("usage", "load <what> name=value ...; load.c lists what there is");
    for (int at = 2; at < argc; at++) {
        char *value = strchr(argv[at], '=');
        if (!value) die(argv[at], "not name=value");
        *value++ = 0;
        int known = 0;
        if (!strcmp(argv[at], "bootstrap")) bootstrap = value, known = 1;
        if (!strcmp(argv[at], "topic")) topic = value, known = 1;
        if (!strncmp(argv[at], SETTING_PREFIX, strlen(SETTING_PREFIX))) {
            if (setting_count == MAX_SETTINGS) die(argv[at], "too many settings");
            settings[setting_count][0] = argv[at] + strlen(SETTING_PREFIX);
            settings[setting_count++][1] = value;
            known = 1;
        }
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            if (!strcmp(argv[at], numbers[n].name)) *numbers[n].number = atol(value), known = 1;
        if (!known) die(argv[at], "unknown option");
    }
    char *payload = malloc((size_t)size);
    uint64_t state = 88172645463325252u; /* xorshift: records that do not compress to nothing */
    for (long at = 0; at < size; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        payload[at] = (char)state;
    }
    if (!strcmp(argv[1], "produce")) produce(payload);
    else if (!strcmp(argv[1], "consume")) consume();
    else if (!strcmp(argv[1], "latency")) latency(payload);
    else if (!strcmp(argv[1], "endtoend")) endtoend(payload);
    else if (!strcmp(argv[1], "transactions")) transactions(payload);
    else if (!strcmp(argv[1], "commits")) commits(payload);
    else if (!strcmp(argv[1], "visible")) visible(payload);
    else if (!strcmp(argv[1], "count")) count_committed();
    else if (!strcmp(argv[1], "steady")) steady(payload);
    else if (!strcmp(argv[1], "touch")) touch(payload);
    else die(argv[1], "unknown");
    return 0;
}
