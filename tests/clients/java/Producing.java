import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers, one for each set of options, kept open between questions. */
final class Producing implements AutoCloseable {
    private static final long TIMEOUT_S = 60;

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    Producing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("produce", this::produce);
    }

    @Override
    public void close() {
        producers.values().forEach(KafkaProducer::close);
    }

    private List<Long> produce(JsonNode question) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(question);
        String topic = question.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode row : question.get("records")) {
            Long timestamp = row.get(3).isNull() ? null : row.get(3).asLong();
            ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(topic, row.get(0).asInt(), timestamp, data(row.get(1)), data(row.get(2)));
            for (JsonNode header : row.get(4)) {
                record.headers().add(header.get(0).asText(), data(header.get(1)));
            }
            sent.add(producer.send(record));
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            offsets.add(future.get(TIMEOUT_S, TimeUnit.SECONDS).offset());
        }
        return offsets;
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode question) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("acks", question.get("acks").asText());
        options.put("compression.type", question.get("codec").asText());
        options.put("enable.idempotence", question.get("idempotent").asBoolean());
        options.put("max.request.size", question.get("maxRequestBytes").asInt());
        options.put("linger.ms", 5);
        options.put("delivery.timeout.ms", (int) (TIMEOUT_S * 1000));
        options.put("request.timeout.ms", 10_000);
        options.put("max.block.ms", (int) (TIMEOUT_S * 1000));
        return producers.computeIfAbsent(
                options.toString(),
                unused -> new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer()));
    }

    private static byte[] data(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
