import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, and readers and members that see what was committed, by name. */
final class Transacting implements AutoCloseable {
    private static final long TIMEOUT_S = 60;

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, KafkaConsumer<byte[], byte[]>> readers = new HashMap<>();
    private final Map<String, ConsumerGroupMetadata> departed = new HashMap<>();

    Transacting(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("txnOpen", this::open);
        verbs.put("txnBegin", question -> act(() -> producer(question).beginTransaction()));
        verbs.put("txnSend", this::send);
        verbs.put("txnSendOffsets", this::sendOffsets);
        verbs.put("txnCommit", question -> act(() -> producer(question).commitTransaction()));
        verbs.put("txnAbort", question -> act(() -> producer(question).abortTransaction()));
        verbs.put("txnClose", this::closeProducer);
        verbs.put("txnRead", this::read);
        verbs.put("txnJoin", this::join);
        verbs.put("txnPoll", this::poll);
        verbs.put("txnCommitted", this::committed);
        verbs.put("txnLeave", this::leave);
    }

    @Override
    public void close() {
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
        readers.values().forEach(KafkaConsumer::close);
    }

    private Object open(JsonNode question) throws Exception {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("transactional.id", question.get("transactionalId").asText());
        options.put("transaction.timeout.ms", question.get("timeoutMs").asInt());
        options.put("linger.ms", 0);
        options.put("delivery.timeout.ms", (int) (TIMEOUT_S * 1000));
        options.put("request.timeout.ms", 10_000);
        options.put("max.block.ms", (int) (TIMEOUT_S * 1000));
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(question.get("producer").asText(), producer);
        return act(producer::initTransactions);
    }

    private Object send(JsonNode question) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        act(() -> {
            for (JsonNode row : question.get("records")) {
                byte[] value = Base64.getDecoder().decode(row.get(2).asText());
                sent.add(producer(question).send(new ProducerRecord<>(row.get(0).asText(), row.get(1).asInt(), null, value)));
            }
            producer(question).flush();
            for (Future<RecordMetadata> future : sent) {
                offsets.add(future.get(TIMEOUT_S, TimeUnit.SECONDS).offset());
            }
        });
        return offsets;
    }

    private Object sendOffsets(JsonNode question) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode row : question.get("positions")) {
            offsets.put(place(row), new OffsetAndMetadata(row.get(2).asLong()));
        }
        return act(() -> producer(question).sendOffsetsToTransaction(offsets, group(question)));
    }

    private ConsumerGroupMetadata group(JsonNode question) {
        if (question.get("reader").isNull()) {
            return new ConsumerGroupMetadata(question.get("group").asText());
        }
        String reader = question.get("reader").asText();
        return departed.containsKey(reader) ? departed.get(reader) : readers.get(reader).groupMetadata();
    }

    private Object closeProducer(JsonNode question) {
        producers.remove(question.get("producer").asText()).close(Duration.ZERO);
        return null;
    }

    private Object read(JsonNode question) {
        Set<TopicPartition> places = new HashSet<>();
        question.get("places").forEach(row -> places.add(place(row)));
        KafkaConsumer<byte[], byte[]> consumer = consumer(question, Map.of("auto.offset.reset", "none"));
        consumer.assign(places);
        places.forEach(place -> consumer.seek(place, question.get("offset").asLong()));
        readers.put(question.get("reader").asText(), consumer);
        return null;
    }

    private Object join(JsonNode question) {
        Map<String, Object> options = new HashMap<>();
        options.put("group.id", question.get("group").asText());
        options.put("group.protocol", question.get("protocol").asText());
        options.put("auto.offset.reset", "earliest");
        if (question.get("protocol").asText().equals("classic")) {
            options.put("heartbeat.interval.ms", question.get("heartbeatMs").asInt());
            options.put("session.timeout.ms", question.get("sessionMs").asInt());
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(question, options);
        if (!question.get("topic").isNull()) {
            consumer.subscribe(Set.of(question.get("topic").asText()));
        }
        readers.put(question.get("reader").asText(), consumer);
        return null;
    }

    private Object poll(JsonNode question) {
        List<Object> rows = new ArrayList<>();
        Duration wait = Duration.ofMillis(question.get("timeoutMs").asLong());
        for (ConsumerRecord<byte[], byte[]> each : reader(question).poll(wait)) {
            String value = Base64.getEncoder().encodeToString(each.value());
            rows.add(List.of(each.topic(), each.partition(), each.offset(), value));
        }
        return rows;
    }

    private Object committed(JsonNode question) {
        TopicPartition place = place(question.get("place"));
        OffsetAndMetadata found = reader(question).committed(Set.of(place)).get(place);
        return found == null ? null : found.offset();
    }

    private Object leave(JsonNode question) {
        String name = question.get("reader").asText();
        KafkaConsumer<byte[], byte[]> consumer = readers.remove(name);
        if (question.get("isMember").asBoolean()) {
            departed.put(name, consumer.groupMetadata());
            consumer.close();
        } else {
            consumer.close(CloseOptions.timeout(Duration.ZERO)); // and not when the fetch that waits is answered
        }
        return null;
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode question, Map<String, Object> extra) {
        Map<String, Object> options = new HashMap<>(extra);
        options.put("bootstrap.servers", bootstrap);
        options.put("isolation.level", question.get("isolation").asText());
        options.put("enable.auto.commit", false);
        options.put("fetch.max.wait.ms", question.get("waitMs").asInt());
        options.put("default.api.timeout.ms", 10_000);
        return new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode question) {
        return producers.get(question.get("producer").asText());
    }

    private KafkaConsumer<byte[], byte[]> reader(JsonNode question) {
        return readers.get(question.get("reader").asText());
    }

    private static TopicPartition place(JsonNode row) {
        return new TopicPartition(row.get(0).asText(), row.get(1).asInt());
    }

    interface Action {
        void run() throws Exception;
    }

    /** A producer that failed says so again in other words; what it failed of is inside. */
    private static Object act(Action action) throws Exception {
        try {
            action.run();
            return null;
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof Exception cause ? cause : failed;
        } catch (KafkaException failed) {
            boolean isWrapped = !(failed instanceof ApiException) && failed.getCause() instanceof ApiException;
            throw isWrapped ? (ApiException) failed.getCause() : failed;
        }
    }
}
