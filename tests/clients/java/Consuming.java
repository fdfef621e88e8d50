import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reading by offset, and members of groups by name. */
final class Consuming implements AutoCloseable {
    private static final Map<String, Class<?>> STRATEGIES =
            Map.of(
                    "range", RangeAssignor.class,
                    "roundrobin", RoundRobinAssignor.class,
                    "sticky", StickyAssignor.class,
                    "cooperative-sticky", CooperativeStickyAssignor.class);

    private final String bootstrap;
    private final Map<String, KafkaConsumer<byte[], byte[]>> members = new HashMap<>();

    Consuming(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("read", this::read);
        verbs.put("ends", this::ends);
        verbs.put("offsetForTime", this::offsetForTime);
        verbs.put("join", this::join);
        verbs.put("poll", question -> rows(member(question).poll(millis(question, "timeoutMs"))));
        verbs.put("assigned", question -> member(question).assignment().stream().map(TopicPartition::partition).toList());
        verbs.put("commit", this::commit);
        verbs.put("leave", this::leave);
    }

    @Override
    public void close() {
        members.values().forEach(KafkaConsumer::close);
    }

    private List<Object> read(JsonNode question) {
        TopicPartition partition = partition(question);
        int count = question.get("count").asInt();
        long deadline = System.nanoTime() + millis(question, "timeoutMs").toNanos();
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, question.get("offset").asLong());
            while (found.size() < count && System.nanoTime() < deadline) {
                found.addAll(rows(consumer.poll(Duration.ofMillis(200))));
            }
        }
        return found.subList(0, Math.min(count, found.size()));
    }

    private List<Long> ends(JsonNode question) {
        TopicPartition partition = partition(question);
        Set<TopicPartition> wanted = Set.of(partition);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            return List.of(consumer.beginningOffsets(wanted).get(partition), consumer.endOffsets(wanted).get(partition));
        }
    }

    private Long offsetForTime(JsonNode question) {
        TopicPartition partition = partition(question);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(partition, question.get("timestampMs").asLong())).get(partition);
            return found == null ? null : found.offset();
        }
    }

    private Object join(JsonNode question) {
        Map<String, Object> options = new HashMap<>();
        options.put("group.id", question.get("group").asText());
        options.put("auto.offset.reset", "earliest");
        String strategy = question.get("strategy").asText();
        if (STRATEGIES.containsKey(strategy)) {
            options.put("partition.assignment.strategy", List.of(STRATEGIES.get(strategy)));
            options.put("heartbeat.interval.ms", question.get("heartbeatMs").asInt());
            options.put("session.timeout.ms", question.get("sessionMs").asInt());
        } else { // the broker assigns, and says how often it wants to hear of us
            options.put("group.protocol", "consumer");
            options.put("group.remote.assignor", strategy);
        }
        if (!question.get("instanceId").isNull()) {
            options.put("group.instance.id", question.get("instanceId").asText());
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(options);
        String topic = question.get("topic").asText();
        if (topic.startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(topic)); // matched by the broker
        } else {
            consumer.subscribe(Set.of(topic));
        }
        members.put(question.get("member").asText(), consumer);
        return null;
    }

    private Object commit(JsonNode question) {
        member(question).commitSync();
        return null;
    }

    private Object leave(JsonNode question) {
        members.remove(question.get("member").asText()).close();
        return null;
    }

    private KafkaConsumer<byte[], byte[]> member(JsonNode question) {
        return members.get(question.get("member").asText());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> extra) {
        Map<String, Object> options = new HashMap<>(extra);
        options.put("bootstrap.servers", bootstrap);
        options.put("enable.auto.commit", false);
        options.put("allow.auto.create.topics", false);
        options.put("fetch.max.wait.ms", 100);
        options.put("default.api.timeout.ms", 10_000);
        return new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static TopicPartition partition(JsonNode question) {
        return new TopicPartition(question.get("topic").asText(), question.get("partition").asInt());
    }

    private static Duration millis(JsonNode question, String name) {
        return Duration.ofMillis(question.get(name).asLong());
    }

    private static List<Object> rows(ConsumerRecords<byte[], byte[]> records) {
        List<Object> rows = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            List<Object> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add(java.util.Arrays.asList(header.key(), text(header.value())));
            }
            rows.add(
                    java.util.Arrays.asList(
                            record.partition(),
                            record.offset(),
                            text(record.key()),
                            text(record.value()),
                            headers,
                            record.timestamp()));
        }
        return rows;
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
