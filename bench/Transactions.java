import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The verbs of transactions.c with the client of Apache Kafka, which speaks KIP-890 where the broker does.
 *
 * <p>A question is a line of standard input, "verb name=value ...", with the options of load.c; the answer is a line of
 * JSON. One process answers all questions about a broker, so that its code is compiled when it counts. What is not set
 * here is the client's default. A question that fails ends the process.
 */
public final class Transactions {
    /** As QUEUE_KBYTES in transactions.c. */
    private static final int BUFFER_BYTES = 8 << 20;

    private static final int WARM_UP_TRANSACTIONS = 20;
    private static final long STALL_TIMEOUT_S = 60;

    private final Map<String, String> options = new HashMap<>();

    private Transactions(String[] named) {
        for (String option : named) {
            String[] both = option.split("=", 2);
            options.put(both[0], both[1]);
        }
    }

    public static void main(String[] unused) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Transactions question = new Transactions(Arrays.copyOfRange(words, 1, words.length));
            System.out.println(question.answer(words[0]));
        }
    }

    private String answer(String verb) throws Exception {
        return switch (verb) {
            case "version" -> version();
            case "transactions" -> transactions();
            case "commits" -> commits();
            case "visible" -> visible();
            default -> throw new IllegalArgumentException("unknown verb " + verb);
        };
    }

    /** The broker's transaction.version: 2 means KIP-890, which this client then speaks. */
    private String version() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", options.get("bootstrap")))) {
            Map<String, FinalizedVersionRange> features =
                    admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            FinalizedVersionRange found = features.get("transaction.version");
            return json("\"transaction_version\": %d", found == null ? 0 : found.maxVersionLevel());
        }
    }

    private String transactions() {
        long messages = number("messages");
        int partitions = (int) number("partitions");
        long intervalNs = TimeUnit.MILLISECONDS.toNanos(number("interval_ms"));
        byte[] payload = payload();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            producer.partitionsFor(topic());
            long sent = 0;
            long committed = 0;
            long startedNs = System.nanoTime();
            while (sent < messages) {
                long begunNs = System.nanoTime();
                producer.beginTransaction();
                do {
                    send(producer, (int) (sent++ % partitions), payload);
                } while (sent < messages && System.nanoTime() - begunNs < intervalNs);
                commit(producer);
                committed++;
            }
            double seconds = (System.nanoTime() - startedNs) / 1e9;
            String format = "\"messages\": %d, \"bytes\": %d, \"seconds\": %.6f, \"transactions\": %d";
            return json(format, messages, messages * payload.length, seconds, committed);
        }
    }

    private String commits() {
        long[] tookNs = new long[(int) number("messages")];
        int partitions = (int) number("partitions");
        long records = number("records");
        byte[] payload = payload();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", number("linger_ms")))) {
            for (int at = -WARM_UP_TRANSACTIONS; at < tookNs.length; at++) {
                producer.beginTransaction();
                for (int record = 0; record < records; record++) {
                    send(producer, record % partitions, payload);
                }
                long startedNs = System.nanoTime();
                commit(producer);
                if (at >= 0) {
                    tookNs[at] = System.nanoTime() - startedNs;
                }
            }
        }
        return latencies(tookNs);
    }

    private String visible() throws Exception {
        long[] tookNs = new long[(int) number("messages")];
        byte[] payload = payload();
        BlockingQueue<Long> arrivalsNs = new LinkedBlockingQueue<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer();
                KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", number("linger_ms")))) {
            Thread watcher = new Thread(() -> watch(consumer, arrivalsNs));
            watcher.setDaemon(true);
            watcher.start();
            for (int at = -WARM_UP_TRANSACTIONS; at < tookNs.length; at++) {
                long startedNs = System.nanoTime();
                producer.beginTransaction();
                send(producer, 0, payload);
                commit(producer);
                Long arrivedNs = arrivalsNs.poll(STALL_TIMEOUT_S, TimeUnit.SECONDS);
                if (arrivedNs == null || !arrivalsNs.isEmpty()) {
                    throw new IllegalStateException("not exactly one record arrived for the one that was sent");
                }
                if (at >= 0) {
                    tookNs[at] = arrivedNs - startedNs;
                }
            }
            consumer.wakeup();
            watcher.join();
        }
        return latencies(tookNs);
    }

    /** Tells when each record arrived, until the consumer is woken. */
    private static void watch(KafkaConsumer<byte[], byte[]> consumer, BlockingQueue<Long> arrivalsNs) {
        try {
            while (true) {
                for (ConsumerRecord<byte[], byte[]> unused : consumer.poll(Duration.ofSeconds(STALL_TIMEOUT_S))) {
                    arrivalsNs.add(System.nanoTime());
                }
            }
        } catch (WakeupException over) {
            return;
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("isolation.level", "read_committed");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> partition = List.of(new TopicPartition(topic(), 0));
        consumer.assign(partition);
        consumer.seekToBeginning(partition);
        return consumer;
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("transactional.id", topic());
        settings.put("acks", "all");
        settings.put("buffer.memory", BUFFER_BYTES);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int partition, byte[] payload) {
        producer.send(new ProducerRecord<>(topic(), partition, null, payload));
    }

    /**
     * The flush belongs to the commit, which would do it anyway. Left to the client, a commit that is asked for while
     * its sender looks for work may overtake the records (client 4.3, KIP-890), and any broker then refuses it.
     */
    private static void commit(KafkaProducer<byte[], byte[]> producer) {
        producer.flush();
        producer.commitTransaction();
    }

    private String topic() {
        return options.get("topic");
    }

    private long number(String name) {
        return Long.parseLong(options.get(name));
    }

    /** Random: records that do not compress to nothing. */
    private byte[] payload() {
        byte[] payload = new byte[(int) number("size")];
        new Random(1).nextBytes(payload);
        return payload;
    }

    private static String latencies(long[] tookNs) {
        Arrays.sort(tookNs);
        int count = tookNs.length;
        return json(
                "\"messages\": %d, \"mean_ms\": %.4f, \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f,"
                        + " \"max_ms\": %.4f",
                count,
                Arrays.stream(tookNs).average().orElseThrow() / 1e6,
                tookNs[count / 2] / 1e6,
                tookNs[(int) (count * 9L / 10)] / 1e6,
                tookNs[(int) (count * 99L / 100)] / 1e6,
                tookNs[count - 1] / 1e6);
    }

    private static String json(String format, Object... values) {
        return "{" + String.format(Locale.ROOT, format, values) + "}";
    }
}
