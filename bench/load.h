/* What the verbs of the load generator share: its options, its clients, how they count and answer. */

#ifndef LOAD_H
#define LOAD_H

#include <librdkafka/rdkafka.h>

#define STALL_TIMEOUT_S 60.0
#define WARM_UP_RECORDS 20

extern const char *bootstrap, *topic;
extern long messages, size, partitions, linger_ms, spread, records, interval_ms;

double now_s(void);
void die(const char *what, const char *why);
void set(rd_kafka_conf_t *conf, const char *name, const char *value);

/* Options that every client has; what is not named is librdkafka's default. */
rd_kafka_conf_t *client_conf(void);
rd_kafka_conf_t *producer_conf(void);
rd_kafka_conf_t *consumer_conf(void);
rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf);
/* All partitions of the topic, from `offset` on. */
void assign(rd_kafka_t *consumer, int64_t offset);
/* The topic, when the client knows its metadata. */
rd_kafka_topic_t *open_topic(rd_kafka_t *rk);
/* Put one record into the producer's queue; wait while that is full. */
void send_one(rd_kafka_t *rk, rd_kafka_topic_t *rkt, int32_t partition, char *payload);
/* One line of JSON. Sorts its argument. */
void answer_latencies(double *seconds, long count);

/* transactions.c */
void transactions(char *payload);
void commits(char *payload);
void visible(char *payload);
void count_committed(void);

/* steady.c */
void steady(char *payload);
void touch(char *payload);

#endif
