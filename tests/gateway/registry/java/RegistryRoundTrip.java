import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes a record with Confluent's serializer, and prints every record of the topic as its deserializer reads it. */
public class RegistryRoundTrip {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], registry = arguments[1], topic = arguments[2];
        Schema schema = new Schema.Parser().parse(arguments[3]);
        GenericRecord order = new GenericData.Record(schema);
        order.put("id", 8L);
        order.put("note", "from Java");
        try (var producer = new KafkaProducer<String, Object>(
                Map.of(
                    "bootstrap.servers", bootstrap,
                    "key.serializer", StringSerializer.class.getName(),
                    "value.serializer", KafkaAvroSerializer.class.getName(),
                    "schema.registry.url", registry))) {
            producer.send(new ProducerRecord<>(topic, 0, null, order)).get();
        }
        var place = new TopicPartition(topic, 0);
        try (var consumer = new KafkaConsumer<String, Object>(
                Map.of(
                    "bootstrap.servers", bootstrap,
                    "key.deserializer", StringDeserializer.class.getName(),
                    "value.deserializer", KafkaAvroDeserializer.class.getName(),
                    "schema.registry.url", registry))) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            for (int tries = 0; consumer.position(place) < end && tries < 60; tries++) {
                for (ConsumerRecord<String, Object> found : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(found.value());
                }
            }
        }
    }
}
